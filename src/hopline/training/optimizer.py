"""AdamW over parameter groups that are named, so that state is moved by name and a learning rate belongs to a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn

from hopline.config import TrainingConfig

__all__ = ["build_optimizer", "is_decayed", "parameter_groups", "set_learning_rate"]

_UNDECAYED_SUFFIXES: Final = (".threshold", ".scale")
_ENCODER: Final = "query_encoder."
_TRANSDUCTIVE: Final = "transductive."


def parameter_groups(model: nn.Module, config: TrainingConfig) -> list[dict[str, Any]]:
    """Groups of ``(name, parameter)`` by part of the model and by whether they decay; empty ones are left out.

    Vectors, scalars and names that end in ``.threshold`` or ``.scale`` have no decay. The query encoder and the bilinear
    branch are groups of their own where their learning rate differs. Frozen parameters are in none.
    """
    groups: dict[tuple[str, bool], list[tuple[str, nn.Parameter]]] = {}
    scales = {"encoder": config.query_encoder_lr_scale, "transductive": config.transductive_lr_scale, "base": 1.0}
    for name, parameter in _trained(model):
        part = "encoder" if name.startswith(_ENCODER) else "transductive" if name.startswith(_TRANSDUCTIVE) else "base"
        if scales[part] == 1.0:
            part = "base"
        groups.setdefault((part, is_decayed(name, parameter.ndim)), []).append((name, parameter))
    return [
        {
            "params": groups[part, decays],
            "weight_decay": config.weight_decay if decays else 0.0,
            "lr": config.learning_rate * scales[part],
            "lr_scale": scales[part],
        }
        for part in scales
        for decays in (True, False)
        if (part, decays) in groups
    ]


def is_decayed(name: str, ndim: int) -> bool:
    """Whether a parameter has weight decay: not vectors, scalars, thresholds and scales."""
    return ndim > 1 and not name.endswith(_UNDECAYED_SUFFIXES)


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW over the groups of a model that is already on its device."""
    return torch.optim.AdamW(parameter_groups(model, config), lr=config.learning_rate, betas=config.betas, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Give every group the learning rate, times its own scale."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_scale"]


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
