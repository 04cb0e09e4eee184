"""Mixed precision: autocast and loss scaling on CUDA; full precision everywhere else."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal

import torch

__all__ = ["Precision", "autocast", "effective_precision", "make_scaler"]

Precision = Literal["fp32", "fp16", "bf16"]
_DTYPES: Final = {"fp16": torch.float16, "bf16": torch.bfloat16}


def effective_precision(asked: Precision, device: torch.device) -> Precision:
    """What is used of what was asked for: only CUDA runs in half precision."""
    return asked if device.type == "cuda" else "fp32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[precision])


def make_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """The loss scaler; it does nothing except for fp16."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
