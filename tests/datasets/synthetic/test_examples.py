"""Synthetic examples: true by the solver, of every kind and status, a function of their counter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hopline.config import DatasetConfig, KindShares
from hopline.datasets import (
    Dataset,
    Patterns,
    RuleBook,
    candidate_paths,
    check_solution,
    check_structure,
    concat_columns,
    examples_from_columns,
)
from hopline.datasets.adjacency import Adjacency
from hopline.datasets.solver import solve
from hopline.datasets.synthetic import SyntheticExamples
from hopline.datasets.world import World
from hopline.errors import DataError
from hopline.graph import ExampleColumns, QueryKind, ReasoningExample, Status


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


CONFIGS = {
    "defaults": {},
    "long": {"test_max_hops": 8, "max_nodes": 90},
    "quickstart": {"min_nodes": 12, "max_nodes": 24, "max_hops": 2, "synthetic_relations": 10},
    "narrow": {"max_paths": 3, "max_answers": 2},
    "noisy": {"noise_edges": 1.0, "synthetic_relations": 4, "max_paths": 40},
    "one hop": {"max_hops": 1, "synthetic_relations": 6},
    "tiny": {"min_nodes": 5, "max_nodes": 8, "synthetic_relations": 5},
    "large": {"min_nodes": 500, "max_nodes": 900, "synthetic_relations": 60},
}


def block(maker: SyntheticExamples, first: int, last: int, split: str = "test") -> ExampleColumns:
    return maker.block(split, np.arange(first, last), np.zeros(last - first, dtype=np.int64))


@pytest.mark.parametrize("name", CONFIGS)
def test_an_example_is_the_same_in_whatever_block_it_is_made(name: str) -> None:
    config = DatasetConfig(**CONFIGS[name])
    maker = SyntheticExamples(config, World(config.seed, config.synthetic_relations))
    count = 20 if name == "large" else 260
    whole = block(maker, 0, count)
    for size in (1, 7, 256):
        last = min(count, 4 * size) if size == 1 else count
        pieces = concat_columns([block(maker, first, min(first + size, last)) for first in range(0, last, size)])
        for column, values in pieces.values.items():
            assert values.dtype == whole.values[column].dtype
            np.testing.assert_array_equal(values, whole.values[column][: len(values)])
        for group, offsets in pieces.offsets.items():
            np.testing.assert_array_equal(offsets, whole.offsets[group][: len(offsets)])
    turned = maker.block("test", np.arange(12)[::-1].copy(), np.zeros(12, dtype=np.int64))
    ids = turned.values["example_id"][turned.values["is_twin"] == 0]
    assert ids.tolist() == list(range(11, -1, -1))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_knob_gives_true_examples_with_the_candidates_that_a_user_would_get(name: str) -> None:
    """What is found for many graphs at once is what the solver and the enumerator find for one, in the same order."""
    config = DatasetConfig(**CONFIGS[name])
    world = World(config.seed, config.synthetic_relations)
    for example in examples_from_columns(block(SyntheticExamples(config, world), 0, 20 if name == "large" else 250)):
        check_structure(example, world.num_relations)
        check_solution(example, world.rules, world.patterns)
        for row in (example, example.pair):
            if row is None:
                continue
            assert config.min_nodes <= row.graph.num_nodes <= config.max_nodes
            paths = candidate_paths(
                row.graph, row.query, rules=world.rules, num_relations=world.num_relations, max_paths=config.max_paths
            )
            supporting = set(row.supporting_paths)
            assert tuple(path for path in paths if path in supporting) == row.supporting_paths
            assert tuple(path for path in paths if path not in supporting) == row.competing_paths


def test_edges_stand_in_an_order_that_tells_nothing(examples: list[ReasoningExample]) -> None:
    for example in examples[:100]:
        (heads, tails), relations = example.graph.edge_index.tolist(), example.graph.edge_type_ids.tolist()
        facts = list(zip(tails, heads, relations, strict=True))
        assert facts == sorted(set(facts))


def test_shares_of_kinds_are_those_of_the_config() -> None:
    config = DatasetConfig(kinds=KindShares(link=2, multi_hop=1, count=0, aggregate=0, boolean=0, relation=1))
    columns = block(SyntheticExamples(config, World(0, 20)), 0, 4000, "train")
    kinds = np.bincount(columns.values["kind"][columns.values["is_twin"] == 0], minlength=6) / 4000
    assert kinds[[2, 3, 4]].tolist() == [0, 0, 0]
    assert kinds[[0, 1, 5]] == pytest.approx([0.5, 0.25, 0.25], abs=0.03)


def test_every_pattern_is_contradicted(examples: list[ReasoningExample], world: World) -> None:
    """Second values of functional relations, reversed facts, and inverses: each kind of contradiction is planted."""
    found = Counter()
    for example in examples:
        if example.status is not Status.CONTRADICTED:
            continue
        adjacency = Adjacency(example.graph, world.num_relations)
        for head, relation, tail in adjacency.edges:
            found["functional"] += relation in world.patterns.functional and len(adjacency.targets(head, relation)) > 1
            found["asymmetric"] += relation in world.patterns.asymmetric and head in adjacency.targets(tail, relation)
            partners = world.patterns.partners.get(relation, ())
            found["inverse"] += any(tail in adjacency.targets(head, other) for other in partners)
    assert min(found[name] for name in ("functional", "asymmetric", "inverse")) > 10


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
