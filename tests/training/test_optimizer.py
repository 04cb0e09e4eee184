"""Parameter groups of AdamW."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hopline.config import TrainingConfig
from hopline.training.optimizer import build_optimizer, parameter_groups, set_learning_rate


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.threshold = nn.Parameter(torch.zeros(2, 2))
        self.scale = nn.Parameter(torch.ones(2, 2))


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_encoder = nn.Linear(3, 3)
        self.transductive = nn.Embedding(4, 3)
        self.selector = Part()


def groups(model: nn.Module | None = None, **training: Any) -> list[tuple[float, float, set[str]]]:
    """(weight decay, learning rate scale, names) of each group."""
    found = parameter_groups(model or Whole(), TrainingConfig(weight_decay=0.01, **training))
    return [(g["weight_decay"], g["lr_scale"], {name for name, _ in g["params"]}) for g in found]


def test_vectors_thresholds_and_scales_do_not_decay() -> None:
    """G12: no decay for ndim <= 1 and for names that end in .threshold or .scale, whatever their shape."""
    assert groups() == [
        (0.01, 1.0, {"query_encoder.weight", "transductive.weight", "selector.inner.weight"}),
        (0.0, 1.0, {"query_encoder.bias", "selector.inner.bias", "selector.threshold", "selector.scale"}),
    ]


def test_a_learning_rate_of_its_own_splits_the_query_encoder_off() -> None:
    """G13: split only when the scale is not 1; empty groups are dropped."""
    assert groups(query_encoder_lr_scale=0.1) == [
        (0.01, 0.1, {"query_encoder.weight"}),
        (0.0, 0.1, {"query_encoder.bias"}),
        (0.01, 1.0, {"transductive.weight", "selector.inner.weight"}),
        (0.0, 1.0, {"selector.inner.bias", "selector.threshold", "selector.scale"}),
    ]
    assert (0.01, 3.0, {"transductive.weight"}) in groups(transductive_lr_scale=3.0)
    assert len(groups(transductive_lr_scale=3.0)) == 3


def test_a_frozen_part_is_in_no_group() -> None:
    """G9, G13: frozen parameters are not optimised, also with a scale of their own."""
    model = Whole()
    model.query_encoder.requires_grad_(False)
    for scale in (1.0, 0.1):
        names = set().union(*(names for _, _, names in groups(model, query_encoder_lr_scale=scale)))
        assert not any(name.startswith("query_encoder.") for name in names)
        assert len(groups(model, query_encoder_lr_scale=scale)) == 2


def test_adamw_with_the_betas_of_the_config() -> None:
    """G11: AdamW, betas (0.9, 0.95) by default."""
    optimizer = build_optimizer(Whole(), TrainingConfig())
    assert isinstance(optimizer, torch.optim.AdamW)
    assert {tuple(group["betas"]) for group in optimizer.param_groups} == {(0.9, 0.95)}
    other = build_optimizer(Whole(), TrainingConfig(betas=(0.8, 0.9)))
    assert {tuple(group["betas"]) for group in other.param_groups} == {(0.8, 0.9)}


def test_each_group_gets_its_multiple_of_the_learning_rate() -> None:
    """G13: LR x query_encoder_lr_scale."""
    optimizer = build_optimizer(Whole(), TrainingConfig(query_encoder_lr_scale=0.5, transductive_lr_scale=2.0))
    set_learning_rate(optimizer, 0.1)
    assert sorted({group["lr"] for group in optimizer.param_groups}) == pytest.approx([0.05, 0.1, 0.2])
