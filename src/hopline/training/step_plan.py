"""Who computes what in a step: its examples dealt to the ranks, and each rank's share cut into parts that fit in memory.

A pure function of the step's examples, so that every rank makes the same plan without asking the others.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PlannedChunk", "StepPlan", "plan_step"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PlannedChunk:
    """The units of one forward and backward pass, int64 ``[.]``; a filler runs with weight 0."""

    units: Ints
    filler: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """What each rank computes in one step.

    Attributes:
        ranks: the chunks of each rank, in order; at least one.
        rows: scored rows of the whole step, over all ranks, twins included, fillers not.
    """

    ranks: tuple[tuple[PlannedChunk, ...], ...]
    rows: int

    @property
    def fillers(self) -> int:
        """How many chunks count for nothing, over all ranks."""
        return sum(chunk.filler for chunks in self.ranks for chunk in chunks)


def plan_step(
    units: Ints,
    rows: Ints,
    nodes: Ints,
    edges: Ints,
    *,
    world: int,
    max_rows: int,
    max_nodes: int,
    max_edges: int,
    equal_chunks: bool,
) -> StepPlan:
    """Deal the units of a step to ``world`` ranks, and cut each rank's share into chunks.

    The units are dealt by edges, the largest first, each to the rank with the fewest edges so far (Graham 1969, "LPT"), so
    that no rank has more edges than another by more than the largest unit has. Of equal ranks the one with fewer units gets
    it, then the lower rank. Within a rank the units keep their order, so that one rank has them as they are.

    Args:
        units: int64 ``[B]``, in the order of the step; one may come twice.
        rows, nodes, edges: int64 ``[B]``, the sizes of each unit, its twin included.
        max_rows, max_nodes, max_edges: what a chunk may hold; a unit that is larger alone makes a chunk of its own.
        equal_chunks: give every rank as many chunks as the one with the most, by fillers. A rank without a unit has one
            filler in any case. A filler holds the unit of the step with the fewest edges, then nodes.

    Raises:
        ValueError: there is no unit.
    """
    if not len(units):
        raise ValueError("a step needs at least one example")
    shares = _deal(edges, world)
    limits = np.array([max_rows, max_nodes, max_edges])
    cuts = [_cut(share, np.stack([rows[share], nodes[share], edges[share]]), limits) for share in shares]
    cheapest = np.lexsort((np.arange(len(units)), rows, nodes, edges))[:1]
    most = max(map(len, cuts)) if equal_chunks else 1
    ranks = tuple(
        tuple(PlannedChunk(units[positions]) for positions in chunks)
        + (PlannedChunk(units[cheapest], filler=True),) * (most - len(chunks))
        for chunks in cuts
    )
    return StepPlan(ranks, int(rows.sum()))


def _deal(edges: Ints, world: int) -> list[Ints]:
    """The positions of each rank, rising."""
    if world == 1:
        return [np.arange(len(edges))]
    owner = np.empty(len(edges), dtype=np.int64)
    loads = [(0, 0, rank) for rank in range(world)]
    sizes = edges.tolist()
    for position in np.argsort(-edges, kind="stable").tolist():
        load, count, rank = loads[0]
        heapq.heapreplace(loads, (load + sizes[position], count + 1, rank))
        owner[position] = rank
    return [np.flatnonzero(owner == rank) for rank in range(world)]


def _cut(positions: Ints, sizes: Ints, limits: Ints) -> list[Ints]:
    """Cut positions into as few runs as a first fit gives; ``sizes`` is ``[3, .]``, their rows, nodes and edges."""
    if not len(positions):
        return []
    ends = np.cumsum(sizes, axis=1)
    chunks: list[Ints] = []
    start, before = 0, np.zeros(3, dtype=np.int64)
    while start < len(positions):
        stops = [np.searchsorted(end, limit, side="right") for end, limit in zip(ends, before + limits, strict=True)]
        stop = max(start + 1, int(min(stops)))
        chunks.append(positions[start:stop])
        start, before = stop, ends[:, stop - 1]
    return chunks
