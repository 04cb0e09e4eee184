"""Many graphs as flat arrays, with the edges at each node side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hopline.datasets.ragged import Bools, Ints, expand, offsets_of, width_in_bits

__all__ = ["Graphs", "HalfEdges"]


@dataclass(frozen=True, eq=False)
class HalfEdges:
    """Every edge twice, at either end, in the order of (node, step).

    Attributes:
        offsets: ``[N + 1]``, those at each node.
        step: ``[2E]``, ``2 * edge + reversed``, edges counted over all graphs.
        relation: ``[2E]``, in ``[0, 2R)``.
        node: ``[2E]``, where it starts.
        other: ``[2E]``, where it leads.
    """

    offsets: Ints
    step: Ints
    relation: Ints
    node: Ints
    other: Ints

    @cached_property
    def degree(self) -> Ints:
        """How many half-edges each node has, ``[N]``."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class Graphs:
    """Some graphs, their nodes and edges counted through.

    Attributes:
        num_relations: R.
        node_offsets, edge_offsets: ``[B + 1]``.
        head, relation, tail: ``[E]``, sorted by (tail, head, relation).
    """

    num_relations: int
    node_offsets: Ints
    edge_offsets: Ints
    head: Ints
    relation: Ints
    tail: Ints

    @classmethod
    def of_facts(cls, num_relations: int, node_offsets: Ints, head: Ints, relation: Ints, tail: Ints) -> Graphs:
        """Graphs of facts in any order; nodes are counted through, and no fact is there twice."""
        nodes = int(node_offsets[-1])
        node_bits, relation_bits = width_in_bits(nodes), width_in_bits(num_relations)
        assert 2 * node_bits + relation_bits <= 63
        keys = np.sort((((tail << node_bits) | head) << relation_bits) | relation)
        tail = keys >> (node_bits + relation_bits)
        edge_offsets = np.searchsorted(tail, node_offsets)
        head = (keys >> relation_bits) & ((1 << node_bits) - 1)
        return cls(num_relations, node_offsets, edge_offsets, head, keys & ((1 << relation_bits) - 1), tail)

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def base(self) -> Ints:
        """The first node of each graph, ``[B]``."""
        return self.node_offsets[:-1]

    @cached_property
    def sizes(self) -> Ints:
        """Nodes of each graph, ``[B]``."""
        return np.diff(self.node_offsets)

    @cached_property
    def node_graph(self) -> Ints:
        """The graph of each node, ``[N]``."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def edge_graph(self) -> Ints:
        """The graph of each edge, ``[E]``."""
        return np.repeat(np.arange(len(self)), np.diff(self.edge_offsets))

    @cached_property
    def half_edges(self) -> HalfEdges:
        """The edges at each node."""
        edges = len(self.head)
        bits = width_in_bits(2 * edges)
        steps = np.arange(0, 2 * edges, 2)
        keys = np.concatenate([(self.head << bits) | steps, (self.tail << bits) | (steps + 1)])
        keys.sort()
        node, step = keys >> bits, keys & ((1 << bits) - 1)
        edge, backwards = step >> 1, step & 1
        # Self-loops do not occur, so the other end is whichever this one is not.
        other = self.head[edge] + self.tail[edge] - node
        relation = self.relation[edge] + self.num_relations * backwards
        degree = np.bincount(node, minlength=int(self.node_offsets[-1]))
        return HalfEdges(offsets_of(degree), step, relation, node, other)

    def take(self, graphs: Ints) -> Graphs:
        """Some graphs, in the order given."""
        sizes = self.sizes[graphs]
        node_offsets = offsets_of(sizes)
        counts = np.diff(self.edge_offsets)[graphs]
        owner, edges = expand(self.edge_offsets[graphs], counts)
        shift = (node_offsets[:-1] - self.node_offsets[graphs])[owner]
        return Graphs(
            self.num_relations,
            node_offsets,
            offsets_of(counts),
            self.head[edges] + shift,
            self.relation[edges],
            self.tail[edges] + shift,
        )

    def find(self, head: Ints, relation: Ints, tail: Ints) -> Ints:
        """The edge of each of some facts, which must be there."""
        node_bits, relation_bits = width_in_bits(int(self.node_offsets[-1])), width_in_bits(self.num_relations)
        keys = (((self.tail << node_bits) | self.head) << relation_bits) | self.relation
        return np.searchsorted(keys, (((tail << node_bits) | head) << relation_bits) | relation)

    def slice(self, first: int, last: int) -> Graphs:
        """Graphs ``[first, last)``."""
        if first == 0 and last == len(self):
            return self
        start, end = int(self.edge_offsets[first]), int(self.edge_offsets[last])
        base = self.node_offsets[first]
        return Graphs(
            self.num_relations,
            self.node_offsets[first : last + 1] - base,
            self.edge_offsets[first : last + 1] - start,
            self.head[start:end] - base,
            self.relation[start:end],
            self.tail[start:end] - base,
        )

    def without(self, removed: Bools) -> Graphs:
        """The graphs without some edges; ``removed`` is ``[E]``."""
        kept = np.flatnonzero(~removed)
        counts = np.bincount(self.edge_graph[kept], minlength=len(self))
        return Graphs(
            self.num_relations,
            self.node_offsets,
            offsets_of(counts),
            self.head[kept],
            self.relation[kept],
            self.tail[kept],
        )
