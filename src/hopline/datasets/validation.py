"""Checks of finished examples: what has to hold for every one, and what the solver derives again from the graph."""

from __future__ import annotations

import numpy as np

from hopline.datasets.adjacency import Adjacency
from hopline.datasets.patterns import Patterns
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.solver import solve
from hopline.errors import DataError
from hopline.graph import AnswerMode, QueryKind, ReasoningExample, Status

__all__ = ["check_solution", "check_structure"]


def check_structure(example: ReasoningExample, num_relations: int) -> None:
    """Check ids, paths and twins.

    Raises:
        DataError: an index points outside the graph, a relation id is outside the vocabulary, a path is no walk from an
            anchor, an unsupported example has answers, or a twin differs by more than removed edges.
    """
    graph, query = example.graph, example.query
    where = f"example {example.example_id} ({example.kind.value})"
    if graph.num_edges:
        if graph.edge_index.min() < 0 or graph.edge_index.max() >= graph.num_nodes:
            raise DataError(f"{where}: an edge leads to a node that is not there; there are {graph.num_nodes}")
        if graph.edge_type_ids.min() < 0 or graph.edge_type_ids.max() >= num_relations:
            raise DataError(f"{where}: relation ids must be in [0, {num_relations})")
        if np.any(np.diff(graph.edge_index[1]) < 0):
            raise DataError(f"{where}: the edges are not sorted by target")
    for node in (*query.anchors, *example.answers):
        if not 0 <= node < graph.num_nodes:
            raise DataError(f"{where}: node {node} is not there; there are {graph.num_nodes}")
    if any(not chain or min(chain) < 0 or max(chain) >= 2 * num_relations for chain in query.chains):
        raise DataError(f"{where}: chains must hold relation ids in [0, {2 * num_relations})")
    heads, tails = graph.edge_index.tolist()
    for path in (*example.supporting_paths, *example.competing_paths):
        node = -1
        for step in path:
            edge = step >> 1
            if not 0 <= edge < graph.num_edges:
                raise DataError(f"{where}: a path crosses edge {edge}; there are {graph.num_edges}")
            start, end = (tails[edge], heads[edge]) if step & 1 else (heads[edge], tails[edge])
            if start not in (query.anchors if node < 0 else (node,)):
                raise DataError(f"{where}: path {path} is no walk from an anchor")
            node = end
    if example.status is not Status.SUPPORTED and (
        example.answers or example.supporting_paths or example.answer_relation is not None
    ):
        raise DataError(f"{where}: status {example.status.value} with an answer")
    if example.pair is not None:
        _check_twin(example, example.pair, where)
        check_structure(example.pair, num_relations)


def check_solution(example: ReasoningExample, rules: RuleBook, patterns: Patterns) -> None:
    """Derive status and answer from the graph again, and compare.

    Raises:
        DataError: the solver finds another status or answer.
    """
    adjacency = Adjacency(example.graph, rules.num_relations)
    verdict = solve(adjacency, example.query, example.kind, rules=rules, patterns=patterns)
    where = f"example {example.example_id} ({example.kind.value})"
    if verdict.status is not example.status:
        raise DataError(f"{where}: status {example.status.value}, but its graph says {verdict.status.value}")
    if verdict.status is Status.SUPPORTED:
        if example.query.answer_mode is AnswerMode.RELATION:
            if verdict.relation != example.answer_relation:
                raise DataError(f"{where}: relation {example.answer_relation}, but its graph says {verdict.relation}")
        elif verdict.answers != tuple(sorted(example.answers)):
            raise DataError(f"{where}: answers {example.answers}, but its graph says {verdict.answers}")
    ends = set(example.answers)
    for path in example.supporting_paths if example.kind is not QueryKind.RELATION else ():
        head, _, tail = adjacency.edges[path[-1] >> 1]
        if (head if path[-1] & 1 else tail) not in ends:
            raise DataError(f"{where}: supporting path {path} does not end in an answer")
    if example.pair is not None:
        check_solution(example.pair, rules, patterns)


def _check_twin(example: ReasoningExample, twin: ReasoningExample, where: str) -> None:
    if example.status is not Status.MISSING or twin.status is not Status.SUPPORTED or twin.pair is not None:
        raise DataError(f"{where}: only a missing example has a twin, and the twin is supported")
    if example.query != twin.query or not np.array_equal(example.graph.node_entities, twin.graph.node_entities):
        raise DataError(f"{where}: the twin asks something else, or has other nodes")
    rest = iter(_facts(twin))
    if example.graph.num_edges >= twin.graph.num_edges or not all(fact in rest for fact in _facts(example)):
        raise DataError(f"{where}: the twin differs by more than removed edges")


def _facts(example: ReasoningExample) -> list[tuple[int, int, int]]:
    heads, tails = example.graph.edge_index.tolist()
    return list(zip(heads, example.graph.edge_type_ids.tolist(), tails, strict=True))
