"""Walks in many graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hopline.datasets.ragged import Bools, Ints, rank_in_run
from hopline.datasets.synthetic.graphs import Graphs

__all__ = ["MOST_WALKS", "Walks", "kept_places"]

MOST_WALKS: Final = 512
"""Walks of one length in a graph at most: an example with more is not made, as reading it would take too long."""


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """Some walks, those of each graph together and in order.

    Attributes:
        graph: ``[W]``, rising.
        steps: ``[W, H]``, ``2 * edge + reversed``, edges counted over all graphs; -1 beyond the length.
        length: ``[W]``.
    """

    graph: Ints
    steps: Ints
    length: Ints

    def __len__(self) -> int:
        return len(self.graph)

    @property
    def rank(self) -> Ints:
        """The place of each walk among those of its graph, ``[W]``."""
        return rank_in_run(self.graph)

    def take(self, walks: Ints) -> Walks:
        """Some walks, in the order given."""
        return Walks(self.graph[walks], self.steps[walks], self.length[walks])

    def moved(self, graphs: int, edges: int) -> Walks:
        """The same walks where there are so many graphs, and edges, before theirs."""
        return Walks(self.graph + graphs, np.where(self.steps >= 0, self.steps + 2 * edges, -1), self.length)

    def within(self, chosen: Ints, before: Graphs, after: Graphs) -> Walks:
        """The walks of some graphs, rising, where these have become graphs of their own: ``after = before.take(chosen)``."""
        place = np.full(len(before), -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        here = self.take(np.flatnonzero(place[self.graph] >= 0))
        graph = place[here.graph]
        shift = 2 * (after.edge_offsets[graph] - before.edge_offsets[here.graph])
        return Walks(graph, np.where(here.steps >= 0, here.steps + shift[:, None], -1), here.length)

    @classmethod
    def joined(cls, parts: Sequence[Walks]) -> Walks:
        """Several walks one after the other, of as many columns as the longest."""
        width = max(part.steps.shape[1] for part in parts)
        steps = np.full((sum(map(len, parts)), width), -1, dtype=np.int64)
        row = 0
        for part in parts:
            steps[row : row + len(part), : part.steps.shape[1]] = part.steps
            row += len(part)
        graph = np.concatenate([part.graph for part in parts])
        return Walks(graph, steps, np.concatenate([part.length for part in parts]))


def kept_places(graph: Ints, first: Bools) -> Ints:
    """The place within its graph that each thing gets when those marked ``first`` go before the others, in order."""
    marked = first.astype(np.int64)
    before = np.cumsum(marked) - marked
    ranks = rank_in_run(graph)
    start = np.arange(len(graph)) - ranks
    marked_before = before - before[start] if len(graph) else before
    totals = np.bincount(graph[first], minlength=int(graph[-1]) + 1 if len(graph) else 0)
    return np.where(first, marked_before, totals[graph] + ranks - marked_before)
