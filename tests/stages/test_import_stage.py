"""A checkpoint of the system before in a root, and a run that begins from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from hopline.config import TrainingConfig, resolve_config
from hopline.datasets import Dataset
from hopline.model import GraphModel, build_model
from hopline.progress import NullSink
from hopline.storage import open_object, sha256_file
from hopline.training.checkpoint import restore_checkpoint
from hopline.training.checkpoint_store import Checkpoints
from hopline.training.distributed import ALONE
from hopline.training.optimizer import build_optimizer
from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG, flip, hopline, stage, tree
from tests.training.reference_file import make_document, make_model, moments_by_name, save

KEYS = [
    "init_from",
    "checkpoint_uri",
    "checkpoint_sha256",
    "file_sha256",
    "config_uri",
    "step",
    "parameters",
    "num_relations",
    "num_entities",
    "optimizer_layout",
    "moments",
    "dropped_moments",
    "dropped_keys",
    "notes",
    "reused",
]


def run_import(path: Path, root: Path | str, *sets: str) -> dict[str, Any]:
    words = [word for one in sets for word in ("--set", one)]
    return hopline("import-checkpoint", path, "--root", root, "--json", *words).result


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return save(make_document(), tmp_path / "old.pt")


def test_a_state_under_the_digest_of_the_file(old: Path, tmp_path: Path) -> None:
    """G47, G55: the marker is written last; what training.init_from takes is printed."""
    root = tmp_path / "root"
    result = run_import(old, root)
    assert list(result) == KEYS
    digest = sha256_file(old)
    assert result["file_sha256"] == digest
    assert result["checkpoint_uri"].startswith(f"{root.as_uri()}/imports/{digest}/")
    assert result["checkpoint_uri"].endswith("/step-00000003")
    folder = Path(result["checkpoint_uri"].removeprefix("file://"))
    assert sha256_file(folder / "index.json") == result["checkpoint_sha256"]
    assert result["init_from"] == f"{result['checkpoint_uri']}@sha256:{result['checkpoint_sha256']}"
    assert (result["step"], result["num_relations"], result["num_entities"]) == (3, 5, 0)
    assert result["optimizer_layout"] == "query encoder with the rest"
    assert result["moments"] == len(list(make_model().parameters()))
    assert "pat.gate" in result["dropped_keys"]
    assert (result["dropped_moments"], result["reused"]) == ([], False)
    config = yaml.safe_load(Path(result["config_uri"].removeprefix("file://")).read_text())
    resolved = resolve_config(json.dumps(config), source="imported").config
    assert (resolved.training.learning_rate, resolved.model.pat.heads) == (0.003, 4)


def test_the_state_holds_weights_and_moments_to_the_bit(tmp_path: Path) -> None:
    """G51, G52, D39: read back the way that training reads its own states."""
    model = make_model()
    document = make_document(model)
    result = run_import(save(document, tmp_path / "old.pt"), tmp_path / "root")
    states = Checkpoints(*open_object(result["checkpoint_uri"].rpartition("/")[0]))
    fresh = make_model()
    for parameter in fresh.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = build_optimizer(fresh, TrainingConfig())
    restored = restore_checkpoint(states, fresh, optimizer, ALONE, sink=NullSink())
    assert restored is not None
    assert restored.digest == result["checkpoint_sha256"]
    assert (restored.state.step, restored.state.applied_updates, restored.state.candidates) == (3, 3, [])
    assert restored.state.scaler == document["scaler"]
    expected = moments_by_name(model, document)
    for name, parameter in fresh.named_parameters():
        assert torch.equal(parameter, document["model"][name]), name
        for key in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.equal(optimizer.state[parameter][key], expected[name][key]), (name, key)


def test_the_same_file_again_does_nothing(old: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = run_import(old, root)
    before = tree(root)
    again = run_import(old, root)
    assert again == {**first, "reused": True}
    assert tree(root) == before
    other = run_import(old, root, "training.freeze_query_encoder=true")
    assert other["checkpoint_uri"] != first["checkpoint_uri"]
    assert other["dropped_moments"]
    assert all(name.startswith("query_encoder.") for name in other["dropped_moments"])
    assert run_import(old, root) == again


def test_a_state_that_lost_a_file_is_made_again(old: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = run_import(old, root)
    next(Path(first["checkpoint_uri"].removeprefix("file://")).rglob("state.json")).unlink()
    again = run_import(old, root)
    assert again["reused"] is False
    assert run_import(old, root)["reused"] is True


def test_a_state_that_was_altered_is_an_error(old: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = run_import(old, root)
    flip(next(Path(first["checkpoint_uri"].removeprefix("file://")).rglob("state.json")))
    assert "was altered" in hopline("import-checkpoint", old, "--root", root).error


def test_a_table_for_people(old: Path, tmp_path: Path) -> None:
    done = hopline("import-checkpoint", old, "--root", tmp_path / "root")
    assert done.code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split()[0] == "init_from"
    assert any("training.batched_forward (every forward pass is batched)" in line for line in lines)


def test_a_root_that_refuses(old: Path, tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    assert "a part of this path is a file" in hopline("import-checkpoint", old, "--root", tmp_path / "root").error


@pytest.fixture
def fitting(finished: Finished, tmp_path: Path) -> tuple[Path, GraphModel]:
    """A checkpoint before whose model fits the dataset of the tests, at step 3 of its training."""
    resolved = resolve_config(CONFIG.read_text(), source="tiny")
    folder = finished.root / "datasets" / finished.results["generate"]["dataset_hash"]
    torch.manual_seed(7)
    model = build_model(resolved.config, Dataset.open(folder).vocabulary)
    document = make_document(model, config={"training": {"max_steps": 6, "learning_rate": 0.5}, "num_relations": 6})
    return save(document, tmp_path / "old.pt"), model


def with_dataset(finished: Finished, tmp_path: Path) -> Path:
    root = tmp_path / "root"
    shutil.copytree(finished.root / "datasets", root / "datasets")
    shutil.copytree(finished.root / "requests" / "generate", root / "requests" / "generate")
    return root


def test_a_run_begins_from_an_imported_state(
    finished: Finished, fitting: tuple[Path, GraphModel], tmp_path: Path
) -> None:
    """G51, G52, D38: weights, moments and step are the file's; learning rate and horizon are the new config's, and the run
    manifest names the parent."""
    path = fitting[0]
    root = with_dataset(finished, tmp_path)
    imported = run_import(path, root)
    done = stage("train", root, f"training.init_from={imported['init_from']}", "training.max_steps=8")
    result = done.result
    assert result["steps"] == 8
    run = root / "runs" / result["run_hash"]
    log = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in log if "loss" in line]
    assert steps == [4, 6, 8]
    rates = [line["learning_rate"] for line in log if "loss" in line]
    assert all(rate < 0.002 for rate in rates), "0.5 was the file's"
    parent = json.loads((run / "run.json").read_text())["run_manifest"]["parent"]
    assert (parent["uri"], parent["sha256"]) == (imported["checkpoint_uri"], imported["checkpoint_sha256"])
    fresh = stage("train", root, "training.max_steps=8").result
    assert fresh["run_hash"] != result["run_hash"]


def test_an_imported_state_that_was_altered_is_no_parent(
    finished: Finished, fitting: tuple[Path, GraphModel], tmp_path: Path
) -> None:
    root = with_dataset(finished, tmp_path)
    imported = run_import(fitting[0], root)
    flip(next(Path(imported["checkpoint_uri"].removeprefix("file://")).rglob("*.distcp")))
    done = stage("train", root, f"training.init_from={imported['init_from']}", "training.max_steps=8")
    assert done.code == 2
    assert len([line for line in done.said if line.startswith("hopline: ")]) == 1
    assert "altered" in done.stderr


@pytest.mark.s3
def test_an_import_into_a_bucket(old: Path, s3_root: str) -> None:
    first = run_import(old, s3_root)
    assert first["checkpoint_uri"].startswith(f"{s3_root}/imports/")
    assert run_import(old, s3_root) == {**first, "reused": True}
