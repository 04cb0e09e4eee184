"""Small random examples of every kind, with consistent labels; a pure function of the seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hopline.datasets.convert import columns_from_examples
from hopline.graph import (
    AnswerMode,
    ExampleGraph,
    GraphBatch,
    Path,
    Query,
    QueryKind,
    ReasoningExample,
    Status,
    collate,
    make_step,
)

RELATIONS = 4
ENTITIES = 40


def make_batch(examples: list[ReasoningExample]) -> GraphBatch:
    return collate(columns_from_examples(examples), num_relations=RELATIONS)


def make_examples(
    count: int, *, seed: int = 0, nodes: tuple[int, int] = (6, 14), degree: float = 2.0, identity: bool = False
) -> list[ReasoningExample]:
    """Examples that go through all kinds in turn; every third set query is missing and has a twin."""
    return [_example(index, np.random.default_rng([seed, index]), nodes, degree, identity) for index in range(count)]


def random_graph(rng: np.random.Generator, nodes: int, edges: int, identity: bool) -> ExampleGraph:
    edge_index = rng.integers(0, nodes, (2, edges))
    relation = rng.integers(0, RELATIONS, edges)
    return sorted_graph(_entities(rng, nodes, identity), edge_index, relation)


def sorted_graph(entities: np.ndarray, edge_index: np.ndarray, relation: np.ndarray) -> ExampleGraph:
    order = np.argsort(edge_index[1], kind="stable")
    return ExampleGraph(
        entities.astype(np.int64), edge_index[:, order].astype(np.int64), relation[order].astype(np.int64)
    )


def walks(graph: ExampleGraph, start: int, chain: tuple[int, ...]) -> list[tuple[Path, int]]:
    """Every walk from a node along a chain of relations, with its end."""
    found: list[tuple[Path, int]] = [((), start)]
    for relation in chain:
        step: list[tuple[Path, int]] = []
        for path, node in found:
            for edge in np.flatnonzero(graph.edge_type_ids == relation % RELATIONS).tolist():
                source, target = graph.edge_index[:, edge].tolist()
                if relation >= RELATIONS:
                    source, target = target, source
                if source == node:
                    step.append(((*path, make_step(edge, reverse=relation >= RELATIONS)), target))
        found = step
    return found


def _walkable_chain(rng: np.random.Generator, graph: ExampleGraph, start: int, hops: int) -> tuple[int, ...]:
    """Relations of a random walk, so that most chains lead somewhere; random ones where the walk is stuck."""
    chain: list[int] = []
    node = start
    for _ in range(hops):
        out = np.flatnonzero(graph.edge_index[0] == node)
        into = np.flatnonzero(graph.edge_index[1] == node)
        choices = [(int(graph.edge_type_ids[e]), int(graph.edge_index[1, e])) for e in out]
        choices += [(int(graph.edge_type_ids[e]) + RELATIONS, int(graph.edge_index[0, e])) for e in into]
        if not choices:
            return tuple(rng.integers(0, 2 * RELATIONS, hops).tolist())
        relation, node = choices[int(rng.integers(len(choices)))]
        chain.append(relation)
    return tuple(chain)


def _entities(rng: np.random.Generator, nodes: int, identity: bool) -> np.ndarray:
    return rng.permutation(ENTITIES)[:nodes] if identity else np.full(nodes, -1)


def _example(
    index: int, rng: np.random.Generator, nodes: tuple[int, int], degree: float, identity: bool
) -> ReasoningExample:
    kind = list(QueryKind)[index % len(QueryKind)]
    size = int(rng.integers(nodes[0], nodes[1] + 1))
    graph = random_graph(rng, size, int(size * degree), identity)
    hops = 1 if kind is QueryKind.LINK else int(rng.integers(1, 4))
    first, second = (int(node) for node in rng.permutation(size)[:2])
    starts = (first, second) if kind is QueryKind.AGGREGATE else (first,)
    chains = tuple(_walkable_chain(rng, graph, start, hops) for start in starts)
    ends = [walks(graph, anchor, chain)[:6] for anchor, chain in zip((first, second), chains, strict=False)]
    reached = [{end for _, end in found} for found in ends]
    answers = sorted(reached[0] if len(reached) == 1 else reached[0] & reached[1])
    paths = [path for found in ends for path, end in found if end in answers]
    others = [path for found in ends for path, end in found if end not in answers]
    wrong, _ = (
        walks(graph, first, tuple(rng.integers(0, 2 * RELATIONS, hops).tolist()))[:1]
        or [((make_step(0, reverse=False),), 0)]
    )[0]
    others = [path for path in [*others, wrong] if path and path not in paths]
    mode = AnswerMode.ENTITIES if kind in (QueryKind.LINK, QueryKind.MULTI_HOP) else AnswerMode(kind.value)
    anchors: tuple[int, ...] = (first,)
    relation = None
    if kind in (QueryKind.AGGREGATE, QueryKind.BOOLEAN, QueryKind.RELATION):
        anchors = (first, second)
    if kind is QueryKind.BOOLEAN:
        answers = [second] if second in answers else []
    if kind is QueryKind.RELATION:
        chains, answers, relation = (), [], int(rng.integers(0, RELATIONS))
    status = Status.SUPPORTED if answers or relation is not None else Status.CONTRADICTED
    entities = tuple(int(e) for e in graph.node_entities[answers]) if identity else ()
    known = tuple(int(e) for e in rng.permutation(ENTITIES)[:2] if int(e) not in entities) if identity else ()
    example = ReasoningExample(
        example_id=index,
        graph=graph,
        query=Query(anchors, chains, mode),
        kind=kind,
        status=status,
        answers=tuple(answers),
        answer_entities=entities,
        known_entities=known,
        answer_relation=relation,
        supporting_paths=tuple(paths),
        competing_paths=tuple(others),
        hops=hops,
    )
    if kind is QueryKind.MULTI_HOP and paths and index % 3 == 1:
        return _missing(example)
    return example


def _missing(example: ReasoningExample) -> ReasoningExample:
    """The example without any edge of its supporting paths; the whole one is its pair."""
    cut = {step >> 1 for path in example.supporting_paths for step in path}
    keep = np.array([edge for edge in range(example.graph.num_edges) if edge not in cut], dtype=np.int64)
    place = {int(edge): row for row, edge in enumerate(keep)}
    graph = replace(
        example.graph,
        edge_index=example.graph.edge_index[:, keep],
        edge_type_ids=example.graph.edge_type_ids[keep],
    )
    competing = tuple(
        tuple(make_step(place[step >> 1], reverse=bool(step & 1)) for step in path)
        for path in example.competing_paths
        if all(step >> 1 in place for step in path)
    )
    return replace(
        example,
        graph=graph,
        status=Status.MISSING,
        answers=(),
        answer_entities=(),
        supporting_paths=(),
        competing_paths=competing,
        pair=example,
    )
