"""What a step moves through memory, and what memory could move: how far the messages are from the limit."""

from __future__ import annotations

import time
from functools import lru_cache
from statistics import median
from typing import Final

import torch

__all__ = ["copy_bandwidth", "message_bytes"]

_PROBE_BYTES: Final = 1 << 25
_PROBES: Final = 5


def message_bytes(layers: int, hidden_dim: int) -> int:
    """Bytes that one message of a graph moves in a training step, at least: ``16 * H`` for each layer.

    In fp32 the forward pass reads the source's state and adds to the target's, and the backward pass does the same with
    gradients: four times ``4 * H`` bytes, when everything in between stays in registers or cache.
    """
    return 16 * hidden_dim * layers


@lru_cache(maxsize=8)
def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second that ``device`` moves when it copies a large tensor, reads and writes counted; measured once.

    The median of a few copies of 32 MiB, as in STREAM's copy kernel (McCalpin 1995).
    """
    source = torch.zeros(_PROBE_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(_PROBES):
        start = time.perf_counter()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return 2 * _PROBE_BYTES / max(median(times), 1e-9)
