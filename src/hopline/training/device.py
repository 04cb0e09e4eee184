"""Which device trains, and whether the training fits its memory."""

from __future__ import annotations

import os
from typing import Final

import torch
from torch import nn

from hopline.errors import ConfigError
from hopline.model import GraphModel
from hopline.model.footprint import rank_memory

__all__ = [
    "DEVICE_MEMORY_HEADROOM",
    "TRAINING_BYTES_PER_PARAMETER",
    "rank_device",
    "require_device_memory",
    "resolve_device",
    "settle_threads",
    "sharded_bytes",
    "training_bytes",
]

TRAINING_BYTES_PER_PARAMETER: Final = 16
"""fp32 weight, gradient and two Adam moments of a trained parameter; a frozen one has its weight alone."""
DEVICE_MEMORY_HEADROOM: Final = 0.85
"""Share of the free memory that weights and optimizer may take; the rest is for activations."""
_GIB: Final = 1 << 30


def resolve_device(device: torch.device | str | None = "auto") -> torch.device:
    """The device asked for; for ``auto`` or None the best there is: cuda, then mps, then cpu.

    Raises:
        ConfigError: no such device.
    """
    if device is None or device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device {device!r}: no such device; expected auto, cpu, cuda, cuda:<n> or mps") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {device!r}: this machine has no CUDA device, or this torch no CUDA; use cpu or auto")
    return found


def rank_device(device: torch.device) -> torch.device:
    """For CUDA the device of this process, ``cuda:LOCAL_RANK``, made the current one; others are left as they are."""
    if device.type != "cuda":
        return device
    found = torch.device("cuda", device.index if device.index is not None else int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(found)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.fp32_precision = "tf32"
    return found


def settle_threads(processes: int = 1) -> int:
    """Give the kernels of each process half of its share of the processors, at least one, and return how many that are.

    The other half is for the thread that makes batches. The model's operations are small: measured on two processors, a
    second thread made a step slower, because it was woken and put to sleep for each of them. ``OMP_NUM_THREADS`` wins.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // (2 * processes)))
    return torch.get_num_threads()


def training_bytes(model: nn.Module) -> int:
    """Bytes of weights, gradients and optimizer state: frozen parameters and buffers count their own bytes alone."""
    total = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    for parameter in model.parameters():
        each = TRAINING_BYTES_PER_PARAMETER if parameter.requires_grad else parameter.element_size()
        total += parameter.numel() * each
    return total


def sharded_bytes(model: GraphModel, shards: int) -> int:
    """Bytes on each of ``shards`` devices: a part of the training, and what is gathered whole for a while."""
    if shards == 1:
        return training_bytes(model)
    gathered = rank_memory(model, parallelism="fsdp", world=shards, half=False).gathered
    return -(-training_bytes(model) // shards) + gathered


def require_device_memory(model: GraphModel, device: torch.device, *, shards: int = 1) -> None:
    """Refuse a training that cannot fit, before the weights move.

    Args:
        model: the whole model.
        device: of this process.
        shards: processes that each hold one part of it.

    Raises:
        ConfigError: weights, gradients and optimizer need more than the headroom of the free memory of a CUDA device.
    """
    if device.type != "cuda":
        return
    free, total = torch.cuda.mem_get_info(device)
    check_memory(sharded_bytes(model, shards), free, total, str(device))


def check_memory(need: int, free: int, total: int, device: str) -> None:
    """The decision of :func:`require_device_memory`, from figures in bytes."""
    usable = DEVICE_MEMORY_HEADROOM * free
    if need > usable:
        raise ConfigError(
            f"{device}: training needs {need / _GIB:.2f} GiB for weights, gradients and optimizer, and "
            f"{usable / _GIB:.2f} GiB are usable ({DEVICE_MEMORY_HEADROOM:.0%} of {free / _GIB:.2f} GiB free, "
            f"{total / _GIB:.2f} GiB in all); "
            "make model.hidden_dim smaller, freeze the query encoder, set training.parallelism: fsdp over more processes, "
            "or take a larger device"
        )
