"""Fixtures of the datasets room: a hand-made graph, arbitrary well-formed examples, and small built datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from hopline.config import DatasetConfig, ExampleCounts
from hopline.datasets import Dataset, Vocabulary, build_dataset, snapshot_source
from hopline.graph import (
    AnswerMode,
    ExampleGraph,
    Query,
    QueryKind,
    ReasoningExample,
    Status,
)

GraphMaker = Callable[..., ExampleGraph]
ExampleMaker = Callable[[int, Vocabulary], ReasoningExample]

MODES = {
    QueryKind.LINK: AnswerMode.ENTITIES,
    QueryKind.MULTI_HOP: AnswerMode.ENTITIES,
    QueryKind.COUNT: AnswerMode.COUNT,
    QueryKind.AGGREGATE: AnswerMode.AGGREGATE,
    QueryKind.BOOLEAN: AnswerMode.BOOLEAN,
    QueryKind.RELATION: AnswerMode.RELATION,
}


def _graph(nodes: int, facts: Iterable[tuple[int, int, int]], entities: Sequence[int] | None = None) -> ExampleGraph:
    edges = np.array(list(facts), dtype=np.int64).reshape(-1, 3)
    edges = edges[np.argsort(edges[:, 2], kind="stable")]
    return ExampleGraph(
        np.full(nodes, -1) if entities is None else np.array(entities, dtype=np.int64),
        np.ascontiguousarray(edges[:, [0, 2]].T),
        edges[:, 1].copy(),
    )


@pytest.fixture(scope="session")
def make_graph() -> GraphMaker:
    """``make_graph(nodes, facts, entities)``: a graph of facts ``(head, relation, tail)``, sorted as it must be."""
    return _graph


def _example(seed: int, vocabulary: Vocabulary) -> ReasoningExample:
    rng = np.random.default_rng(seed)
    relations = vocabulary.num_relations
    size = int(rng.integers(2, 9))
    entities = rng.permutation(vocabulary.num_entities)[:size].tolist() if vocabulary.identity else None
    facts = sorted({tuple(map(int, row)) for row in rng.integers(0, [size, relations, size], (rng.integers(0, 14), 3))})
    graph = _graph(size, facts, entities)
    kind = list(QueryKind)[int(rng.integers(6))]
    branches = {QueryKind.AGGREGATE: 2, QueryKind.RELATION: 0}.get(kind, 1)
    longest = 1 if kind is QueryKind.LINK else 3
    query = Query(
        anchors=tuple(
            rng.integers(0, size, max(branches, 1 + (kind in (QueryKind.BOOLEAN, QueryKind.RELATION)))).tolist()
        ),
        chains=tuple(
            tuple(rng.integers(0, 2 * relations, rng.integers(1, longest + 1)).tolist()) for _ in range(branches)
        ),
        answer_mode=MODES[kind],
    )
    status = list(Status)[int(rng.integers(3))]
    supported = status is Status.SUPPORTED
    answers: list[int] = []
    relation = None
    if supported and kind is QueryKind.RELATION:
        relation = int(rng.integers(relations))
    elif supported:
        answers = sorted(rng.permutation(size)[: rng.integers(1, size + 1)].tolist())
    inside = [entities[answer] for answer in answers] if entities is not None else []
    outside = [e for e in range(vocabulary.num_entities) if entities is not None and e not in entities]
    paths = list(dict.fromkeys(path for _ in range(6) if (path := _walk(rng, graph, query.anchors))))
    supporting = tuple(paths[: len(paths) // 2]) if supported else ()
    example = ReasoningExample(
        example_id=int(rng.integers(0, 1 << 40)),
        graph=graph,
        query=query,
        kind=kind,
        status=status,
        answers=tuple(answers),
        answer_entities=tuple(inside + (outside[:1] if answers else [])),
        known_entities=tuple(outside[1:3]),
        answer_relation=relation,
        supporting_paths=supporting,
        competing_paths=tuple(paths[len(supporting) :]),
        hops=int(rng.integers(0, 10)),
    )
    if status is Status.MISSING and graph.num_nodes > 1:
        twin_facts = [
            (int(h), int(r), int(t)) for (h, t), r in zip(graph.edge_index.T, graph.edge_type_ids, strict=True)
        ]
        twin_graph = _graph(size, [*twin_facts, (0, 0, 1)], entities)
        twin = ReasoningExample(
            example_id=example.example_id,
            graph=twin_graph,
            query=query,
            kind=kind,
            status=Status.SUPPORTED,
            known_entities=example.known_entities,
            hops=1,
        )
        example = ReasoningExample(
            **{name: getattr(example, name) for name in example.__slots__ if name != "pair"}, pair=twin
        )
    return example


def _walk(rng: np.random.Generator, graph: ExampleGraph, anchors: Sequence[int]) -> tuple[int, ...]:
    node = int(rng.choice(np.array(anchors)))
    steps: list[int] = []
    for _ in range(int(rng.integers(1, 4))):
        heads, tails = graph.edge_index
        here = np.flatnonzero((heads == node) | (tails == node))
        if not len(here):
            break
        edge = int(rng.choice(here))
        backwards = int(heads[edge]) != node or (heads[edge] == tails[edge] and bool(rng.integers(2)))
        steps.append(2 * edge + int(backwards))
        node = int(heads[edge] if backwards else tails[edge])
    return tuple(steps)


@pytest.fixture(scope="session")
def make_example() -> ExampleMaker:
    """``make_example(seed, vocabulary)``: an arbitrary example, well formed but not true."""
    return _example


@pytest.fixture(scope="session")
def assert_same() -> Callable[[ReasoningExample, ReasoningExample], None]:
    """Compare two examples field by field, twins too."""

    def same(a: ReasoningExample, b: ReasoningExample) -> None:
        for name in ("node_entities", "edge_index", "edge_type_ids"):
            left, right = getattr(a.graph, name), getattr(b.graph, name)
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        for name in a.__slots__:
            if name not in ("graph", "pair"):
                assert getattr(a, name) == getattr(b, name), name
        assert (a.pair is None) == (b.pair is None)
        if a.pair is not None and b.pair is not None:
            same(a.pair, b.pair)

    return same


@pytest.fixture(scope="session")
def small_config() -> DatasetConfig:
    """A synthetic set of some hundred examples."""
    return DatasetConfig(workers=1, examples=ExampleCounts(train=700, valid=60, calibration=40, test=80))


@pytest.fixture(scope="session")
def synthetic(small_config: DatasetConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small synthetic dataset; not to be changed."""
    folder = tmp_path_factory.mktemp("synthetic")
    build_dataset(small_config, folder)
    return folder


