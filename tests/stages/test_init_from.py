"""A run that continues another one: ``training.init_from``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hopline.storage import sha256_file
from hopline.training import read_candidate
from tests.stages.workbench import stage


def state_of(root: Path) -> str:
    """The newest training state of the only run, as ``training.init_from`` names it."""
    index = sorted(root.glob("runs/*/checkpoints/step-*/index.json"))[-1]
    return f"{index.parent.as_uri()}@sha256:{sha256_file(index)}"


def candidate_of(root: Path, step: int) -> str:
    (index,) = root.glob(f"runs/*/candidates/step-{step:08d}/index.json")
    return f"{index.parent.as_uri()}@sha256:{sha256_file(index)}"


def record(root: Path, result: dict[str, Any]) -> dict[str, Any]:
    return json.loads((root / "runs" / result["run_hash"] / "run.json").read_text())


def lines(root: Path, result: dict[str, Any]) -> list[dict[str, Any]]:
    text = (root / "runs" / result["run_hash"] / "steps.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if "loss" in line]


def continued(root: Path, parent: str, *sets: str) -> dict[str, Any]:
    return stage("train", root, f"training.init_from={parent}", "training.log_every=1", *sets).result


def weights(root: Path, result: dict[str, Any], step: int) -> dict[str, torch.Tensor]:
    folder = root / "runs" / result["run_hash"] / "candidates" / f"step-{step:08d}"
    return dict(read_candidate(folder).model.state_dict())


def test_a_run_goes_on_from_the_state_of_another(root: Path) -> None:
    """G16, D38, D41: the horizon and the rate are the new config's, at the step where the parent stood; the data position
    goes on; the manifest names the parent."""
    parent = state_of(root)
    before = {path: path.read_bytes() for path in root.glob("runs/*/checkpoints/**/*") if path.is_file()}
    result = continued(root, parent, "training.max_steps=12", "training.learning_rate=1e-3")
    assert result["steps"] == 12
    assert result["run_hash"] not in parent
    log = lines(root, result)
    assert [line["step"] for line in log] == list(range(7, 13))
    straight = stage(
        "train", root, "training.max_steps=12", "training.learning_rate=1e-3", "training.log_every=1"
    ).result
    assert [line["learning_rate"] for line in log] == [line["learning_rate"] for line in lines(root, straight)[6:]]
    written = record(root, result)
    uri, _, digest = parent.rpartition("@sha256:")
    assert written["run_manifest"]["parent"] == {"kind": "state", "uri": uri, "sha256": digest}
    assert written["samples_seen"] == 12 * 16
    assert {path: path.read_bytes() for path in before} == before


def test_with_nothing_changed_but_the_end_it_is_the_longer_run(root: Path) -> None:
    """D32, D38, D39: moments and data position are taken over: with the horizon of both runs the same, the weights are those
    of one run, to the bit."""
    short = ("training.warmup_ratio=0", "training.final_learning_rate_ratio=1")
    stage("train", root, *short)
    index = max(root.glob("runs/*/checkpoints/step-00000006/index.json"), key=lambda path: path.stat().st_mtime)
    parent = f"{index.parent.as_uri()}@sha256:{sha256_file(index)}"
    longer = stage("train", root, *short, "training.max_steps=12").result
    result = continued(root, parent, *short, "training.max_steps=12")
    for name, value in weights(root, longer, 12).items():
        assert torch.equal(weights(root, result, 12)[name], value), name


def test_a_candidate_gives_its_weights_alone(root: Path) -> None:
    """The run starts at step 0 with the weights of the candidate."""
    parent = candidate_of(root, 4)
    result = continued(root, parent, "training.max_steps=1", "training.learning_rate=1e-12", "training.weight_decay=0")
    old = read_candidate(Path(parent.rpartition("@")[0].removeprefix("file://"))).model.state_dict()
    for name, value in weights(root, result, 1).items():
        torch.testing.assert_close(value, old[name], rtol=0, atol=1e-9)
    assert record(root, result)["run_manifest"]["parent"]["kind"] == "candidate"


@pytest.mark.parametrize("kind", ["state", "candidate"])
def test_freezing_and_the_link_head_are_as_the_new_config_says(root: Path, kind: str) -> None:
    """G9, G10, G52, D18, D39: a frozen encoder stays as it was; a new head is made, and one that is not wanted is left."""
    parent = state_of(root) if kind == "state" else candidate_of(root, 6)
    old = read_candidate(next(root.glob("runs/*/candidates/step-00000006"))).model.state_dict()
    sets = ("training.max_steps=9", "training.evaluation_every=3")
    result = continued(root, parent, *sets, "training.freeze_query_encoder=true", "training.link_head=mlp")
    new = weights(root, result, 9)
    moved = {name.split(".")[0] for name, value in new.items() if name in old and not torch.equal(value, old[name])}
    assert "query_encoder" not in moved
    assert "propagation" in moved
    assert {name.split(".")[0] for name in new.keys() - old.keys()} == {"link_mlp"}
    place = root / "runs" / result["run_hash"] / "checkpoints" / "step-00000009"
    again = f"{place.as_uri()}@sha256:{sha256_file(place / 'index.json')}"
    back = continued(root, again, "training.max_steps=12", "training.evaluation_every=3")
    assert weights(root, back, 12).keys() == old.keys()


def test_the_place_of_the_parent_is_no_part_of_the_run(root: Path, tmp_path: Path) -> None:
    """The digest is: the same state in another place gives the same run."""
    parent = state_of(root)
    result = continued(root, parent, "training.max_steps=8")
    uri, _, digest = parent.rpartition("@")
    place = Path(uri.removeprefix("file://"))
    other = tmp_path / "elsewhere" / place.name
    other.parent.mkdir()
    place.rename(other)
    again = continued(root, f"{other.as_uri()}@{digest}", "training.max_steps=8")
    assert again["reused"] is True
    assert again["run_hash"] == result["run_hash"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda parent: parent[:-1] + ("0" if parent[-1] != "0" else "1"), "expected"),
        (lambda parent: parent.replace("step-00000006", "step-00000099"), "step-00000099"),
        (lambda parent: parent.replace("file:///", "s4://"), "s4://"),
        (lambda parent: parent.rpartition("@")[0], "training.init_from: found"),
    ],
)
def test_a_parent_that_is_not_there_or_another_is_one_line(root: Path, change, expected: str) -> None:
    done = stage("train", root, f"training.init_from={change(state_of(root))}", "training.max_steps=12")
    assert expected in done.error


def test_a_parent_at_the_end_of_the_new_run_is_refused(root: Path) -> None:
    done = stage("train", root, f"training.init_from={state_of(root)}", "training.max_steps=6", "training.patience=9")
    assert "training.init_from: that state is at step 6, and training.max_steps is 6; raise it" in done.error


@pytest.mark.parametrize("kind", ["state", "candidate"])
def test_a_parent_of_another_architecture_is_refused(root: Path, kind: str) -> None:
    """G63."""
    parent = state_of(root) if kind == "state" else candidate_of(root, 6)
    done = stage("train", root, f"training.init_from={parent}", "training.max_steps=12", "model.hidden_dim=32")
    assert "fit" in done.error
    done = stage("train", root, f"training.init_from={parent}", "training.max_steps=12", "model.layers=3")
    assert "propagation.layers.2" in done.error


def test_what_is_neither_is_refused(root: Path) -> None:
    (dataset,) = root.glob("datasets/*")
    parent = f"{dataset.as_uri()}@sha256:{sha256_file(dataset / 'index.json')}"
    assert "is neither a candidate nor a training state" in stage("train", root, f"training.init_from={parent}").error
