"""Examples that people bring: their splits, the vocabulary of training, and the way to shards and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.config import DatasetConfig
from hopline.datasets import SPLITS, Dataset, DatasetIndex, Vocabulary, build_dataset, read_examples, write_examples
from hopline.datasets.import_report import UnknownRelation
from hopline.datasets.rulebook import invert_chain
from hopline.errors import ConfigError, DataError

ANONYMOUS = Vocabulary(relations=("a", "b", "c"))
KIN = ("mother", "father", "sister", "brother", "son", "daughter")


def chain(*relations: str, answer: str = "relative", number: int = 0, **more: Any) -> dict[str, Any]:
    """A relation query over a chain of relations between people whose names depend on ``number``."""
    nodes = [f"p{number}-{place}" for place in range(len(relations) + 1)]
    return {
        "nodes": nodes,
        "edges": [[nodes[place], relation, nodes[place + 1]] for place, relation in enumerate(relations)],
        "query": {"anchors": [nodes[0], nodes[-1]], "relations": [], "answer_mode": "relation"},
        "answers": [answer],
        **more,
    }


def all_splits(*relations: str) -> list[dict[str, Any]]:
    return [chain(*relations, split=name) for name in ("train", "valid", "test")]


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., DatasetIndex]:
    """Build a dataset from lines; it lies in ``tmp_path / "out"``."""

    def make(*lines: dict[str, Any], **keys: Any) -> DatasetIndex:
        path = tmp_path / "examples.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        config = DatasetConfig(source=str(path), workers=1, **{"calibration_share": 0.0, **keys})
        return build_dataset(config, tmp_path / "out")

    return make


def dataset(tmp_path: Path) -> Dataset:
    return Dataset.open(tmp_path / "out")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=24), st.integers(1, 9))
def test_lines_become_shards_and_lines_again(
    make_example, assert_same, tmp_path_factory: pytest.TempPathFactory, drawn: list[int], shard_size: int
) -> None:
    """What is written from the shards is what was read into them, to the byte, for any examples and any shard size."""
    folder = tmp_path_factory.mktemp("round")
    # Every relation is one of training's, so that nothing is left out and ids stay.
    first = replace(
        make_example(0, ANONYMOUS), pair=None, answer_relation=None, supporting_paths=(), competing_paths=()
    )
    graph = replace(
        first.graph, edge_index=first.graph.edge_index[:, [0] * 3], edge_type_ids=first.graph.edge_type_ids[:3]
    )
    graph.edge_type_ids[:] = (0, 1, 2)
    examples = [replace(first, graph=graph), *(make_example(seed, ANONYMOUS) for seed in drawn)]
    splits = ["train", *(SPLITS[place % 4] for place in range(len(drawn)))]
    places = [splits[:place].count(name) for place, name in enumerate(splits)]
    examples = [
        replace(e, example_id=place, pair=None if e.pair is None else replace(e.pair, example_id=place))
        for e, place in zip(examples, places, strict=True)
    ]
    write_examples(folder / "in.jsonl", examples, ANONYMOUS, splits=splits)
    index = build_dataset(
        DatasetConfig(source=str(folder / "in.jsonl"), shard_size=shard_size, workers=1), folder / "out"
    )
    made = Dataset.open(folder / "out", expected_hash=index.dataset_hash)
    assert made.vocabulary.relations == ANONYMOUS.relations
    back = [made.split(name).example(place) for name, place in zip(splits, places, strict=True)]
    for before, after in zip(examples, back, strict=True):
        assert_same(before, after)
    write_examples(folder / "out.jsonl", back, made.vocabulary, splits=splits)
    assert (folder / "out.jsonl").read_bytes() == (folder / "in.jsonl").read_bytes()
    again = build_dataset(DatasetConfig(source=str(folder / "out.jsonl"), workers=1), folder / "again")
    assert again.dataset_hash == index.dataset_hash


def test_lines_with_a_relation_that_training_lacks_are_left_out_and_reported(build, tmp_path: Path) -> None:
    index = build(
        *all_splits("mother", "sister"),
        chain("mother", "enemy", split="test"),
        chain("mother", "sister", answer="nemesis", split="valid"),
        chain("enemy", "enemy", answer="nemesis", split="test"),
        chain("father", "aaa", split="calibration"),
        chain("father", "brother", split="train"),
    )
    assert index.vocabulary.relations == ("brother", "father", "mother", "relative", "sister")
    assert {name: split.units for name, split in index.splits.items()} == {
        "train": 2, "valid": 1, "calibration": 0, "test": 1,
    }  # fmt: skip
    assert index.imported is not None
    assert index.imported.unknown_relations == (
        UnknownRelation(relation="nemesis", split="valid", count=1, first="examples.jsonl:5"),
        UnknownRelation(relation="aaa", split="calibration", count=1, first="examples.jsonl:7"),
        UnknownRelation(relation="enemy", split="test", count=2, first="examples.jsonl:4"),
    )
    assert index.imported.unknown_items == 4
    assert index.imported.items == {"examples.jsonl": 8}
    (warning,) = index.imported.warnings()
    assert warning.startswith(
        "4 of calibration, test, valid left out: relations that training does not have: 'aaa', 'enemy'"
    )


def test_what_is_kept_reads_the_same_after_ids_have_moved(build, tmp_path: Path, assert_same) -> None:
    """Relations of left-out lines get no id, wherever they are in the alphabet, and inverses follow."""
    backwards = chain("mother", "sister", split="test")
    backwards["query"] = {
        "anchors": [backwards["nodes"][2]],
        "relations": ["sister^-1", "mother"],
        "answer_mode": "count",
    }
    backwards["answers"] = [backwards["nodes"][0]]
    lines = [
        *all_splits("mother", "sister"),
        backwards,
        chain("mother", "sister", status="missing", answers=[], split="test"),
    ]
    lines[-1]["pair"] = {"edges": [*lines[-1]["edges"], ["p0-2", "mother", "p0-0"]], "answers": ["relative"]}
    index = build(*lines, chain("aunt", "niece", split="test"))
    assert index.imported is not None
    assert index.imported.unknown_items == 1
    plain = read_examples_alone(tmp_path, lines, index.vocabulary)
    test = dataset(tmp_path).split("test")
    assert len(test) == 3
    for unit in range(3):
        assert_same(replace(plain[unit], example_id=unit, pair=None), replace(test.example(unit), pair=None))
    twin = test.example(2).pair
    assert twin is not None
    assert twin.answer_relation == index.vocabulary.relations.index("relative")
    assert twin.graph.num_edges == 3


def read_examples_alone(tmp_path: Path, lines: list[dict[str, Any]], vocabulary: Vocabulary) -> list[Any]:
    path = tmp_path / "alone.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [item.example for item in read_examples(path, vocabulary).examples if item.split == "test"]


def test_a_split_of_nothing_but_unknown_relations_says_so(build) -> None:
    with pytest.raises(DataError, match=r"no example for test whose relations training has; give some lines"):
        build(*all_splits("mother")[:2], chain("enemy", split="test"))
    with pytest.raises(DataError, match=r"no edge in any training example"):
        build(*(chain(split=name, answers=[], status="missing") for name in ("train", "valid", "test")))


def test_identities_are_not_for_examples(build) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.entities is identity, but .*examples\.jsonl holds examples"):
        build(*all_splits("mother"), entities="identity")


def unsplit(count: int = 200) -> list[dict[str, Any]]:
    """Queries over two and three of six relations, under many names."""
    return [
        chain(*(KIN[number // 6**place % 6] for place in range(2 + number % 2)), number=number)
        for number in range(count)
    ]


def split_of(tmp_path: Path, index: DatasetIndex) -> dict[str, list[tuple[int, ...]]]:
    """For each split the chains of relations between the anchors."""
    made = dataset(tmp_path)
    return {
        name: [
            tuple(made.split(name).example(unit).graph.edge_type_ids.tolist())
            for unit in range(index.splits[name].units)
        ]
        for name in SPLITS
    }


def test_lines_without_a_split_are_divided_by_what_they_ask(build, tmp_path: Path) -> None:
    lines = unsplit()
    index = build(*lines, calibration_share=0.5)
    sizes = {name: split.units for name, split in index.splits.items()}
    assert sum(sizes.values()) == 200
    assert sizes["train"] == pytest.approx(160, abs=16)
    assert min(sizes.values()) > 3
    assert build(*[{**line, "id": 7} for line in lines], calibration_share=0.5).splits["test"].units == sizes["test"]
    more = build(*lines, *lines[:50], *unsplit(260)[200:], calibration_share=0.5)
    assert all(more.splits[name].units >= size for name, size in sizes.items()), "a line stays where it was"
    salted = build(*lines, split_seed=3)
    assert split_of(tmp_path, salted) != split_of(tmp_path, build(*lines))
    half = build(*lines, valid_share=0.25, test_share=0.25)
    assert half.splits["train"].units == pytest.approx(100, abs=20)


def test_lines_divided_by_signature_ask_test_for_new_compositions(build, tmp_path: Path) -> None:
    lines = unsplit()
    found = split_of(tmp_path, build(*lines, query_split="signature", valid_share=0.2, test_share=0.2))
    asked = {name: {min(c, invert_chain(c, 7)) for c in chains} for name, chains in found.items()}
    assert all(len(asked[name]) > 2 for name in ("train", "valid", "test"))
    assert not asked["test"] & (asked["train"] | asked["valid"])
    assert not asked["valid"] & asked["train"]


def test_lines_divided_by_length_keep_the_long_ones_for_test(build, tmp_path: Path) -> None:
    found = split_of(tmp_path, build(*unsplit(), query_split="length", max_hops=2, test_max_hops=3))
    assert {len(c) for name in ("train", "valid") for c in found[name]} == {2}
    assert {len(c) for c in found["test"]} == {3}
    assert sum(map(len, found.values())) == 200
