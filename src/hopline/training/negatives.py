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
_LARGEST_TABLE: Final = 1 << 26
_GOLDEN: Final = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_MIX1: Final = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2: Final = -7723592293110705685  # 0x94D049BB133111EB
_ALL: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Negatives:
    """``each`` pairs for every edge, in the order of the edges.

    Attributes:
        pairs: int64 ``[E * each, 2]``.
        weight: float ``[E * each]``; 0 where every try hit a linked pair or one node, so that the pair is none.
    """

    pairs: Tensor
    weight: Tensor


def draw_negatives(batch: GraphBatch, *, seed: int, step: int | Tensor, each: int = 1) -> Negatives:
    """Unlinked pairs of nodes: the source of an edge with another node of its graph.

    A try is rejected if it is a self loop or if an edge joins the two nodes in either direction; the score of a pair is
    symmetric.
    """
    count = segment_count(batch.node_graph, batch.num_graphs)
    start = count.cumsum(0) - count
    source = batch.edge_index[0].repeat_interleave(each)
    graph = batch.edge_graph.repeat_interleave(each)
    tries = torch.arange(_TRIES, device=source.device)[:, None]
    place = _place_in_graph(batch.edge_graph, batch.num_graphs).repeat_interleave(each) * each
    place = place + torch.arange(each, device=source.device).repeat(batch.num_edges)
    bits = _bits(batch, graph, seed=seed, step=step, stream=1)
    other = start.index_select(0, graph) + _below(_draw(bits, place * _TRIES + tries), count.index_select(0, graph))
    usable = ~_joined(batch, count, start, source, other)  # [tries, E * each]
    node, found = other[-1], usable[-1]
    for attempt in reversed(range(_TRIES - 1)):
        node = torch.where(usable[attempt], other[attempt], node)
        found = found | usable[attempt]
    return Negatives(pairs=torch.stack([source, node], 1), weight=found.to(torch.float32))


def draw_edges(batch: GraphBatch, *, seed: int, step: int | Tensor, each: int) -> tuple[Tensor, Tensor, Tensor]:
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
    edge = start[:, None] + _below(_draw(bits, place), count.clamp(min=1)[:, None])
    has = (count > 0)[:, None].expand(G, each)
    back = _draw(bits, each + place) < 0
    return torch.where(has, edge, 0).view(-1), back.expand(G, each).reshape(-1), has.reshape(-1)


def _joined(batch: GraphBatch, count: Tensor, start: Tensor, source: Tensor, other: Tensor) -> Tensor:
    """Whether an edge, in either direction, joins each source with each other node of its row, or they are the same.

    A table with a cell for each pair of nodes answers fastest; where it would be too large, a search among sorted pairs.
    """
    left = torch.cat([batch.edge_index.view(-1), torch.arange(batch.num_nodes, device=source.device)])
    right = torch.cat([batch.edge_index.flip(0).reshape(-1), left[2 * batch.num_edges :]])
    # The pairs (a, b) of a row follow those of the rows before, by a and then by b.
    size = count.index_select(0, batch.node_graph)
    first = ((count * count).cumsum(0) - count * count - start * count - start).index_select(0, batch.node_graph)
    first = (
        first + torch.arange(batch.num_nodes, device=source.device) * size
    )  # [N]; the cell of (a, b) is first[a] + b
    known, asked = first.index_select(0, left) + right, first.index_select(0, source) + other
    if batch.num_node_pairs <= _LARGEST_TABLE:
        table = torch.zeros(batch.num_node_pairs, dtype=torch.bool, device=source.device).index_fill_(0, known, True)
        return table.index_select(0, asked.view(-1)).view_as(asked)
    known = torch.sort(known).values
    place = torch.searchsorted(known, asked.contiguous()).clamp(max=max(len(known) - 1, 0))
    return known.index_select(0, place.view(-1)).view_as(asked) == asked


def _place_in_graph(graph: Tensor, graphs: int) -> Tensor:
    """Position of each element among those of its row; ``graph`` is sorted."""
    count = segment_count(graph, graphs)
    start = count.cumsum(0) - count
    return torch.arange(len(graph), device=graph.device) - start.index_select(0, graph)


def _bits(batch: GraphBatch, row: Tensor, *, seed: int, step: int | Tensor, stream: int) -> Tensor:
    """64 random bits for each row of a step."""
    example = batch.example_id * 2 + batch.is_twin
    key = _mix_number(seed * _GOLDEN + stream)
    if isinstance(step, Tensor):
        start: Tensor | int = _mix(_mix(step * _GOLDEN) ^ key)
    else:
        start = _mix_number(_mix_number(step * _GOLDEN) ^ key)
    return _mix(example * _GOLDEN + start).index_select(0, row)


def _draw(bits: Tensor, place: Tensor) -> Tensor:
    """64 random bits at a place of the stream that ``bits`` starts, as SplitMix64 gives them."""
    return _mix(bits + (place + 1) * _GOLDEN)


def _below(bits: Tensor, bound: Tensor) -> Tensor:
    """A number in [0, bound) from random bits, for bounds below 2^31."""
    return (_shift(bits, 33) * bound) >> 31


def _mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele et al. 2014) on int64, whose products wrap around as the original's do."""
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def _mix_number(x: int) -> int:
    """:func:`_mix` of one number that the host knows; a tensor would take a kernel for each step of it."""
    x &= _ALL
    x = (x ^ (x >> 30)) * _MIX1 & _ALL
    x = (x ^ (x >> 27)) * _MIX2 & _ALL
    x ^= x >> 31
    return x - ((x >> 63) << 64)


def _shift(x: Tensor, by: int) -> Tensor:
    """Logical shift to the right; torch's keeps the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)
