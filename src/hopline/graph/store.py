"""A graph that was checked once and can then be asked about many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from hopline.errors import DataError
from hopline.graph.example import ExampleGraph

__all__ = ["GraphStore"]


@dataclass(frozen=True, slots=True, eq=False)
class GraphStore:
    """An :class:`ExampleGraph` whose shapes, indices and order of edges are known to be right."""

    graph: ExampleGraph

    @classmethod
    def from_example(cls, graph: ExampleGraph) -> Self:
        """Check a graph.

        Raises:
            DataError: arrays of unequal length, an edge to a node that does not exist, a negative relation, or edges that
                are not sorted by target.
        """
        nodes, edges = graph.num_nodes, graph.num_edges
        if graph.edge_index.shape != (2, edges):
            raise DataError(
                f"graph: edge_index has shape {graph.edge_index.shape}, expected (2, {edges}) for {edges} relations"
            )
        if edges and (int(graph.edge_index.min()) < 0 or int(graph.edge_index.max()) >= nodes):
            wrong = int(np.flatnonzero(((graph.edge_index < 0) | (graph.edge_index >= nodes)).any(0))[0])
            raise DataError(
                f"graph: edge {wrong} joins {graph.edge_index[:, wrong].tolist()}; expected nodes in [0, {nodes})"
            )
        if edges and int(graph.edge_type_ids.min()) < 0:
            wrong = int(np.flatnonzero(graph.edge_type_ids < 0)[0])
            raise DataError(f"graph: edge {wrong} has relation {graph.edge_type_ids[wrong]}; expected 0 or more")
        if np.any(np.diff(graph.edge_index[1]) < 0):
            raise DataError("graph: edges are not sorted by target; sort them, and the steps of paths with them")
        return cls(graph)
