"""Batches in few sizes, so that torch.compile makes few kernels.

A compiled step is made for tensors of given sizes. Those of a batch are hardly ever those of another; so a batch is filled
up to a class of sizes with rows that count nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Final

import torch
from torch import Tensor

from hopline.graph import ANSWER_MODES, KINDS, STATUS_INDEX, AnswerMode, GraphBatch, QueryKind

__all__ = ["PADDING_ID", "BatchSizes", "SizeClasses", "pad_batch"]

PADDING_ID: Final = -1
"""The example id of rows that only fill a batch up; those of examples are never negative."""

_GROWTH: Final = 1.25
_SLACK: Final = 1.1
_WASTE: Final = 2.0
"""A class is taken for a batch if it has at most this many times its nodes and edges."""


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """What the shapes of a step depend on; each as :class:`~hopline.graph.GraphBatch` names it."""

    graphs: int
    nodes: int
    edges: int
    anchors: int
    tokens: int
    paths: int
    steps: int
    answers: int
    answer_entities: int
    known_entities: int
    clashes: int
    longest_chain: int
    longest_path: int
    num_links: int
    num_relation_queries: int
    num_aggregates: int
    num_supporting_steps: int
    num_node_pairs: int

    @classmethod
    def of(cls, batch: GraphBatch) -> BatchSizes:
        """Those of a batch that has room for padding: one row, node, edge, path and step more than its own."""
        return cls(
            graphs=batch.num_graphs + 1,
            nodes=batch.num_nodes + 1,
            edges=batch.num_edges + 1,
            anchors=len(batch.anchor_node),
            tokens=len(batch.token_graph),
            paths=batch.num_paths + 1,
            steps=len(batch.step_path) + 1,
            answers=len(batch.answer_node),
            answer_entities=len(batch.answer_entity),
            known_entities=len(batch.known_entity),
            clashes=len(batch.clash_edge),
            longest_chain=max(batch.longest_chain, 1),
            longest_path=max(batch.longest_path, 1),
            num_links=batch.num_links,
            num_relation_queries=batch.num_relation_queries,
            num_aggregates=batch.num_aggregates,
            num_supporting_steps=batch.num_supporting_steps,
            num_node_pairs=batch.num_node_pairs,
        )

    def fits(self, other: BatchSizes) -> bool:
        """Whether every size is at least the other's."""
        return all(a >= b for a, b in zip(astuple(self), astuple(other), strict=True))


class SizeClasses:
    """The classes that were needed so far.

    A batch gets the first class that it fits into and that is not far too large. Otherwise there is a new one, a little
    larger than the batch in everything, and at least as large as the classes before it that are not far too large: so the
    classes of batches that are alike soon hold them all. Which class a batch gets depends on the batches before it, and
    changes its results by rounding alone.
    """

    def __init__(self) -> None:
        self.known: list[BatchSizes] = []

    def of(self, batch: GraphBatch) -> BatchSizes:
        """The class of a batch."""
        wanted = BatchSizes.of(batch)
        near = [sizes for sizes in self.known if _near(sizes, wanted)]
        for sizes in near:
            if sizes.fits(wanted) and _room_for_pairs(sizes, batch):
                return sizes
        # The longest chain and path are loops and tables of the model: they are not rounded.
        exact = ("longest_chain", "longest_path")
        merged = {
            name: max(value if name in exact else _rounded(value), *(getattr(sizes, name) for sizes in near), 0)
            for name, value in _items(wanted)
        }
        padding = merged["nodes"] - batch.num_nodes
        merged["num_node_pairs"] = max(merged["num_node_pairs"], _rounded(batch.num_node_pairs + padding * padding))
        made = BatchSizes(**merged)
        self.known.append(made)
        return made