@pytest.fixture(scope="session")
def nations(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The first triples of Nations with identities, some generated examples beside every link query."""
    source = snapshot_source(DatasetConfig(source="pykeen://nations"), None).folder
    assert source is not None
    triples = tmp_path_factory.mktemp("triples")
    known: set[str] = set()
    for name, most in (("train", 420), ("valid", 60), ("test", 60)):
        lines = (source / f"{name}.txt").read_text().splitlines()
        # Every third line, so that the cut holds many relations.
        lines = [line for line in lines[::3] if name == "train" or line.split("\t")[1] in known][:most]
        known.update(line.split("\t")[1] for line in lines)
        (triples / f"{name}.txt").write_text("\n".join(lines))
    config = DatasetConfig(
        source=triples.as_uri(),
        workers=1,
        entities="identity",
        min_nodes=6,
        max_nodes=14,
        examples=ExampleCounts(train=300, valid=40, calibration=40, test=60),
    )
    folder = tmp_path_factory.mktemp("nations")
    build_dataset(config, folder)
    return Dataset.open(folder)


@pytest.fixture
def write_triples(tmp_path: Path) -> Callable[..., Path]:
    """``write_triples(train=..., valid=..., test=...)``: a folder of triples, blanks in a line made tabs."""

    def write(**splits: str | None) -> Path:
        given: dict[str, str | None] = {
            "train": "a likes b\nb likes c\nc knows a\na knows c\nd likes a\nb knows d\n",
            "valid": "c likes d\nd knows b\n",
            "test": "d likes c\n",
        }
        given |= splits
        for name, text in given.items():
            if text is not None:
                (tmp_path / f"{name}.txt").write_text(text.replace(" ", "\t"), encoding="utf-8")
        return tmp_path

    return write
