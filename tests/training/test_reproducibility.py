"""Seeds, determinism and digests of weights."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch

from hopline.training import CUBLAS_WORKSPACE_ENV, model_hash, seed_everything
from hopline.training.reproducibility import seed_step


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_every_generator_is_seeded() -> None:
    """G53, D44: python, numpy and torch."""
    seed_everything(3, deterministic=True)
    first = draws()
    seed_everything(3, deterministic=True)
    assert draws() == first
    seed_everything(4, deterministic=True)
    assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_what_was_achieved_is_told_apart_from_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """G53, D44: too late for cuBLAS is not deterministic, and kernels without a deterministic form are refused."""
    assert seed_everything(0, deterministic=True).achieved
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    found = seed_everything(0, deterministic=False)
    assert (found.requested, found.achieved) == (False, False)
    assert not torch.are_deterministic_algorithms_enabled()

    other = seed_everything(0, deterministic=True, device=torch.device("mps"))
    assert (other.requested, other.achieved) == (True, False)
    assert "mps" in (other.reason or "")

    cuda = torch.device("cuda")
    monkeypatch.setenv(CUBLAS_WORKSPACE_ENV, "of somebody else")
    monkeypatch.delenv(CUBLAS_WORKSPACE_ENV)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    late = seed_everything(0, deterministic=True, device=cuda)
    assert (late.requested, late.achieved) == (True, False)
    assert CUBLAS_WORKSPACE_ENV in (late.reason or "")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert seed_everything(0, deterministic=True, device=cuda).achieved
    assert os.environ[CUBLAS_WORKSPACE_ENV] == ":4096:8"


def test_the_draws_of_a_step_depend_on_seed_step_and_rank_alone() -> None:
    """D23, D37, G57: nothing of a generator has to be saved, and ranks draw differently."""
    seed_step(1, 7)
    first = draws()
    torch.rand(100)
    seed_step(1, 7)
    assert draws() == first
    others = set()
    for arguments in ((1, 8), (2, 7), (1, 7, 1)):
        seed_step(*arguments)
        others.add(draws())
    assert len(others | {first}) == 4


def test_the_generator_of_a_device_in_use_is_seeded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """D37: dropout draws there."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "manual_seed", seeded.append)
    seed_step(1, 7)
    seed_step(1, 8)
    assert seeded[0] == seeded[1] != seeded[2] == seeded[3]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([2**24], dtype=torch.int64), torch.tensor([2**24 + 1], dtype=torch.int64)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(1), torch.tensor([-0.0])),
    ],
)
def test_the_model_hash_sees_dtype_shape_and_every_bit(one: torch.Tensor, other: torch.Tensor) -> None:
    """G49, D45."""
    assert model_hash({"a": one}) != model_hash({"a": other})
    assert model_hash({"a": one}) != model_hash({"b": one})
    assert model_hash({"a": one}) == model_hash({"a": one.clone()})


def test_the_model_hash_does_not_depend_on_order_or_strides() -> None:
    """G49."""
    table = torch.arange(6.0).view(2, 3)
    assert model_hash({"a": table, "b": table}) == model_hash({"b": table.t().contiguous().t(), "a": table})
    assert model_hash({"a": torch.zeros(0)}) != model_hash({})
