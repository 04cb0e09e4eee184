"""The exchange format: what is written comes back, what is wrong is named with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.config import DatasetConfig
from hopline.datasets import Dataset, Rule, Vocabulary, build_dataset, read_examples, write_examples
from hopline.datasets.jsonl_paths import path_from_json, path_to_json
from hopline.errors import DataError
from hopline.graph import AnswerMode, QueryKind, ReasoningExample, Status

ANONYMOUS = Vocabulary(relations=("a", "b", "c"))
NAMED = Vocabulary(relations=("a", "b"), entities=tuple(f"e{i}" for i in range(15)), identity=True)

FAMILY: dict[str, Any] = {
    "nodes": ["Ann", "Bob", "Cid", "Dot"],
    "edges": [["Bob", "child", "Ann"], ["Bob", "parent", "Cid"], ["Ann", "parent", "Bob"], ["Ann", "likes", "Dot"]],
    "query": {"anchors": ["Ann"], "relations": ["parent", "parent"], "answer_mode": "entities"},
    "answers": ["Cid"],
}


@pytest.fixture
def write(tmp_path: Path):
    def lines(*records: Any) -> Path:
        path = tmp_path / "examples.jsonl"
        path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records), encoding="utf-8")
        return path

    return lines


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4), st.sampled_from([ANONYMOUS, NAMED]))
def test_examples_written_come_back_exactly(make_example, assert_same, tmp_path_factory, drawn, vocabulary) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "examples.jsonl"
    examples = [make_example(seed, vocabulary) for seed in drawn]
    write_examples(path, examples, vocabulary, splits=["test"] * len(examples))
    back = read_examples(path, vocabulary)
    for before, after in zip(examples, back.examples, strict=True):
        assert_same(before, after.example)
        assert (after.split, after.labelled) == ("test", True)


@pytest.mark.parametrize("name", ["train", "test"])
def test_real_examples_come_back_exactly(nations: Dataset, tmp_path: Path, assert_same, name: str) -> None:
    split = nations.split(name)
    examples = [split.example(unit) for unit in range(len(split) - 60, len(split))]
    write_examples(tmp_path / "x.jsonl", examples, nations.vocabulary)
    for before, after in zip(examples, read_examples(tmp_path / "x.jsonl", nations.vocabulary).examples, strict=True):
        assert_same(before, after.example)


def test_a_line_is_read_by_name_and_gets_its_candidate_paths(write) -> None:
    file = read_examples(write(FAMILY))
    (item,) = file.examples
    example = item.example
    assert file.vocabulary.relations == ("child", "likes", "parent")
    assert item.node_names == ("Ann", "Bob", "Cid", "Dot")
    assert (example.kind, example.status, example.answers, example.hops) == (
        QueryKind.MULTI_HOP, Status.SUPPORTED, (2,), 2,
    )  # fmt: skip
    assert example.graph.edge_index.tolist() == [[1, 0, 1, 0], [0, 1, 2, 3]]
    assert example.supporting_paths == ((2, 4),)
    assert (1, 4) in example.competing_paths
    assert item.labelled


def test_edges_of_given_paths_are_those_of_the_line(write) -> None:
    record = {**FAMILY, "supporting_paths": [[2, 1]], "competing_paths": [[0, 1]]}
    example = read_examples(write(record)).examples[0].example
    assert example.supporting_paths == ((2, 4),)
    assert example.competing_paths == ((1, 4),)


def test_a_query_without_answers_is_unlabelled_and_nothing_supports_it(write) -> None:
    record = {key: value for key, value in FAMILY.items() if key != "answers"}
    (item,) = read_examples(write(record)).examples
    assert not item.labelled
    assert item.example.supporting_paths == ()
    assert len(item.example.competing_paths) >= 2


def test_rules_of_the_vocabulary_give_the_candidates_of_a_link_query(write) -> None:
    vocabulary = Vocabulary(
        relations=("child", "likes", "parent"), rules=(Rule(relation=1, chain=(2, 2), confidence=0.5),)
    )
    query = {"anchors": ["Ann"], "relations": ["likes"], "answer_mode": "entities"}
    (item,) = read_examples(write({**FAMILY, "query": query}), vocabulary).examples
    assert item.example.kind is QueryKind.LINK
    assert item.example.supporting_paths == ((2, 4),)


@pytest.mark.parametrize("inverse", ["parent⁻¹", "parent^-1"])
def test_relations_are_followed_backwards(write, inverse: str) -> None:
    query = {"anchors": ["Cid"], "relations": [inverse, inverse], "answer_mode": "count"}
    example = read_examples(write({**FAMILY, "query": query, "answers": ["Ann"]})).examples[0].example
    assert example.query.chains == ((5, 5),)
    assert example.supporting_paths == ((5, 3),)


def test_every_answer_mode_can_be_said(write) -> None:
    modes = [
        {"query": {"anchors": ["Ann", "Cid"], "relations": ["parent", "parent"], "answer_mode": "boolean"}},
        {"query": {"anchors": ["Ann", "Dot"], "relations": ["likes"], "answer_mode": "boolean"}, "answers": []},
        {"query": {"anchors": ["Ann", "Cid"], "answer_mode": "relation"}, "answers": ["likes"]},
        {
            "query": {
                "anchors": ["Ann", "Ann"],
                "relations": [["parent", "parent"], ["child^-1", "parent"]],
                "answer_mode": "aggregate",
            }
        },
    ]
    found = [item.example for item in read_examples(write(*({**FAMILY, **mode} for mode in modes))).examples]
    assert [e.query.answer_mode for e in found] == [
        AnswerMode.BOOLEAN, AnswerMode.BOOLEAN, AnswerMode.RELATION, AnswerMode.AGGREGATE,
    ]  # fmt: skip
    assert [e.status for e in found] == [Status.SUPPORTED, Status.MISSING, Status.SUPPORTED, Status.SUPPORTED]
    assert (found[2].answer_relation, found[2].answers, found[2].hops) == (1, (), 2)
    assert len(found[3].supporting_paths) == 2


def test_a_twin_inherits_what_it_does_not_say(write) -> None:
    cut = {**FAMILY, "edges": FAMILY["edges"][:1], "answers": [], "status": "missing"}
    pair = {"edges": FAMILY["edges"], "answers": ["Cid"]}
    example = read_examples(write({**FAMILY, "answers": ["Cid"]}, {**cut, "pair": pair})).examples[1].example
    assert example.pair is not None
    assert (example.pair.status, example.pair.answers) == (Status.SUPPORTED, (2,))
    assert example.pair.query == example.query


def broken(**changes: Any) -> dict[str, Any]:
    return {**FAMILY, **changes}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{not json\n", r":2: is not JSON"),
        ("[1, 2]\n", r":2: example is \[1, 2\], expected an object"),
        (broken(statuss="supported"), r":2: unknown key 'statuss' in example; did you mean 'status'"),
        (broken(nodes=[]), r":2: nodes is empty"),
        (broken(nodes=["Ann", "Ann"]), r":2: node 'Ann' is named twice"),
        (broken(nodes=[1]), r":2: nodes is \[1\], expected a list of names"),
        (broken(edges=[["Ann", "parent"]]), r":2: edge 0 is \['Ann', 'parent'\], expected \[head, relation, tail\]"),
        (broken(edges=[["Ann", "parent", "Eve"]]), r":2: node 'Eve' is not among the nodes"),
        (
            broken(edges=[["Ann", "parent⁻¹", "Bob"]]),
            r":2: edge 0: relation 'parent⁻¹' is inverted; swap head and tail",
        ),
        (broken(answers=["Eve"]), r":2: answer 'Eve' is not among the nodes"),
        (broken(status="perhaps"), r":2: status is 'perhaps', expected one of supported, missing, contradicted"),
        (broken(split="dev"), r":2: split is 'dev', expected one of train, valid, calibration, test"),
        (broken(query={"anchors": ["Ann"]}), r":2: query is .*, expected an object with anchors"),
        (broken(query={**FAMILY["query"], "anchors": []}), r":2: a query for entities takes 1 anchors and 1 chains"),
        (broken(query={**FAMILY["query"], "relations": [[]]}), r":2: query\.relations holds an empty chain"),
        (broken(query={**FAMILY["query"], "relations": ["parnet"]}), r":2: relation 'parnet' .* did you mean 'parent'"),
        (broken(query={**FAMILY["query"], "answer_mode": "x"}), r":2: query\.answer_mode is 'x', expected one of"),
        (broken(supporting_paths=[[9]]), r":2: supporting_paths\[0\]: edge 9 is not there; there are 4"),
        (broken(supporting_paths=[[True]]), r":2: supporting_paths\[0\]: edge True is not there"),
        (broken(competing_paths=[[1]]), r":2: competing_paths\[0\]: edges \[1\] are no walk from an anchor"),
        (broken(supporting_paths=[["~1"]]), r":2: .*is no walk from an anchor"),
        (broken(status="missing"), r":2: .*status missing with an answer"),
        (broken(id=-1), r":2: id is -1, expected an integer of 0 or more"),
        (broken(pair={"edges": [], "answers": []}), r":2: .*only a missing example has a twin"),
    ],
)
def test_every_fault_is_one_line_with_file_and_line_number(write, record: Any, message: str) -> None:
    path = write(FAMILY, record)
    with pytest.raises(DataError, match=r"examples\.jsonl" + message) as caught:
        read_examples(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_examples(tmp_path: Path, write) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl: no such file"):
        read_examples(tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match=r"examples\.jsonl: no examples"):
        read_examples(write("\n"))
    with pytest.raises(DataError, match=r"examples\.jsonl: no edge in any training example"):
        read_examples(write({**FAMILY, "edges": [], "split": "test"}))


def test_a_relation_of_the_test_split_alone_is_an_error(write) -> None:
    other = {**FAMILY, "split": "test", "edges": [["Ann", "hates", "Bob"]]}
    with pytest.raises(DataError, match=r":2: relation 'hates' is not one of the 3 known relations"):
        read_examples(write({**FAMILY, "split": "train"}, other))


def test_steps_are_marked_only_where_the_walk_does_not_say() -> None:
    edges = [(0, 0, 1), (1, 0, 0), (1, 0, 1), (2, 0, 0)]
    assert path_to_json((1, 2), edges, (1,)) == [0, 1] or path_to_json((1, 2), edges, (1,)) == ["~0", 1]
    for path, anchors in (((0, 2), (0,)), ((1,), (1,)), ((5,), (1,)), ((6,), (0, 2)), ((7,), (0, 2)), ((3, 5), (0,))):
        assert path_from_json(path_to_json(path, edges, anchors), edges, anchors) == path
    assert path_to_json((0,), edges, (0,)) == [0]
    assert path_to_json((5,), edges, (1,)) == ["~2"]


@pytest.fixture
def relation_queries(write) -> Path:
    """Forty chains of kinship, in the manner of CLUTRR."""
    records = []
    for number in range(40):
        second = ["sister", "brother"][number % 2]
        answer = ["aunt", "uncle"][number % 2]
        record: dict[str, Any] = {
            "nodes": ["x", "y", "z", f"w{number}"],
            "edges": [["x", "mother", "y"], ["y", second, "z"], ["z", "likes", f"w{number}"]],
            "query": {"anchors": ["x", "z"], "relations": [], "answer_mode": "relation"},
            "answers": [answer],
        }
        if number < 4:
            record["split"] = ["train", "valid", "valid", "test"][number]
        records.append(record)
    return write(*records)


def test_a_file_of_relation_queries_becomes_a_dataset(relation_queries: Path, tmp_path: Path) -> None:
    config = DatasetConfig(source=str(relation_queries), workers=2, calibration_share=0.5)
    index = build_dataset(config, tmp_path / "out")
    dataset = Dataset.open(tmp_path / "out", expected_hash=index.dataset_hash)
    assert sum(split.units for split in index.splits.values()) == 40
    assert dataset.vocabulary.relations == ("aunt", "brother", "likes", "mother", "sister", "uncle")
    assert index.source.files[0].path == "examples.jsonl"
    example = dataset.split("train").example(0)
    assert dataset.vocabulary.relation_name(example.answer_relation or 0) == "aunt"
    assert (example.supporting_paths, example.hops, example.example_id) == (((0, 2),), 2, 0)
    assert index.leakage.duplicate_queries > 0, "the same problem under other names is found again"


def test_lines_that_cannot_be_trained_on_are_named(write, tmp_path: Path) -> None:
    def build(*records: Any) -> None:
        build_dataset(DatasetConfig(source=str(write(*records)), workers=1), tmp_path / "out")

    unlabelled = {key: value for key, value in FAMILY.items() if key != "answers"}
    with pytest.raises(DataError, match=r"examples\.jsonl:2: neither answers nor status"):
        build(FAMILY, unlabelled)
    with pytest.raises(DataError, match=r'examples\.jsonl: no example for valid; give some lines "split": "valid"'):
        build({**FAMILY, "split": "train"}, {**FAMILY, "split": "test"})


def test_a_file_is_written_line_by_line(tmp_path: Path, make_example) -> None:
    examples: list[ReasoningExample] = [make_example(seed, ANONYMOUS) for seed in range(5)]
    write_examples(tmp_path / "x.jsonl", examples, ANONYMOUS)
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    assert len(lines) == 5
    assert all("split" not in json.loads(line) for line in lines)
