"""Synthetic examples: true by the solver, of every kind and status, a function of their counter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hopline.config import DatasetConfig, KindShares
from hopline.datasets import Dataset, Patterns, RuleBook, check_solution, check_structure
from hopline.datasets.adjacency import Adjacency
from hopline.datasets.solver import solve
from hopline.datasets.synthetic import SyntheticExamples
from hopline.datasets.world import World
from hopline.errors import DataError
from hopline.graph import QueryKind, ReasoningExample, Status


@pytest.fixture(scope="module")
def examples(synthetic: Path) -> list[ReasoningExample]:
    split = Dataset.open(synthetic).split("train")
    return [split.example(unit) for unit in range(len(split))]


@pytest.fixture(scope="module")
def world(small_config: DatasetConfig) -> World:
    return World(small_config.seed, small_config.synthetic_relations)


def test_every_example_is_what_its_graph_says(examples: list[ReasoningExample], world: World) -> None:
    for example in examples:
        check_structure(example, world.num_relations)
        check_solution(example, world.rules, world.patterns)


def test_every_kind_comes_in_every_status(examples: list[ReasoningExample]) -> None:
    counts = Counter((example.kind, example.status) for example in examples)
    assert set(counts) == {(kind, status) for kind in QueryKind for status in Status}
    share = {status: sum(n for (_, s), n in counts.items() if s is status) / len(examples) for status in Status}
    assert share[Status.MISSING] == pytest.approx(0.15, abs=0.04)
    assert share[Status.CONTRADICTED] == pytest.approx(0.10, abs=0.04)


def test_sizes_are_those_of_the_config(examples: list[ReasoningExample], small_config: DatasetConfig) -> None:
    sizes = [example.graph.num_nodes for example in examples]
    assert min(sizes) >= small_config.min_nodes
    assert max(sizes) <= small_config.max_nodes
    assert len(set(sizes)) > 30
    for example in examples:
        assert len(example.answers) <= small_config.max_answers
        assert len(example.supporting_paths) + len(example.competing_paths) <= small_config.max_paths
        assert example.hops <= small_config.max_hops + 2
        assert example.graph.node_entities.max() == -1


def test_a_missing_example_lacks_a_minimal_cut_of_its_twins_evidence(
    examples: list[ReasoningExample], world: World
) -> None:
    missing = [example for example in examples if example.status is Status.MISSING]
    assert len(missing) > 50
    sizes = Counter()
    for example in missing:
        twin = example.pair
        assert twin is not None
        assert twin.status is Status.SUPPORTED
        assert (example.answers, example.supporting_paths) == ((), ())
        facts = [
            (h, r, t) for (h, t), r in zip(twin.graph.edge_index.T.tolist(), twin.graph.edge_type_ids, strict=True)
        ]
        left = Counter(
            (h, r, t)
            for (h, t), r in zip(example.graph.edge_index.T.tolist(), example.graph.edge_type_ids, strict=True)
        )
        cut = [edge for edge, fact in enumerate(facts) if not left[fact]]
        assert len(cut) == twin.graph.num_edges - example.graph.num_edges
        sizes[len(cut)] += 1
        for restored in cut if len(cut) > 1 else ():
            keep = np.array([edge for edge in range(len(facts)) if edge not in cut or edge == restored])
            graph = type(twin.graph)(
                twin.graph.node_entities, twin.graph.edge_index[:, keep], twin.graph.edge_type_ids[keep]
            )
            found = solve(
                Adjacency(graph, world.num_relations),
                twin.query,
                twin.kind,
                rules=world.rules,
                patterns=world.patterns,
            )
            assert found.status is Status.SUPPORTED
    assert sizes[1] > 20
    assert sum(n for size, n in sizes.items() if size > 1) > 5


def test_a_contradiction_shows_on_two_competing_paths(examples: list[ReasoningExample], world: World) -> None:
    contradicted = [example for example in examples if example.status is Status.CONTRADICTED]
    assert len(contradicted) > 30
    for example in contradicted:
        assert (example.answers, example.supporting_paths, example.pair) == ((), (), None)
        adjacency = Adjacency(example.graph, world.num_relations)
        conflicting = {e for e in range(example.graph.num_edges) if world.patterns.conflicts(adjacency, e)}
        crossed = {step >> 1 for path in example.competing_paths for step in path}
        assert len(conflicting & crossed) >= 2


def test_no_supported_graph_contradicts_itself_anywhere(examples: list[ReasoningExample], world: World) -> None:
    for example in examples:
        if example.status is Status.SUPPORTED:
            adjacency = Adjacency(example.graph, world.num_relations)
            assert not any(world.patterns.conflicts(adjacency, edge) for edge in range(example.graph.num_edges))


def test_the_answer_of_link_and_relation_queries_is_no_edge(examples: list[ReasoningExample]) -> None:
    relations = 20
    for example in examples:
        edges = {
            (h, int(r), t)
            for (h, t), r in zip(example.graph.edge_index.T.tolist(), example.graph.edge_type_ids, strict=True)
        }
        if example.kind is QueryKind.LINK:
            (anchor,), ((relation,),) = example.query.anchors, example.query.chains
            for answer in example.answers:
                fact = (anchor, relation, answer) if relation < relations else (answer, relation - relations, anchor)
                assert fact not in edges
        elif example.kind is QueryKind.RELATION and example.answer_relation is not None:
            a, b = example.query.anchors
            assert (a, example.answer_relation, b) not in edges


def test_nothing_is_learned_from_the_place_of_a_node(examples: list[ReasoningExample]) -> None:
    """Anchors and answers stand anywhere: their mean place in [0, 1) is one half."""
    for nodes in (
        [e.query.anchors[0] / e.graph.num_nodes for e in examples],
        [a / e.graph.num_nodes for e in examples for a in e.answers],
    ):
        assert np.mean(nodes) == pytest.approx(0.5, abs=0.05)


def test_an_example_is_a_function_of_its_counter(small_config: DatasetConfig, world: World, assert_same) -> None:
    forwards, backwards = SyntheticExamples(small_config, world), SyntheticExamples(small_config, world)
    several = [forwards.unit("valid", index, 0) for index in range(12)]
    for index in reversed(range(12)):
        assert_same(backwards.unit("valid", index, 0), several[index])
    another = forwards.unit("valid", 3, 1)
    assert another.example_id == 3
    assert another.graph.edge_index.tolist() != several[3].graph.edge_index.tolist()


def test_long_derivations_in_the_test_split() -> None:
    config = DatasetConfig(
        max_hops=3, test_max_hops=8, kinds=KindShares(link=0, multi_hop=0, count=0, aggregate=0, boolean=0, relation=1)
    )
    maker = SyntheticExamples(config, World(0, config.synthetic_relations))
    train = [maker.unit("train", index, 0) for index in range(60)]
    test = [maker.unit("test", index, 0) for index in range(60)]
    assert max(example.hops for example in train) <= 5
    assert max(example.hops for example in test) == 8
    assert {example.kind for example in test} == {QueryKind.RELATION}


def test_a_config_without_room_is_a_data_error() -> None:
    kinds = KindShares(link=0, multi_hop=0, count=1, aggregate=0, boolean=0, relation=0)
    config = DatasetConfig(min_nodes=4, max_nodes=4, min_hops=9, max_hops=9, kinds=kinds)
    with pytest.raises(DataError, match=r"no example fits dataset\.max_nodes 4, max_hops 9"):
        SyntheticExamples(config, World(0, 20)).unit("train", 0, 0)


def test_the_index_brings_rules_and_patterns_for_the_solver(synthetic: Path) -> None:
    dataset = Dataset.open(synthetic)
    example = dataset.split("test").example(0)
    check_solution(example, RuleBook.of(dataset.vocabulary), Patterns.of(dataset.index.patterns))
