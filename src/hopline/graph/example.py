"""One reasoning problem: a small multi-relational graph, a query about it, and what is known of the answer.

These are the readable objects, used where examples are made, imported, shown and explained. Batches for the model are
cut from flat columns (:mod:`hopline.graph.columns`) and never build them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ANSWER_MODES",
    "KINDS",
    "STATUSES",
    "STATUS_INDEX",
    "AnswerMode",
    "ExampleGraph",
    "Path",
    "Query",
    "QueryKind",
    "ReasoningExample",
    "Status",
    "make_step",
    "step_edge",
    "step_reversed",
]


class Status(StrEnum):
    """What the graph says about the query."""

    SUPPORTED = "supported"
    """The answers follow from the graph."""
    MISSING = "missing"
    """The graph lacks a fact that the answer would need."""
    CONTRADICTED = "contradicted"
    """The graph holds facts that exclude each other where the query looks."""


class AnswerMode(StrEnum):
    """What form the answer takes."""

    ENTITIES = "entities"
    """A set of nodes."""
    COUNT = "count"
    """How many nodes a chain of relations reaches."""
    AGGREGATE = "aggregate"
    """How many nodes two chains reach in common."""
    BOOLEAN = "boolean"
    """Whether the chain leads from the first anchor to the second."""
    RELATION = "relation"
    """Which relation holds between two anchors."""


class QueryKind(StrEnum):
    """The family a query was made for; metrics are reported by kind."""

    LINK = "link"
    """One relation whose own edge is not in the graph; an entity query."""
    MULTI_HOP = "multi_hop"
    """A chain of relations to follow; an entity query."""
    COUNT = "count"
    AGGREGATE = "aggregate"
    BOOLEAN = "boolean"
    RELATION = "relation"


# The order is part of the dataset format and of every checkpoint: append, never reorder.
STATUSES: Final = tuple(Status)
ANSWER_MODES: Final = tuple(AnswerMode)
KINDS: Final = tuple(QueryKind)
STATUS_INDEX: Final[Mapping[str, int]] = {status.value: index for index, status in enumerate(STATUSES)}

Path = tuple[int, ...]
"""A walk as steps; a step is ``2 * edge + reversed``, where ``edge`` is a row of the graph's edges."""


def make_step(edge: int, *, reverse: bool) -> int:
    """The step that crosses ``edge`` from source to target, or from target to source if ``reverse``."""
    return 2 * edge + int(reverse)


def step_edge(step: int) -> int:
    """The edge that a step crosses."""
    return step >> 1


def step_reversed(step: int) -> bool:
    """Whether a step crosses its edge from target to source."""
    return bool(step & 1)


@dataclass(frozen=True, slots=True, eq=False)
class ExampleGraph:
    """The graph of one example; node ``i`` is row ``i`` of every node array.

    Attributes:
        node_entities: int64 ``[N]``, the entity's index in the vocabulary, -1 where the node is anonymous.
        edge_index: int64 ``[2, E]``, rows source and target, sorted by target (stable).
        edge_type_ids: int64 ``[E]``, relation ids in ``[0, R)``.
    """

    node_entities: NDArray[np.int64]
    edge_index: NDArray[np.int64]
    edge_type_ids: NDArray[np.int64]

    @property
    def num_nodes(self) -> int:
        return len(self.node_entities)

    @property
    def num_edges(self) -> int:
        return len(self.edge_type_ids)


@dataclass(frozen=True, slots=True)
class Query:
    """A question about a graph.

    Attributes:
        anchors: node indices. Entity, count: one. Aggregate: one for each chain. Boolean, relation: from and to.
        chains: relation ids in ``[0, 2R)``, one chain for each branch; ``r + R`` follows relation ``r`` backwards. A
            relation query has none.
        answer_mode: the form of the answer.
    """

    anchors: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...]
    answer_mode: AnswerMode


@dataclass(frozen=True, slots=True, eq=False)
class ReasoningExample:
    """A query with its graph and what is known of the answer.

    Attributes:
        example_id: stable within a split; the counter of every random draw made for this example.
        answers: node indices of the answers that lie in the graph; empty where missing or contradicted. A true boolean
            has its second anchor as the answer. A relation query has none here.
        answer_entities: vocabulary ids of all answers where entities have identities, also of those outside the graph.
        known_entities: further true answers, which filtered ranking leaves out; from which splits: dataset.ranking_filter.
        answer_relation: relation id in ``[0, R)`` that answers a relation query, else None.
        supporting_paths: candidate walks that lead to an answer along the query's chain, or along rules; see
            :data:`Path`.
        competing_paths: the other candidate walks.
        pair: for a missing example, its supported twin: the same problem with the removed edges in place.
        hops: length of the longest chain; for link and relation queries of the shortest supporting path (0 if none).
    """

    example_id: int
    graph: ExampleGraph
    query: Query
    kind: QueryKind
    status: Status
    answers: tuple[int, ...] = ()
    answer_entities: tuple[int, ...] = ()
    known_entities: tuple[int, ...] = ()
    answer_relation: int | None = None
    supporting_paths: tuple[Path, ...] = ()
    competing_paths: tuple[Path, ...] = ()
    pair: ReasoningExample | None = None
    hops: int = 0
