"""The hot loops over edges: sums of messages, and cosines of pairs of nodes.

Both gather wide rows for every message or pair, of which a batch has several times more than nodes, and reduce them at
once. Kept whole, those rows would go to memory and back several times in each pass. So on the CPU the sum of messages is an
embedding bag, which reads, multiplies and adds without keeping anything, and the cosines work in pieces that stay in
the processor's cache; the backward pass gathers again instead of keeping what the forward pass gathered. torch.compile gets
the plain operations and fuses them by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from hopline.model.segments import segment_count

__all__ = ["Routes", "message_sum", "pair_cosines", "plan_routes", "sum_backward", "sum_forward"]

_PIECE_BYTES: Final = 1 << 19
_SHORTEST: Final = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Who sends to whom, for ``M`` messages whose coefficients come in ``K`` blocks from a table with ``C`` rows.

    Attributes:
        source, target, cell: int64 ``[M]``, sorted by target; cell = row of the table.
        blocks: K.
        bag: int32 ``[M * K]`` what each bag adds up: ``source * K + block``; a bag is a block of a target's row.
        bag_start: int32 ``[N * K]``.
        bag_cell: int32 ``[M * K]`` where the coefficient of each is in the table, as a flat array.
        back_cell: int32 ``[M * K]`` the same for the messages from the target to the source. Every edge sends both ways, so
            that the bags of the backward pass are the bags of the forward pass with these coefficients.
    """

    source: Tensor
    target: Tensor
    cell: Tensor
    blocks: int
    bag: Tensor
    bag_start: Tensor
    bag_cell: Tensor
    back_cell: Tensor


def plan_routes(
    source: Tensor, target: Tensor, cell: Tensor, edge_message: Tensor, *, nodes: int, blocks: int
) -> Routes:
    """Work out the bags.

    Args:
        source, target, cell: ``[M]``.
        edge_message: ``[2, E]`` place of each edge's two messages.
        nodes, blocks: N and K.
    """
    K = blocks
    degree = segment_count(target, nodes)
    start = degree.cumsum(0) - degree
    block = torch.arange(K, dtype=torch.int32, device=source.device)
    # A target with d messages has K bags of d, one after the other.
    width = degree.index_select(0, target)
    first = torch.arange(len(target), device=source.device) + start.index_select(0, target) * (K - 1)
    place = (first.int()[:, None] + width.int()[:, None] * block).view(-1).long()
    reverse = torch.empty_like(source)
    reverse.index_copy_(0, edge_message[0], edge_message[1]).index_copy_(0, edge_message[1], edge_message[0])

    def spread(row: Tensor) -> Tensor:
        flat = (row.int()[:, None] * K + block).view(-1)
        return torch.empty_like(flat).index_copy_(0, place, flat)

    return Routes(
        source=source,
        target=target,
        cell=cell,
        blocks=K,
        bag=spread(source),
        bag_start=(start.int()[:, None] * K + degree.int()[:, None] * block).view(-1),
        bag_cell=spread(cell),
        back_cell=spread(cell.index_select(0, reverse)),
    )


