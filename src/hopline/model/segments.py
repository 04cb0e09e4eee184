"""Sums, softmax and log-sum-exp over the rows that share a segment, finite also for segments without rows.

All functions take ``index`` int64 ``[K]``, the segment of each row of ``values`` ``[K, ...]``, and the number of segments.
Sorted indices are faster, not required.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["segment_count", "segment_logsumexp", "segment_mean", "segment_softmax", "segment_sum"]


def segment_sum(values: Tensor, index: Tensor, segments: int) -> Tensor:
    """Sum per segment ``[segments, ...]``; 0 for an empty one. Accumulates in float32 at least."""
    dtype = torch.promote_types(values.dtype, torch.float32) if values.is_floating_point() else values.dtype
    out = torch.zeros((segments, *values.shape[1:]), dtype=dtype, device=values.device)
    return out.index_add_(0, index, values.to(dtype))


def segment_count(index: Tensor, segments: int) -> Tensor:
    """int64 ``[segments]``: how many rows each segment has."""
    return torch.zeros(segments, dtype=torch.int64, device=index.device).index_add_(0, index, torch.ones_like(index))


def segment_mean(values: Tensor, index: Tensor, segments: int) -> Tensor:
    """Mean per segment ``[segments, ...]``; 0 for an empty one."""
    count = segment_count(index, segments).clamp(min=1).to(torch.float32)
    return segment_sum(values, index, segments) / count.view(-1, *(1,) * (values.dim() - 1))


def _segment_max(values: Tensor, index: Tensor, segments: int) -> Tensor:
    """Detached maximum per segment, 0 for an empty one: only ever subtracted for stability, so it needs no gradient."""
    values = values.detach()
    out = torch.zeros((segments, *values.shape[1:]), dtype=values.dtype, device=values.device)
    spread = index.view(-1, *(1,) * (values.dim() - 1)).expand_as(values)
    return out.scatter_reduce_(0, spread, values, "amax", include_self=False)


def segment_softmax(values: Tensor, index: Tensor, segments: int) -> Tensor:
    """Softmax within each segment, the shape of ``values``."""
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    shifted = torch.exp(values - _segment_max(values, index, segments).index_select(0, index))
    return shifted / segment_sum(shifted, index, segments).clamp(min=1e-30).index_select(0, index)


def segment_logsumexp(values: Tensor, index: Tensor, segments: int, weight: Tensor | None = None) -> Tensor:
    """``log sum weight * exp(values)`` per segment ``[segments, ...]``; the maximum less 69 where nothing has weight."""
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    top = _segment_max(values, index, segments)
    shifted = torch.exp(values - top.index_select(0, index))
    if weight is not None:
        shifted = shifted * weight
    return segment_sum(shifted, index, segments).clamp(min=1e-30).log() + top
