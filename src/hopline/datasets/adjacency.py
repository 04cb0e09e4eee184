"""The graph of one example as neighbour lists, and walks along chains of relations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hopline.graph import ExampleGraph, Path

__all__ = ["Adjacency", "Walk"]


class Walk(NamedTuple):
    """A walk with what it passed: the relation of each step in ``[0, 2R)``, and both ends."""

    steps: Path
    relations: tuple[int, ...]
    start: int
    end: int


class Adjacency:
    """Neighbours of each node, in the order of the graph's edges.

    Attributes:
        edges: ``(head, relation, tail)`` of each edge.
    """

    __slots__ = ("_by_relation", "_out", "_width", "edges", "num_nodes", "num_relations")

    def __init__(self, graph: ExampleGraph, num_relations: int) -> None:
        self.num_nodes = graph.num_nodes
        self.num_relations = num_relations
        self._width = 2 * num_relations
        heads, tails = graph.edge_index.tolist()
        relations: list[int] = graph.edge_type_ids.tolist()
        self.edges: list[tuple[int, int, int]] = list(zip(heads, relations, tails, strict=True))
        self._out: list[list[tuple[int, int, int]]] | None = None
        # Each edge both ways: entry 2e + reversed is the step, as everywhere.
        others: list[int] = np.ascontiguousarray(graph.edge_index[::-1].T).ravel().tolist()
        keys = graph.edge_index * self._width + graph.edge_type_ids
        keys[1] += num_relations
        by_relation: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for key, entry in zip(np.ascontiguousarray(keys.T).ravel().tolist(), enumerate(others), strict=True):
            by_relation[key].append(entry)
        self._by_relation = by_relation

    @property
    def out(self) -> list[list[tuple[int, int, int]]]:
        """For each node, ``(relation, step, neighbour)`` of every edge at it, relations in ``[0, 2R)``."""
        if self._out is None:
            self._out = [[] for _ in range(self.num_nodes)]
            step = 0
            for head, relation, tail in self.edges:
                self._out[head].append((relation, step, tail))
                self._out[tail].append((relation + self.num_relations, step + 1, head))
                step += 2
        return self._out

    def at(self, node: int) -> Iterator[tuple[int, int, int]]:
        """The entries of one node in ``out``, for callers that need no more of it."""
        if self._out is not None:
            yield from self._out[node]
            return
        for edge, (head, relation, tail) in enumerate(self.edges):
            if head == node:
                yield relation, 2 * edge, tail
            if tail == node:
                yield relation + self.num_relations, 2 * edge + 1, head

    def follow(self, node: int, relation: int) -> Sequence[tuple[int, int]]:
        """``(step, neighbour)`` for each edge of a relation in ``[0, 2R)`` at a node."""
        return self._by_relation.get(node * self._width + relation, ())

    def targets(self, head: int, relation: int) -> set[int]:
        """The nodes that a relation leads to from a node."""
        return {node for _, node in self.follow(head, relation)}

    def layers(self, start: int, chain: Sequence[int]) -> list[set[int]]:
        """The nodes that each hop of a chain can reach from a node; ``layers[0]`` is the node itself."""
        layers = [{start}]
        for relation in chain:
            layers.append({node for here in layers[-1] for _, node in self.follow(here, relation)})
        return layers

    def pruned_layers(self, start: int, chain: Sequence[int], ends: set[int] | None) -> list[set[int]]:
        """As :meth:`layers`, with only the nodes from which the rest of the chain leads to one of ``ends``."""
        layers = self.layers(start, chain)
        if ends is not None:
            layers[-1] &= ends
        for hop in range(len(chain) - 1, -1, -1):
            after = layers[hop + 1]
            layers[hop] = {
                node for node in layers[hop] if any(other in after for _, other in self.follow(node, chain[hop]))
            }
        return layers

    def walks(
        self, start: int, chain: Sequence[int], ends: set[int] | None = None, *, limit: int | None = None
    ) -> list[Walk]:
        """The walks along a chain from a node (to one of ``ends``), the first ``limit`` in the order of steps."""
        relations = tuple(chain)
        if ends is None and len(relations) <= 2:
            return self._short_walks(start, relations, limit)
        layers = self.pruned_layers(start, relations, ends)
        if start not in layers[0]:
            return []
        partial: list[tuple[Path, int]] = [((), start)]
        for hop, relation in enumerate(relations):
            # Every partial walk can be completed, so the first walks come from the first partial walks.
            after = layers[hop + 1]
            partial = [
                ((*steps, step), other)
                for steps, node in partial
                for step, other in self.follow(node, relation)
                if other in after
            ][:limit]
        return [Walk(steps, relations, start, node) for steps, node in partial[:limit]]

    def _short_walks(self, start: int, relations: tuple[int, ...], limit: int | None) -> list[Walk]:
        """Walks of at most two hops, most of all that are asked for, need no look ahead."""
        if not relations:
            return [Walk((), (), start, start)]
        # Made as tuples: the constructor of a named one is a function in Python, and these are the most that are made.
        new, kind = tuple.__new__, Walk
        firsts = self.follow(start, relations[0])
        if len(relations) == 1:
            return [new(kind, ((step,), relations, start, node)) for step, node in firsts[:limit]]
        found: list[Walk] = []
        for first, middle in firsts:
            found += [
                new(kind, ((first, second), relations, start, node))
                for second, node in self.follow(middle, relations[1])
            ]
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found