def message_sum(states: Tensor, table: Tensor, routes: Routes) -> Tensor:
    """``out[t] = sum over messages into t of table[cell] * states[source]``, blockwise.

    Args:
        states: float ``[N, H]``.
        table: ``[C, K]`` coefficients, one for each of the K blocks of H / K numbers.
        routes: the messages.

    Returns:
        ``[N, H]``.
    """
    if torch.compiler.is_compiling():
        coefficient = table.index_select(0, routes.cell)[:, :, None]
        message = states.index_select(0, routes.source).view(-1, routes.blocks, states.shape[1] // routes.blocks)
        message = (message * coefficient).flatten(1)
        return torch.zeros_like(states).index_add(0, routes.target, message)
    out: Tensor = _MessageSum.apply(states, table, routes)  # type: ignore[no-untyped-call]
    return out


def pair_cosines(states: Tensor, pairs: Tensor) -> Tensor:
    """``[K]`` cosines of the states ``[N, H]`` of the nodes of pairs ``[K, 2]``; the length of a state counts as 1e-6 at
    least."""
    if torch.compiler.is_compiling():
        states = F.normalize(states, dim=-1, eps=_SHORTEST)
        return (states.index_select(0, pairs[:, 0]) * states.index_select(0, pairs[:, 1])).sum(-1)
    out: Tensor = _PairCosines.apply(states, pairs[:, 0].contiguous(), pairs[:, 1].contiguous())  # type: ignore[no-untyped-call]
    return out


def sum_forward(states: Tensor, table: Tensor, routes: Routes) -> Tensor:
    """:func:`message_sum` without its derivative."""
    return _bags(states, table, routes, routes.bag_cell)


def sum_backward(grad: Tensor, states: Tensor, table: Tensor, routes: Routes) -> tuple[Tensor, Tensor]:
    """Gradients of the states ``[N, H]`` and of the table ``[C, K]``, from that of the sum."""
    K = routes.blocks
    for_coefficient = states.new_empty((len(routes.source), K))
    ones = states.new_ones(states.shape[1] // K)
    for source, target, out in _pieces(states, routes.source, routes.target, for_coefficient):
        product = states.index_select(0, source).mul_(grad.index_select(0, target))
        torch.mv(product.view(-1, len(ones)), ones, out=out.view(-1))
    for_table = torch.zeros_like(table).index_add_(0, routes.cell, for_coefficient)
    return _bags(grad, table, routes, routes.back_cell), for_table


def _bags(rows: Tensor, table: Tensor, routes: Routes, cell: Tensor) -> Tensor:
    N, H = rows.shape
    if not N:
        return torch.zeros_like(rows)
    coefficient = table.reshape(-1).index_select(0, cell)
    bags = rows.contiguous().view(N * routes.blocks, -1)
    out: Tensor = torch._embedding_bag_forward_only(bags, routes.bag, routes.bag_start, per_sample_weights=coefficient)[
        0
    ]
    return out.view(N, H)


class _MessageSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, table: Tensor, routes: Routes) -> Tensor:
        ctx.save_for_backward(states, table)
        ctx.routes = routes
        return sum_forward(states, table, routes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        states, table = ctx.saved_tensors
        return *sum_backward(grads[0], states, table, ctx.routes), None


class _PairCosines(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, left: Tensor, right: Tensor) -> Tensor:
        inverse = 1 / torch.linalg.vector_norm(states, dim=1).clamp_(min=_SHORTEST)
        out = states.new_empty(len(left))
        for one, other, product in _pieces(states, left, right, out):
            torch.sum(states.index_select(0, one).mul_(states.index_select(0, other)), -1, out=product)
        scale = inverse.index_select(0, left).mul_(inverse.index_select(0, right))
        out.mul_(scale)
        ctx.save_for_backward(states, left, right, inverse, scale, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        states, left, right, inverse, scale, cosines = ctx.saved_tensors
        grad = grads[0] * scale
        # Each cosine falls as either state grows along itself; not where the state is shorter than the shortest.
        pull = grads[0] * cosines
        along = torch.zeros_like(inverse).index_add_(0, left, pull).index_add_(0, right, pull)
        along = along * inverse.square() * (inverse < 1 / _SHORTEST)
        for_states = states * along.neg()[:, None]
        for one, other, each in _pieces(states, left, right, grad[:, None]):
            for_states.index_add_(0, one, states.index_select(0, other).mul_(each))
            for_states.index_add_(0, other, states.index_select(0, one).mul_(each))
        return for_states, None, None


def _pieces(states: Tensor, *rows: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Pieces of all tensors, cut alike, so that a state for each row of a piece stays in the cache of the threads."""
    if states.is_cuda:
        return iter([rows])
    piece = _PIECE_BYTES * torch.get_num_threads()
    size = max(1, piece // (states.shape[1] * states.element_size()))
    return zip(*(torch.split(tensor, size) for tensor in rows), strict=True)
