"""Link queries and generated queries from triples: a cut of Nations."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from hopline.config import DatasetConfig, ExampleCounts, KindShares
from hopline.datasets import SPLITS, Dataset, Patterns, RuleBook, build_dataset, snapshot_source
from hopline.datasets.plan import Plan, make_plan
from hopline.datasets.validation import check_solution, check_structure
from hopline.errors import ConfigError, DataError
from hopline.graph import KINDS, QueryKind, ReasoningExample, Status


@pytest.fixture(scope="module")
def plan(nations: Dataset) -> Plan:
    config = DatasetConfig.model_validate({**nations.index.config})
    return make_plan(config, snapshot_source(config, None))


@pytest.fixture(scope="module")
def inverse(nations: Dataset) -> int:
    """What is added to a relation to read it backwards."""
    return nations.vocabulary.num_relations


def facts_of(example: ReasoningExample) -> set[tuple[int, int, int]]:
    entities = example.graph.node_entities
    heads, tails = entities[example.graph.edge_index]
    return set(zip(heads.tolist(), example.graph.edge_type_ids.tolist(), tails.tolist(), strict=True))


def asked(example: ReasoningExample) -> tuple[int, int]:
    return int(example.graph.node_entities[example.query.anchors[0]]), example.query.chains[0][0]


def test_every_triple_is_a_link_query_in_both_directions(nations: Dataset, plan: Plan, inverse: int) -> None:
    for name in SPLITS:
        split = nations.split(name)
        triples = plan.data.triples[name]
        assert (split.kinds == 0).sum() == 2 * len(triples)
        for unit in range(0, min(2 * len(triples), 300)):
            example = split.example(unit)
            head, relation, tail = triples[unit // 2].tolist()
            expected = ((head, relation), tail) if unit % 2 == 0 else ((tail, relation + inverse), head)
            assert (asked(example), example.answer_entities) == (expected[0], (expected[1],))
            assert (example.kind, example.status) == (QueryKind.LINK, Status.SUPPORTED)
            inside = np.flatnonzero(example.graph.node_entities == expected[1])
            assert example.answers == tuple(inside.tolist())


@pytest.mark.parametrize("ranking_filter", ["all", "earlier"])
def test_known_entities_are_the_other_truths_of_the_splits_that_ranking_leaves_out(
    plan: Plan, inverse: int, ranking_filter: str
) -> None:
    held_out = SPLITS if ranking_filter == "all" else SPLITS[:3]
    seen = {"train": ("train",), "valid": held_out, "calibration": held_out, "test": SPLITS}
    config = plan.config.model_copy(update={"ranking_filter": ranking_filter})
    filtered = make_plan(config, snapshot_source(config, None))
    for name in SPLITS:
        targets = defaultdict(set)
        for source in seen[name]:
            for head, relation, tail in plan.data.triples[source].tolist():
                targets[head, relation].add(tail)
                targets[tail, relation + inverse].add(head)
        for unit in range(0, 2 * len(plan.data.triples[name]), 3):
            example, _ = filtered.unit(name, unit, 0)
            expected = targets[asked(example)] - set(example.answer_entities)
            assert example.known_entities == tuple(sorted(expected))


def test_graphs_hold_training_triples_only_and_never_their_own(nations: Dataset, plan: Plan) -> None:
    train = {tuple(triple) for triple in plan.data.triples["train"].tolist()}
    for name in SPLITS:
        split = nations.split(name)
        for unit in range(0, len(split), 3):
            example = split.example(unit)
            facts = facts_of(example)
            if example.status is not Status.CONTRADICTED:
                assert facts <= train
            else:
                assert len(facts - train) == 1
                (planted,) = facts - train
                assert not any((np.array(planted) == plan.data.triples[s]).all(axis=1).any() for s in SPLITS)
            if example.kind is QueryKind.LINK and name == "train":
                assert tuple(plan.data.triples["train"][unit // 2].tolist()) not in facts
    assert nations.index.leakage.held_out_edges == 0


def test_the_graph_of_a_held_out_query_does_not_know_the_answer(nations: Dataset, plan: Plan, assert_same) -> None:
    """Swap every held-out answer for another entity: graphs and candidate paths stay as they are, bit by bit."""
    data = plan.data
    swapped = {}
    for name, triples in data.triples.items():
        other = triples.copy()
        if name != "train":
            other[:, 2] = (other[:, 2] + 5) % data.num_entities
        swapped[name] = other
    fake = Plan(
        plan.config,
        plan.vocabulary,
        plan.patterns,
        plan.generated,
        type(data)(data.relations, data.entities, swapped, {}, 0),
    )
    differ = 0
    for name in ("valid", "calibration", "test"):
        for index in range(0, min(120, plan.links(name)), 2):
            (true, _), (false, _) = plan.unit(name, index, 0), fake.unit(name, index, 0)
            for array in ("node_entities", "edge_index", "edge_type_ids"):
                np.testing.assert_array_equal(getattr(true.graph, array), getattr(false.graph, array))
            assert true.query == false.query
            paths = [sorted((*e.supporting_paths, *e.competing_paths)) for e in (true, false)]
            assert paths[0] == paths[1]
            differ += true.answer_entities != false.answer_entities
    assert differ > 50


def test_generated_examples_are_what_their_graphs_say(nations: Dataset) -> None:
    rules, patterns = RuleBook.of(nations.vocabulary), Patterns.of(nations.index.patterns)
    statuses = Counter()
    for name in SPLITS:
        split = nations.split(name)
        for unit in np.flatnonzero(split.kinds != 0).tolist():
            example = split.example(unit)
            check_structure(example, nations.vocabulary.num_relations)
            check_solution(example, rules, patterns)
            statuses[example.status] += 1
            assert example.answer_entities == tuple(example.graph.node_entities[list(example.answers)].tolist())
    assert set(statuses) == set(Status)


def test_generated_kinds_follow_the_shares(nations: Dataset) -> None:
    kinds = nations.split("train").kinds
    counts = Counter(KINDS[kind] for kind in kinds[kinds != 0].tolist())
    assert sum(counts.values()) == 300
    assert counts[QueryKind.MULTI_HOP] == max(counts.values())
    assert set(counts) == set(QueryKind) - {QueryKind.LINK}


def test_an_entity_query_of_one_hop_is_always_a_link(nations: Dataset) -> None:
    split = nations.split("train")
    for unit in np.flatnonzero(split.kinds == list(KINDS).index(QueryKind.MULTI_HOP)).tolist():
        assert len(split.example(unit).query.chains[0]) > 1


def test_no_generated_query_is_in_two_splits(nations: Dataset) -> None:
    asked_in: dict[tuple, set[str]] = defaultdict(set)
    for name in SPLITS:
        split = nations.split(name)
        for unit in np.flatnonzero(split.kinds != 0).tolist():
            example = split.example(unit)
            anchors = tuple(example.graph.node_entities[list(example.query.anchors)].tolist())
            if example.kind is QueryKind.RELATION:
                asked_in["pair", anchors].add(name)
            elif example.kind is QueryKind.AGGREGATE:
                asked_in["meeting", tuple(sorted(zip(anchors, example.query.chains, strict=True)))].add(name)
            else:
                asked_in["chain", anchors[0], example.query.chains].add(name)
    assert all(len(names) == 1 for names in asked_in.values())
    assert nations.index.leakage.duplicate_queries == 0


def test_the_edge_that_answers_a_relation_query_is_not_in_the_graph(nations: Dataset, plan: Plan) -> None:
    train = {tuple(triple) for triple in plan.data.triples["train"].tolist()}
    split = nations.split("train")
    units = np.flatnonzero(split.kinds == list(KINDS).index(QueryKind.RELATION)).tolist()
    assert units
    for unit in units:
        example = split.example(unit)
        example = example.pair or example
        a, b = example.query.anchors
        start, end = (int(example.graph.node_entities[node]) for node in (a, b))
        between = {(h, t) for h, t in example.graph.edge_index.T.tolist()} & {(a, b), (b, a)}
        if example.status is Status.SUPPORTED:
            assert (start, example.answer_relation, end) in train
            assert not between


def test_anonymous_examples_hold_their_answer_and_no_identity(nations: Dataset, tmp_path) -> None:
    config = DatasetConfig(
        source=nations.index.source.uri, workers=1, min_nodes=5, max_nodes=8,
        examples=ExampleCounts(train=40, valid=5, calibration=5, test=5),
    )  # fmt: skip
    build_dataset(config, tmp_path)
    dataset = Dataset.open(tmp_path)
    assert dataset.vocabulary.num_entities == 0
    split = dataset.split("test")
    for unit in range(len(split)):
        example = split.example(unit)
        assert example.graph.node_entities.max() == -1
        assert (example.answer_entities, example.known_entities) == ((), ())
        if example.kind is QueryKind.LINK:
            assert len(example.answers) == 1
    columns = split.columns(np.arange(len(split)))
    assert set(columns.values["answer_count"][columns.values["kind"] == 0].tolist()) == {1}


def test_kinds_that_are_not_wanted_are_not_made(tmp_path, write_triples) -> None:
    only_links = KindShares(multi_hop=0, count=0, aggregate=0, boolean=0, relation=0)
    folder = write_triples()
    config = DatasetConfig(source=str(folder), workers=1, kinds=only_links, calibration_share=0.0)
    index = build_dataset(config, tmp_path / "out")
    assert {name: split.units for name, split in index.splits.items()} == {
        "train": 12, "valid": 4, "calibration": 0, "test": 2,
    }  # fmt: skip
    nothing = config.model_copy(update={"link_queries": "none"})
    with pytest.raises(ConfigError, match=r"link_queries is none and dataset\.kinds asks for nothing else"):
        build_dataset(nothing, tmp_path / "nothing")


def test_a_source_too_small_for_more_queries_says_so(tmp_path, write_triples) -> None:
    folder = write_triples(train="a r b\n", valid="b r a\n", test="b r b\n")
    config = DatasetConfig(
        source=str(folder), workers=1, min_hops=9, max_hops=9, calibration_share=0.0,
        kinds=KindShares(multi_hop=0, count=0, aggregate=0, boolean=0, relation=1),
    )  # fmt: skip
    with pytest.raises(DataError, match=r"after 2000 attempts no query for train fits the training triples"):
        build_dataset(config, tmp_path / "out")


def test_an_entity_that_training_never_saw_still_gets_its_query(tmp_path, write_triples) -> None:
    folder = write_triples(test="stranger likes a\n")
    only_links = KindShares(multi_hop=0, count=0, aggregate=0, boolean=0, relation=0)
    config = DatasetConfig(source=str(folder), workers=1, entities="identity", kinds=only_links, calibration_share=0.0)
    index = build_dataset(config, tmp_path / "out")
    assert index.leakage.unseen_entities == 1
    example = Dataset.open(tmp_path / "out").split("test").example(0)
    assert example.graph.num_nodes == 5
    assert index.vocabulary.entities[example.graph.node_entities[example.query.anchors[0]]] == "stranger"
