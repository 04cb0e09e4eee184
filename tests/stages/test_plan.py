"""What a config would do in a root, and why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from hopline.config import load_config
from hopline.errors import DataError
from hopline.stages import identity
from hopline.stages.plan import Plan, plan
from hopline.storage import open_store, sha256_file
from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG, STAGES, chain, flip, reused, stage, tree


def planned(root: Path | str, *sets: str) -> Plan:
    return plan(load_config(CONFIG, sets), root=str(root))


def actions(found: Plan) -> list[str]:
    return [stage.action for stage in found.stages]


def causes(found: Plan) -> dict[str, list[str]]:
    return {stage.stage: [str(cause) for cause in stage.because] for stage in found.stages}


def test_what_is_there_is_reused(finished: Finished) -> None:
    found = planned(finished.root)
    assert [stage.stage for stage in found.stages] == list(STAGES)
    assert actions(found) == ["reuse"] * 4
    results = finished.results
    assert [stage.output for stage in found.stages] == [
        results["generate"]["dataset_uri"],
        results["train"]["run_uri"],
        results["evaluate"]["report_uri"],
        results["publish"]["manifest_uri"],
    ]
    assert causes(found) == {name: [] for name in STAGES}
    assert found.stages[1].request_hash == results["train"]["run_hash"]


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (
            ["dataset.seed=2", "model.hidden_dim=8"],
            {
                "generate": ["dataset.seed: 1 -> 2"],
                "train": ["depends on generate", "model.hidden_dim: 16 -> 8"],
                "evaluate": ["depends on train"],
                "publish": ["depends on evaluate"],
            },
        ),
        (
            ["training.learning_rate=0.01", "dataset.workers=3"],
            {
                "generate": [],
                "train": ["training.learning_rate: 0.002 -> 0.01"],
                "evaluate": ["depends on train"],
                "publish": ["depends on evaluate", "dataset.workers: 1 -> 3"],
            },
        ),
        (
            ["evaluation.calibration_bins=5"],
            {
                "generate": [],
                "train": [],
                "evaluate": ["evaluation.calibration_bins: 15 -> 5"],
                "publish": ["depends on evaluate"],
            },
        ),
        (
            ["publish.gate.minimum={link.mrr: 0.1}"],
            {"generate": [], "train": [], "evaluate": [], "publish": ["publish.gate.minimum.link.mrr: not set -> 0.1"]},
        ),
        (
            ["evaluation.selection={boolean.accuracy: 1.0}"],
            {
                "generate": [],
                "train": [
                    "evaluation.selection.boolean.accuracy: not set -> 1",
                    "evaluation.selection.overall.score: 1 -> not set",
                ],
                "evaluate": ["depends on train"],
                "publish": ["depends on evaluate"],
            },
        ),
    ],
    ids=["seed", "learning-rate", "bins", "gate", "selection"],
)
def test_a_changed_key_is_named_where_it_counts(root: Path, sets: list[str], expected: dict[str, list[str]]) -> None:
    before = tree(root)
    found = planned(root, *sets)
    assert causes(found) == expected
    assert tree(root) == before, "nothing is written"
    done = chain(root, *sets)
    assert [action == "reuse" for action in actions(found)] == reused(done), "and that is what happens"
    assert actions(planned(root, *sets)) == ["reuse"] * 4


def test_an_empty_root_stays_empty(tmp_path: Path) -> None:
    found = planned(tmp_path / "root")
    assert causes(found) == {
        "generate": ["no generate output is recorded in this root"],
        "train": ["depends on generate"],
        "evaluate": ["depends on train"],
        "publish": ["depends on evaluate"],
    }
    assert not (tmp_path / "root").exists()


def test_the_nearest_record_is_compared_with(root: Path) -> None:
    for seed in (7, 8):
        stage("generate", root, f"dataset.seed={seed}", "dataset.max_nodes=11").result  # noqa: B018 - it checks the exit code
    assert causes(planned(root, "dataset.seed=9"))["generate"] == ["dataset.seed: 1 -> 9"]
    assert causes(planned(root, "dataset.seed=8", "dataset.max_nodes=10"))["generate"] == [
        "dataset.max_nodes: 11 -> 10"
    ]


def test_another_input_is_named(root: Path) -> None:
    other = stage("generate", root, "dataset.seed=2").result["dataset_hash"]
    (cause,) = planned(root, "dataset.seed=2").stages[1].because
    assert (cause.kind, cause.name, cause.now) == ("input", "dataset", other)
    stage("train", root, "training.learning_rate=0.01").result  # noqa: B018 - it checks the exit code
    (cause,) = planned(root, "training.learning_rate=0.01").stages[2].because
    assert (cause.kind, cause.name) == ("input", "run")


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("model", [[], ["code changed: model"], ["depends on train"], ["depends on evaluate"]]),
        ("report", [[], [], ["code changed: report"], ["depends on evaluate"]]),
        ("graph", [["code changed: graph"], ["depends on generate"], ["depends on train"], ["depends on evaluate"]]),
    ],
)
def test_edited_code_is_named_by_its_package(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, package: str, expected: Sequence[list[str]]
) -> None:
    before = identity._digest
    monkeypatch.setattr(identity, "_digest", lambda names: before(names)[::-1] if package in names else before(names))
    found = planned(finished.root)
    assert list(causes(found).values()) == expected
    after_all = [stage.stage for stage in found.stages if any("reused after all" in note for note in stage.notes)]
    assert after_all == {"model": [], "report": ["publish"], "graph": ["train"]}[package]


def test_a_record_that_knows_no_packages(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for record in (root / "requests").glob("*/*.json"):
        document = json.loads(record.read_text())
        del document["packages"]
        record.write_text(json.dumps(document))
    before = identity._digest
    monkeypatch.setattr(identity, "_digest", lambda names: before(names)[::-1] if "graph" in names else before(names))
    assert causes(planned(root))["generate"] == ["code changed: one of graph, datasets"]


def test_source_files_are_named(tmp_path: Path) -> None:
    source = tmp_path / "triples"
    source.mkdir()
    triples = [f"e{head}\tr{relation}\te{(3 * head + relation) % 12}\n" for head in range(12) for relation in range(5)]
    for name, start in (("test", 0), ("valid", 1), ("train", 2)):
        part = triples[start::6] if name != "train" else [t for i, t in enumerate(triples) if i % 6 > 1]
        (source / f"{name}.txt").write_text("".join(part))
    sets = (f"dataset.source={source}", "dataset.entities=identity")
    stage("generate", tmp_path / "root", *sets).result  # noqa: B018 - it checks the exit code
    before = sha256_file(source / "train.txt")
    with (source / "train.txt").open("a") as file:
        file.write("e1\tr1\tnew\n")
    found = planned(tmp_path / "root", *sets)
    (cause,) = found.stages[0].because
    assert (cause.kind, cause.name, cause.before, cause.now) == (
        "source",
        "train.txt",
        before,
        sha256_file(source / "train.txt"),
    )
    assert str(cause).startswith(f"source file train.txt changed: {before[:12]} -> ")


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ("datasets/*/train-00000.arrow", ["redo", "reuse", "reuse", "reuse"]),
        ("datasets/*/index.json", ["redo", "reuse", "reuse", "reuse"]),
        ("runs/*/candidates/step-00000004/model.safetensors", ["reuse", "redo", "reuse", "reuse"]),
        ("runs/*/candidates/step-00000004/index.json", ["reuse", "redo", "reuse", "reuse"]),
        ("runs/*/evaluations/*/report.html", ["reuse", "reuse", "redo", "reuse"]),
        ("models/*/*/manifest.json", ["reuse", "reuse", "reuse", "redo"]),
        ("models/*/*/README.md", ["reuse", "reuse", "reuse", "stop"]),
    ],
)
def test_an_output_that_is_gone(root: Path, gone: str, expected: list[str]) -> None:
    (path,) = root.glob(gone)
    path.unlink()
    found = planned(root)
    assert actions(found) == expected
    (cause,) = [cause for stage in found.stages for cause in stage.because]
    assert (cause.kind, cause.name) == ("gone", path.as_uri())


@pytest.mark.parametrize(
    "altered", ["datasets/*/index.json", "runs/*/candidates/step-00000004/index.json", "models/*/*/manifest.json"]
)
def test_an_altered_index_stops(root: Path, altered: str) -> None:
    (path,) = root.glob(altered)
    flip(path)
    found = planned(root)
    (cause,) = [cause for stage in found.stages if stage.action == "stop" for cause in stage.because]
    assert str(cause) == f"{path.as_uri()} was altered"


def test_a_run_that_was_begun_continues(root: Path) -> None:
    for record in (root / "requests/train").glob("*.json"):
        record.unlink()
    train = planned(root).stages[1]
    assert train.action == "redo"
    assert train.notes == ("the run was begun, and continues from the training state of step 6",)


def test_a_damaged_record_of_another_request_is_passed_over(root: Path) -> None:
    other = root / "requests/generate" / f"{'0' * 64}.json"
    other.write_text("{")
    assert causes(planned(root, "dataset.seed=2"))["generate"] == ["dataset.seed: 1 -> 2"]
    for record in (root / "requests/generate").glob("*.json"):
        record.write_text("{")
    with pytest.raises(DataError, match="requests/generate"):
        planned(root)


@pytest.mark.s3
def test_a_root_in_a_bucket(finished: Finished, s3_root: str) -> None:
    store = open_store(s3_root)
    for path in sorted(finished.root.rglob("*")):
        if path.is_file():
            store.put_file(path.relative_to(finished.root).as_posix(), path, sha256=sha256_file(path))
    assert actions(planned(s3_root)) == ["reuse"] * 4
    assert causes(planned(s3_root, "model.layers=3"))["train"] == ["model.layers: 2 -> 3"]


def test_a_root_that_was_moved(finished: Finished, tmp_path: Path) -> None:
    moved = shutil.copytree(finished.root, tmp_path / "moved")
    found = planned(moved)
    assert actions(found) == ["reuse"] * 4
    assert all((stage.output or "").startswith(moved.as_uri()) for stage in found.stages)