def pad_batch(batch: GraphBatch, sizes: BatchSizes) -> GraphBatch:
    """The batch filled up to ``sizes`` with rows whose example id is :data:`PADDING_ID`.

    The first of them has all further nodes, edges (loops at one node), paths and steps; the others have nothing. Rows of the
    batch keep their places and see none of it.

    Args:
        batch: on any device.
        sizes: :meth:`SizeClasses.of` the batch.
    """
    G, N, E, S = batch.num_graphs, batch.num_nodes, batch.num_edges, len(batch.step_path)
    device = batch.kind.device
    loops = torch.arange(sizes.edges - E, device=device) + 2 * E

    def fill(size: int) -> Callable[[Tensor, int], Tensor]:
        return lambda tensor, value: torch.cat([tensor, tensor.new_full((size - len(tensor),), value)])

    row, node, edge, path, step = map(fill, (sizes.graphs, sizes.nodes, sizes.edges, sizes.paths, sizes.steps))
    anchor, token, message, clash = map(fill, (sizes.anchors, sizes.tokens, 2 * sizes.edges, sizes.clashes))
    answer, named, known = map(fill, (sizes.answers, sizes.answer_entities, sizes.known_entities))
    length = path(batch.path_length, 0)
    length[-1] = sizes.steps - S
    return GraphBatch(
        example_id=row(batch.example_id, PADDING_ID),
        kind=row(batch.kind, KINDS.index(QueryKind.MULTI_HOP)),
        answer_mode=row(batch.answer_mode, ANSWER_MODES.index(AnswerMode.ENTITIES)),
        status=row(batch.status, STATUS_INDEX["missing"]),
        hops=row(batch.hops, 1),
        is_twin=row(batch.is_twin, 0),
        answer_count=row(batch.answer_count, 0),
        answer_relation=row(batch.answer_relation, -1),
        node_graph=node(batch.node_graph, G),
        node_entity=node(batch.node_entity, -1),
        edge_index=torch.stack([edge(ends, N) for ends in batch.edge_index]),
        edge_type_ids=edge(batch.edge_type_ids, 0),
        edge_graph=edge(batch.edge_graph, G),
        message_source=message(batch.message_source, N),
        message_target=message(batch.message_target, N),
        message_relation=message(batch.message_relation, 0),
        edge_message=torch.cat([batch.edge_message, torch.stack([loops, loops + len(loops)])], 1),
        clash_edge=clash(batch.clash_edge, E),
        clash_cell=clash(batch.clash_cell, 0),
        anchor_node=anchor(batch.anchor_node, N),
        anchor_graph=anchor(batch.anchor_graph, G),
        anchor_slot=anchor(batch.anchor_slot, 0),
        token_relation=token(batch.token_relation, 0),
        token_graph=token(batch.token_graph, G),
        token_branch=token(batch.token_branch, 0),
        token_position=token(batch.token_position, 0),
        path_graph=path(batch.path_graph, G),
        path_label=path(batch.path_label, 0),
        path_length=length,
        step_path=step(batch.step_path, sizes.paths - 1),
        step_edge=step(batch.step_edge, E),
        step_reversed=step(batch.step_reversed, 0),
        step_position=step(batch.step_position, 0),
        answer_node=answer(batch.answer_node, N),
        answer_graph=answer(batch.answer_graph, G),
        answer_entity=named(batch.answer_entity, 0),
        answer_entity_graph=named(batch.answer_entity_graph, G),
        known_entity=known(batch.known_entity, 0),
        known_entity_graph=known(batch.known_entity_graph, G),
        longest_chain=sizes.longest_chain,
        longest_path=sizes.longest_path,
        num_links=sizes.num_links,
        num_relation_queries=sizes.num_relation_queries,
        num_aggregates=sizes.num_aggregates,
        num_supporting_steps=sizes.num_supporting_steps,
        num_node_pairs=sizes.num_node_pairs,
    )


def _items(sizes: BatchSizes) -> list[tuple[str, int]]:
    return list(zip(BatchSizes.__slots__, astuple(sizes), strict=True))


def _near(sizes: BatchSizes, wanted: BatchSizes) -> bool:
    """Whether a class is of the batch's order of magnitude."""
    return sizes.nodes <= _WASTE * wanted.nodes and sizes.edges <= _WASTE * wanted.edges


def _room_for_pairs(sizes: BatchSizes, batch: GraphBatch) -> bool:
    return sizes.num_node_pairs >= batch.num_node_pairs + (sizes.nodes - batch.num_nodes) ** 2


def _rounded(size: int) -> int:
    """The next power of the growth above a size with some slack; 0 stays 0."""
    return math.ceil(_GROWTH ** math.ceil(math.log(size * _SLACK, _GROWTH))) if size else 0
