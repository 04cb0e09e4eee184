"""Seeds, deterministic kernels, and digests of weights.

The random draws of a step are a function of (seed, step, rank): nothing of a generator's state has to be saved, and a run
that continues draws what an undisturbed one would have drawn.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

__all__ = ["CUBLAS_WORKSPACE_ENV", "Determinism", "model_hash", "seed_everything", "seed_step", "tensor_bytes"]

CUBLAS_WORKSPACE_ENV: Final = "CUBLAS_WORKSPACE_CONFIG"
_CUBLAS_DETERMINISTIC: Final = (":4096:8", ":16:8")


@dataclass(frozen=True, slots=True)
class Determinism:
    """What was asked, and what this process achieved.

    Attributes:
        requested: deterministic runs were asked for.
        achieved: every kernel is deterministic: torch refuses the others.
        reason: why not, if it was asked for and not achieved.
    """

    requested: bool
    achieved: bool
    reason: str | None = None


def seed_everything(seed: int, *, deterministic: bool, device: torch.device | None = None) -> Determinism:
    """Seed python, numpy and torch, and switch deterministic kernels on or off.

    With ``deterministic`` a kernel that has no deterministic form raises instead of running.
    """
    _seed_host(seed)
    torch.manual_seed(seed)
    kind = "cpu" if device is None else device.type
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = not deterministic
    if not deterministic:
        return Determinism(False, False)
    if kind not in ("cpu", "cuda"):
        return Determinism(True, False, f"torch does not say which kernels of {kind} are deterministic")
    if kind == "cuda" and os.environ.get(CUBLAS_WORKSPACE_ENV) not in _CUBLAS_DETERMINISTIC:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return Determinism(
                True, False, f"{CUBLAS_WORKSPACE_ENV} has to be :4096:8 or :16:8 before CUDA starts; set it outside"
            )
        os.environ[CUBLAS_WORKSPACE_ENV] = _CUBLAS_DETERMINISTIC[0]
    return Determinism(True, True)


def seed_step(seed: int, step: int, rank: int = 0) -> None:
    """Put every generator in use where the draws of a step begin."""
    digest = hashlib.sha256(f"hopline-step\0{seed}\0{step}\0{rank}".encode()).digest()
    number = int.from_bytes(digest[:8], sys.byteorder) >> 1
    _seed_host(number)
    # torch.manual_seed also visits, at each call, the devices that are not in use, and notes where it was called from.
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(number)


def model_hash(tensors: Mapping[str, Tensor]) -> str:
    """sha256 over name, dtype, shape and little-endian bytes of every tensor, sorted by name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def tensor_bytes(tensor: Tensor) -> bytes:
    """The bytes of a tensor in row-major order, little-endian."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    array = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
    if sys.byteorder == "big" and tensor.element_size() > 1:
        array = array.reshape(-1, tensor.element_size())[:, ::-1]
    return array.tobytes()


def _seed_host(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
