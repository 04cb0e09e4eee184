"""Where graphs come from: whole ones, one for each split where splits share no entity; and what each split is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopline.config import DatasetConfig, ExampleCounts
from hopline.datasets import SPLITS, Dataset, build_dataset, snapshot_source
from hopline.datasets.plan import Plan, make_plan
from hopline.datasets.rulebook import invert_chain
from hopline.graph import ExampleGraph, QueryKind, ReasoningExample

FEW = ExampleCounts(train=60, valid=12, calibration=12, test=24)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file of triples: forty entities in two rings, five relations, and composition between them."""
    path = tmp_path_factory.mktemp("facts") / "facts.tsv"
    lines = []
    for number in range(40):
        a, b, c = (f"e{(number + step) % 40}" for step in (0, 1, 2))
        lines += [f"{a}\tnext\t{b}", f"{a}\tafter\t{c}", f"{c}\tbefore\t{a}", f"{b}\tnear\t{a}"]
        lines += [f"{a}\ttwin\te{number ^ 1}"]
    path.write_text("\n".join(lines))
    return path


def section(facts: Path, **keys: Any) -> DatasetConfig:
    given = {"triple_split": "triple", "min_nodes": 6, "max_nodes": 16, "examples": FEW, "workers": 1}
    return DatasetConfig(source=str(facts), **{**given, **keys})


def planned(config: DatasetConfig) -> Plan:
    return make_plan(config, snapshot_source(config, None))


def units(plan: Plan, split: str, *, links: bool = False) -> Iterator[ReasoningExample]:
    first = 0 if links else plan.links(split)
    for index in range(first, plan.links(split) if links else plan.units(split)):
        yield plan.unit(split, index, 0)[0]


def edges(graph: ExampleGraph) -> set[tuple[int, int, int]]:
    heads, tails = graph.node_entities[graph.edge_index].tolist()
    return set(zip(heads, graph.edge_type_ids.tolist(), tails, strict=True))


def test_a_whole_graph_lacks_what_is_asked_for_and_nothing_else(facts: Path, tmp_path: Path) -> None:
    config = section(facts, graph="full", max_nodes=40, entities="identity")
    index = build_dataset(config, tmp_path)
    dataset, plan = Dataset.open(tmp_path), planned(config)
    train = {tuple(triple) for triple in plan.data.triples["train"].tolist()}
    assert index.leakage.held_out_edges == 0
    assert index.validated == sum(split.rows for split in index.splits.values())
    for name in SPLITS:
        split = dataset.split(name)
        orders = set()
        for unit in range(len(split)):
            example = split.example(unit)
            if example.kind is QueryKind.LINK:
                own = {tuple(plan.data.triples[name][unit // 2].tolist())}
                assert edges(example.graph) == train - own
                assert len(example.answers) == 1
                orders.add(tuple(example.graph.node_entities.tolist()))
            else:
                supported = example.pair or example
                lacking = train - edges(supported.graph)
                assert len(lacking) <= (0 if example.kind is not QueryKind.RELATION else 2)
            assert sorted(example.graph.node_entities.tolist()) == list(range(40))
        assert len(orders) == plan.links(name), "the order of nodes is drawn for each example"


def test_a_whole_graph_may_be_anonymous(facts: Path, tmp_path: Path) -> None:
    build_dataset(section(facts, graph="full", max_nodes=40), tmp_path)
    example = Dataset.open(tmp_path).split("test").example(0)
    assert example.graph.num_nodes == 40
    assert example.graph.node_entities.max() == -1
    assert len(example.answers) == 1


def by_entity(facts: Path, **keys: Any) -> DatasetConfig:
    return section(facts, triple_split="entity", valid_share=0.3, test_share=0.3, **keys)


@pytest.mark.parametrize("graph", ["sampled", "full"])
def test_where_splits_share_no_entity_each_reasons_in_its_own_graph(facts: Path, graph: str) -> None:
    # Identities, which a config may not ask for here, show which entities the nodes are.
    config = by_entity(facts, graph=graph, max_nodes=40, max_hops=2)
    plan = planned(config)
    shown = Plan(
        config.model_copy(update={"entities": "identity"}), plan.vocabulary, plan.patterns, plan.generated, plan.data
    )
    held = {name: {tuple(t) for t in plan.data.triples[name].tolist()} for name in SPLITS}
    held["valid"] = held["calibration"] = held["valid"] | held["calibration"]
    for name in SPLITS:
        members = {entity for head, _, tail in held[name] for entity in (head, tail)}
        for index, example in enumerate(units(shown, name, links=True)):
            own = tuple(plan.data.triples[name][index // 2].tolist())
            assert edges(example.graph) <= held[name] - {own}
            assert set(example.graph.node_entities.tolist()) <= members
            if graph == "full":
                assert edges(example.graph) == held[name] - {own}
        for example in units(shown, name):
            assert set(example.graph.node_entities.tolist()) <= members


def test_a_dataset_by_entity_is_anonymous_and_passes_the_gate(facts: Path, tmp_path: Path) -> None:
    index = build_dataset(by_entity(facts, max_hops=2), tmp_path)
    assert index.imported is not None
    assert index.imported.shared_entities == 0
    assert index.leakage.duplicate_queries == 0
    assert index.vocabulary.num_entities == 0
    assert all(split.units for split in index.splits.values())


def compositions(example: ReasoningExample, relations: int) -> set[tuple[int, ...]]:
    return {min(c, invert_chain(c, relations)) for c in example.query.chains if len(c) > 1}


def test_by_signature_test_asks_for_compositions_that_training_never_saw(facts: Path) -> None:
    plan = planned(section(facts, query_split="signature"))
    found = {
        name: set().union(*(compositions(e, plan.vocabulary.num_relations) for e in units(plan, name)))
        for name in SPLITS
    }
    assert all(found.values())
    for place, name in enumerate(SPLITS):
        for other in SPLITS[:place]:
            assert not found[name] & found[other], (name, other)


def test_by_length_test_asks_for_longer_chains_than_training_saw(facts: Path) -> None:
    plan = planned(section(facts, query_split="length", max_hops=3, test_max_hops=10))
    lengths = {name: {len(chain) for example in units(plan, name) for chain in example.query.chains} for name in SPLITS}
    for name in SPLITS[:3]:
        assert lengths[name] <= {1, 2, 3}
    assert min(lengths["test"]) == 4
    assert max(lengths["test"]) >= 8


def test_each_rule_is_another_dataset_and_the_same_one_twice(facts: Path, tmp_path: Path) -> None:
    def made(folder: str, **keys: Any) -> str:
        return build_dataset(section(facts, **keys), tmp_path / folder).dataset_hash

    rules: list[dict[str, Any]] = [
        {}, {"query_split": "signature"}, {"query_split": "length", "test_max_hops": 5}, {"split_seed": 9},
        {"graph": "full", "max_nodes": 40}, {"test_share": 0.2},
    ]  # fmt: skip
    hashes = [made(f"{place}", **rule) for place, rule in enumerate(rules)]
    assert len(set(hashes)) == len(rules)
    assert made("again", **rules[1]) == hashes[1]


@pytest.mark.parametrize("name", SPLITS)
def test_units_of_a_whole_graph_depend_on_their_number_alone(facts: Path, name: str, assert_same: Callable) -> None:
    first, second = (planned(section(facts, graph="full", max_nodes=40)) for _ in range(2))
    count = first.units(name)
    for index in np.linspace(0, count - 1, 5).astype(int).tolist():
        assert_same(first.unit(name, index, 0)[0], second.unit(name, index, 0)[0])
