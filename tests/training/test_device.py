"""Which device trains, and whether the training fits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from hopline.errors import ConfigError
from hopline.model.footprint import rank_memory
from hopline.training import GraphTrainer, World, rank_device, require_device_memory, resolve_device
from hopline.training.device import check_memory, sharded_bytes, training_bytes

GIB = 1 << 30


@pytest.fixture(autouse=True)
def leave_tf32_as_it_was() -> Iterator[None]:
    parts = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [part.fp32_precision for part in parts]
    yield
    for part, value in zip(parts, before, strict=True):
        part.fp32_precision = value


@pytest.mark.parametrize(("cuda", "mps", "best"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_auto_takes_the_best_there_is(monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, best: str) -> None:
    """G1: explicit > cuda > mps > cpu; `auto` string accepted."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert resolve_device("auto").type == resolve_device(None).type == best
    assert resolve_device("cpu").type == "cpu"
    assert resolve_device(torch.device("cpu")).type == "cpu"


def test_a_device_that_is_not_there_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """G1."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="no CUDA device"):
        resolve_device("cuda:1")
    with pytest.raises(ConfigError, match="no such device; expected auto, cpu"):
        resolve_device("gpu")


def test_each_rank_takes_the_gpu_of_its_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """G2, G8, D51: cuda:LOCAL_RANK, set_device called, TF32 by the one new switch; other devices are untouched."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert rank_device(torch.device("cpu")) == torch.device("cpu")
    assert not chosen
    assert rank_device(torch.device("cuda")) == torch.device("cuda:3")
    assert rank_device(torch.device("cuda:1")) == torch.device("cuda:1")
    assert chosen == [torch.device("cuda:3"), torch.device("cuda:1")]
    assert torch.backends.cuda.matmul.fp32_precision == torch.backends.cudnn.fp32_precision == "tf32"


def test_frozen_parameters_count_their_weights_alone() -> None:
    """D48: 16 bytes for each trained parameter, 4 for a frozen one, and buffers as they are."""
    model = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False))
    model.register_buffer("table", torch.zeros(8, dtype=torch.int64))
    assert training_bytes(model) == 200 * 16 + 64
    model[0].requires_grad_(False)
    assert training_bytes(model) == 100 * 16 + 100 * 4 + 64


def test_a_training_that_cannot_fit_is_refused_with_figures() -> None:
    """G3, D48: need, usable (85% of what is free) and total are named."""
    check_memory(85 * GIB, 100 * GIB, 200 * GIB, "cuda:0")
    with pytest.raises(
        ConfigError, match=r"cuda:0: training needs 86\.00 GiB .* 85\.00 GiB are usable .* 200\.00 GiB in all"
    ):
        check_memory(86 * GIB, 100 * GIB, 200 * GIB, "cuda:0")
    require_device_memory(nn.Linear(2, 2), torch.device("cpu"))


def test_shards_need_their_part_and_what_is_gathered(bench) -> None:
    """G3, D48: as `hopline model show` counts it; buffers are divided with the rest."""
    model = bench.model(bench.config({"hidden_dim": 16, "layers": 3}))
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    for shards in (2, 8):
        shown = rank_memory(model, parallelism="fsdp", world=shards, half=False)
        assert sharded_bytes(model, shards) == pytest.approx(shown.total + buffers / shards, abs=16)
    assert sharded_bytes(model, 1) == training_bytes(model)
    assert sharded_bytes(model, 8) > training_bytes(model) / 8


@pytest.mark.parametrize(("parallelism", "shards"), [("fsdp", 8), ("ddp", 1)])
def test_the_trainer_knows_whether_its_model_is_sharded(
    bench, monkeypatch: pytest.MonkeyPatch, parallelism: str, shards: int
) -> None:
    """G3, D48."""

    class CheckedError(Exception):
        pass

    def check(model: nn.Module, device: torch.device, **options: int) -> None:
        assert options == {"shards": shards}
        assert not any(parameter.requires_grad for parameter in model.query_encoder.parameters())
        raise CheckedError

    monkeypatch.setattr("hopline.training.trainer.current_world", lambda: World(rank=3, size=8))
    monkeypatch.setattr("hopline.training.trainer.require_device_memory", check)
    with pytest.raises(CheckedError):
        bench.trainer(bench.config(parallelism=parallelism, freeze_query_encoder=True), distributed=True)


def test_memory_is_checked_before_the_weights_move(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """G3, D48: the model is still where it was when the check refuses."""
    config = bench.config()
    model = bench.model(config)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    monkeypatch.setattr(nn.Module, "to", lambda *_: pytest.fail("the weights moved"))
    with pytest.raises(ConfigError, match="training needs"):
        GraphTrainer(model, config, "cuda")


@pytest.mark.parametrize("set_to", [None, "2"])
def test_kernels_get_half_of_the_processors_unless_the_user_says_otherwise(set_to: str | None) -> None:
    """Runs in a process of its own, since the number is one for the whole process."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if set_to is not None:
        environment["OMP_NUM_THREADS"] = set_to
    code = "import torch; from hopline.training import settle_threads; print(torch.get_num_threads(), settle_threads())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after == (before if set_to else max(1, len(os.sched_getaffinity(0)) // 2))
