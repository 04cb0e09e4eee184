"""Random draws for link supervision, as pure functions of (seed, step, example id, place within the example)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from hopline.graph import GraphBatch
from hopline.model.segments import segment_count

__all__ = ["Negatives", "draw_edges", "draw_negatives"]

_TRIES: Final = 4
_GOLDEN: Final = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_MIX1: Final = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2: Final = -7723592293110705685  # 0x94D049BB133111EB


@dataclass(frozen=True, slots=True, eq=False)
class Negatives:
    """``each`` pairs for every edge, in the order of the edges.

    Attributes:
        pairs: int64 ``[E * each, 2]``.
        weight: float ``[E * each]``; 0 where every try hit a linked pair or one node, so that the pair is none.
    """

    pairs: Tensor
    weight: Tensor


def draw_negatives(batch: GraphBatch, *, seed: int, step: int, each: int = 1) -> Negatives:
    """Unlinked pairs of nodes: the source of an edge with another node of its graph.

    A try is rejected if it is a self loop or if an edge joins the two nodes in either direction; the score of a pair is
    symmetric. Membership is a binary search among sorted keys.
    """
    E, N = batch.num_edges, batch.num_nodes
    count = segment_count(batch.node_graph, batch.num_graphs)
    start = count.cumsum(0) - count
    source, target = batch.edge_index
    shape = (E, each, _TRIES)
    draw = torch.arange(each * _TRIES, device=source.device).view(1, each, _TRIES)
    place = _place_in_graph(batch.edge_graph, batch.num_graphs)[:, None, None] * (each * _TRIES) + draw
    bits = _bits(batch, batch.edge_graph, seed=seed, step=step, stream=1)[:, None, None]
    other = start.index_select(0, batch.edge_graph)[:, None, None] + _below(
        bits, place, count.index_select(0, batch.edge_graph)[:, None, None]
    )
    width = max(N, 1)
    keys = torch.sort(torch.cat([source * width + target, target * width + source])).values
    candidate = (source[:, None, None] * width + other).expand(shape)
    found = torch.searchsorted(keys, candidate.reshape(-1)).clamp(max=max(2 * E - 1, 0))
    linked = keys.index_select(0, found).view(shape) == candidate
    usable = ~linked & (other != source[:, None, None])
    # argmax of a mask is its first True, and 0 where there is none: then the weight is 0.
    first = usable.to(torch.int8).argmax(-1, keepdim=True)
    node = other.expand(shape).gather(-1, first).view(-1)
    pairs = torch.stack([source.repeat_interleave(each), node], 1)
    return Negatives(pairs=pairs, weight=usable.any(-1).view(-1).to(torch.float32))


def draw_edges(batch: GraphBatch, *, seed: int, step: int, each: int) -> tuple[Tensor, Tensor, Tensor]:
    """``each`` random edges of every row, with replacement, and a direction for each.

    Returns:
        Three tensors ``[G * each]``: int64 edges, 0 where the row has none; bool, read backwards; bool, the row has edges.
    """
    G = batch.num_graphs
    count = segment_count(batch.edge_graph, G)
    start = count.cumsum(0) - count
    row = torch.arange(G, device=count.device)
    place = torch.arange(each, device=count.device)[None]
    bits = _bits(batch, row, seed=seed, step=step, stream=2)[:, None]
    edge = start[:, None] + _below(bits, place, count.clamp(min=1)[:, None])
    has = (count > 0)[:, None].expand(G, each)
    back = _mix(bits + (place + 1) * _GOLDEN) < 0
    return torch.where(has, edge, 0).view(-1), back.expand(G, each).reshape(-1), has.reshape(-1)


def _place_in_graph(graph: Tensor, graphs: int) -> Tensor:
    """Position of each element among those of its row; ``graph`` is sorted."""
    count = segment_count(graph, graphs)
    start = count.cumsum(0) - count
    return torch.arange(len(graph), device=graph.device) - start.index_select(0, graph)


def _bits(batch: GraphBatch, row: Tensor, *, seed: int, step: int, stream: int) -> Tensor:
    """64 random bits for each row of a step."""
    example = batch.example_id * 2 + batch.is_twin
    bits = _mix(torch.full_like(example, seed) * _GOLDEN + stream)
    bits = _mix(bits ^ (_mix(torch.full_like(example, step) * _GOLDEN)))
    return _mix(bits + example * _GOLDEN).index_select(0, row)


def _below(bits: Tensor, place: Tensor, bound: Tensor) -> Tensor:
    """A number in [0, bound) for each place of the stream that ``bits`` starts."""
    positive = _mix(bits ^ _mix(place * _GOLDEN + 1)) & ((1 << 62) - 1)
    return positive % bound


def _mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele et al. 2014) on int64, whose products wrap around as the original's do."""
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, by: int) -> Tensor:
    """Logical shift to the right; torch's keeps the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)
