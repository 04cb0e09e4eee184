"""``hopline predict`` and ``hopline verify`` on a published model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.stages.conftest import Finished
from tests.stages.workbench import hopline

GRAPH = {
    "nodes": ["anna", "bob", "carl", "dora"],
    "edges": [["anna", "relation_00", "bob"], ["bob", "relation_01", "carl"], ["anna", "relation_02", "dora"]],
}


def ask(mode: str, anchors: list[str], relations: list[str]) -> dict:
    """A question about the graph."""
    return {**GRAPH, "query": {"anchors": anchors, "relations": relations, "answer_mode": mode}}


QUESTIONS = [
    ask("entities", ["anna"], ["relation_00", "relation_01"]),
    ask("count", ["anna"], ["relation_00", "relation_01"]),
    ask("boolean", ["anna", "carl"], ["relation_00", "relation_01"]),
    ask("relation", ["anna", "bob"], []),
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A file with a question of each kind."""
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return path


@pytest.fixture
def version(finished: Finished) -> str:
    """Where the published version is."""
    return finished.results["publish"]["manifest_uri"]


def test_people_get_answer_status_confidence_and_evidence(version: str, questions: Path) -> None:
    done = hopline("predict", version, "--input", questions)
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert [head.partition(":")[0] for head in heads] == ["1. entities", "2. count", "3. boolean", "4. relation"]
    assert [line.split()[0] for line in lines if line.startswith(" ")] == ["status", "confidence", "evidence"] * 4


def test_json_is_one_object_a_line(version: str, questions: Path) -> None:
    done = hopline("predict", version, "--input", questions, "--json")
    assert (done.code, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["answer_mode"] for answer in answers] == ["entities", "count", "boolean", "relation"]
    for answer in answers:
        assert answer["status"] in {"supported", "missing", "contradicted"}
        assert 0 <= answer["status_probability"] <= 1
        assert 0 <= answer["confidence"] <= 1
        assert isinstance(answer["evidence_words"], str)
        for head, relation, tail in answer["evidence"]:
            assert {head, tail} <= set(GRAPH["nodes"])
            assert relation.startswith("relation_")
    assert {one["name"] for one in answers[0]["answers"]} <= set(GRAPH["nodes"])
    assert isinstance(answers[1]["count"], int)
    assert answers[2]["answers"][0]["name"] in {"yes", "no"}
    assert answers[3]["relation"].startswith("relation_")


def test_the_same_question_gets_the_same_answer_alone_and_among_others(
    version: str, questions: Path, tmp_path: Path
) -> None:
    together = hopline("predict", version, "--input", questions, "--json").stdout.splitlines()
    alone = tmp_path / "alone.jsonl"
    alone.write_text(json.dumps(QUESTIONS[2]) + "\n")
    (answer,) = hopline("predict", version, "--input", alone, "--json").stdout.splitlines()
    first, second = json.loads(together[2]), json.loads(answer)
    assert first["answers"][0]["name"] == second["answers"][0]["name"]
    assert first["confidence"] == pytest.approx(second["confidence"], abs=1e-5)


def test_the_ranking_is_cut_where_it_is_asked(version: str, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text(json.dumps(ask("entities", ["anna"], ["relation_00"])) + "\n")
    many = json.loads(hopline("predict", version, "--input", one, "--json").stdout)
    few = json.loads(hopline("predict", version, "--input", one, "--json", "--top", "1").stdout)
    assert len(many["answers"]) > 1
    assert few["answers"] == many["answers"][:1]
    assert hopline("predict", version, "--input", one, "--top", "0").code == 2


@pytest.mark.parametrize("target", ["folder", "file", "uri of the folder", "uri"])
def test_the_model_is_named_by_its_folder_or_manifest(version: str, questions: Path, target: str) -> None:
    path = Path(version.removeprefix("file://"))
    names = {"folder": path.parent, "file": path, "uri of the folder": path.parent.as_uri(), "uri": version}
    assert hopline("predict", names[target], "--input", questions).code == 0
    assert hopline("verify", names[target]).code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", ":1: "),
        ("[]", ":1: "),
        (json.dumps(QUESTIONS[0]) + "\n" + json.dumps({**QUESTIONS[0], "nodes": ["anna"]}), ":2: "),
        (json.dumps(ask("entities", ["anna"], ["relation_0"])), "relation_0"),
        (json.dumps(ask("entities", ["nobody"], ["relation_00"])), "nobody"),
        (json.dumps(ask("poem", ["anna"], ["relation_00"])), "poem"),
        (json.dumps({**QUESTIONS[0], "edge": []}), "edge"),
    ],
)
def test_a_wrong_question_is_one_line(version: str, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(text + "\n")
    error = hopline("predict", version, "--input", path).error
    assert str(path) in error
    assert said in error


def test_what_is_not_there_is_told(version: str, questions: Path, tmp_path: Path) -> None:
    assert str(tmp_path / "none.jsonl") in hopline("predict", version, "--input", tmp_path / "none.jsonl").error
    assert str(tmp_path) in hopline("predict", version, "--input", tmp_path).error
    for command in (["predict", tmp_path / "none", "--input", questions], ["verify", tmp_path / "none"]):
        assert str(tmp_path / "none") in hopline(*command).error
    assert "manifest.json" in hopline("predict", tmp_path, "--input", questions).error
    assert str(tmp_path / "key.pub") in hopline("verify", version, "--key", tmp_path / "key.pub").error
    assert str(tmp_path / "data") in hopline("verify", version, "--dataset", tmp_path / "data").error


def test_a_file_without_a_question_is_told(version: str, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert "empty.jsonl" in hopline("predict", version, "--input", tmp_path / "empty.jsonl").error


def test_verify_shows_every_claim(version: str) -> None:
    done = hopline("verify", version)
    assert (done.code, done.stderr) == (0, "")
    status = {line[:11].strip() for line in done.stdout.splitlines()}
    assert status == {"OK", "NOT CHECKED"}
    report = hopline("verify", version, "--json").result
    assert report["ok"] is True
    assert [f"{c['status']:<11}  {c['name']}: {c['detail']}" for c in report["claims"]] == done.stdout.splitlines()


def test_verify_checks_the_dataset_that_it_is_given(finished: Finished, version: str) -> None:
    (dataset,) = (finished.root / "datasets").iterdir()
    without = hopline("verify", version, "--json").result["claims"]
    given = hopline("verify", version, "--dataset", dataset, "--deep", "--json").result["claims"]
    count = [sum(claim["status"] == "NOT CHECKED" for claim in claims) for claims in (without, given)]
    assert count[1] < count[0]
    assert not [claim for claim in given if claim["status"] == "FAIL"]


def test_verify_of_another_dataset_fails(finished: Finished, version: str, tmp_path: Path) -> None:
    (dataset,) = (finished.root / "datasets").iterdir()
    copy = Path(shutil.copytree(dataset, tmp_path / "data"))
    shard = copy / "train-00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    done = hopline("verify", version, "--dataset", copy, "--deep")
    assert done.code == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    report = hopline("verify", version, "--dataset", copy, "--deep", "--json")
    assert report.code == 1
    assert json.loads(report.stdout)["ok"] is False
