"""The two hot loops over edges, cut so that what they hold in between stays in the processor's cache.

Both gather wide rows for every message or pair, of which a batch has several times more than nodes, and reduce them at
once. Kept whole, those rows would go to memory and back several times in each pass; so the CPU works through them in
pieces, and the backward pass gathers again instead of keeping them. A GPU takes everything as one piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["message_sum", "pair_product"]

_PIECE_BYTES: Final = 1 << 19


def message_sum(states: Tensor, coefficient: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """``out[t] = sum over messages into t of coefficient * states[source]``, blockwise.

    Args:
        states: float ``[N, H]``.
        coefficient: ``[M, K]``, one for each of the K blocks of H / K numbers.
        source, target: int64 ``[M]``.

    Returns:
        ``[N, H]``.
    """
    out: Tensor = _MessageSum.apply(states, coefficient, source, target)  # type: ignore[no-untyped-call]
    return out


def pair_product(states: Tensor, pairs: Tensor) -> Tensor:
    """``[K]`` inner products of the states ``[N, H]`` of the nodes of pairs ``[K, 2]``."""
    out: Tensor = _PairProduct.apply(states, pairs[:, 0].contiguous(), pairs[:, 1].contiguous())  # type: ignore[no-untyped-call]
    return out


class _MessageSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, coefficient: Tensor, source: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(states, coefficient, source, target)
        K, width = coefficient.shape[1], states.shape[1] // coefficient.shape[1]
        out = torch.zeros_like(states)
        for a, b in _pieces(states, len(source)):
            message = states.index_select(0, source[a:b])
            message.view(b - a, K, width).mul_(coefficient[a:b, :, None])
            out.index_add_(0, target[a:b], message)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states, coefficient, source, target = ctx.saved_tensors
        K, width = coefficient.shape[1], states.shape[1] // coefficient.shape[1]
        for_states, for_coefficient = torch.zeros_like(states), torch.empty_like(coefficient)
        for a, b in _pieces(states, len(source)):
            arriving = grads[0].index_select(0, target[a:b])
            sent = states.index_select(0, source[a:b]).mul_(arriving)
            torch.sum(sent.view(b - a, K, width), -1, out=for_coefficient[a:b])
            arriving.view(b - a, K, width).mul_(coefficient[a:b, :, None])
            for_states.index_add_(0, source[a:b], arriving)
        return for_states, for_coefficient, None, None


class _PairProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(states, left, right)
        out = states.new_empty(len(left))
        for a, b in _pieces(states, len(left)):
            product = states.index_select(0, left[a:b]).mul_(states.index_select(0, right[a:b]))
            torch.sum(product, -1, out=out[a:b])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        states, left, right = ctx.saved_tensors
        for_states = torch.zeros_like(states)
        for a, b in _pieces(states, len(left)):
            grad = grads[0][a:b, None]
            for_states.index_add_(0, left[a:b], states.index_select(0, right[a:b]).mul_(grad))
            for_states.index_add_(0, right[a:b], states.index_select(0, left[a:b]).mul_(grad))
        return for_states, None, None


def _pieces(states: Tensor, length: int) -> Iterator[tuple[int, int]]:
    """Ranges that cover ``[0, length)``."""
    size = length if states.is_cuda else max(1, _PIECE_BYTES // (states.shape[1] * states.element_size()))
    for start in range(0, length, max(size, 1)):
        yield start, min(start + size, length)
