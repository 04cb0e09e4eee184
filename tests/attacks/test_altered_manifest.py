"""Somebody edits what a published model says of itself, as carefully as the format allows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from hopline.config import GateConfig
from hopline.lineage import Manifest, Measured, describe_files, move_champion
from hopline.lineage.signing import make_envelope
from hopline.storage import open_store, sha256_bytes
from tests.attacks.conftest import Scene
from tests.stages.workbench import hopline


def better_metric(document: dict[str, Any]) -> None:
    document["evaluation"]["metrics"]["link.mrr"]["value"] = 0.99


def another_dataset(document: dict[str, Any]) -> None:
    document["dataset"]["dataset_hash"] = document["training"]["run_manifest"]["dataset_hash"] = "0" * 64


def another_commit(document: dict[str, Any]) -> None:
    document["code"].update(git_commit="0" * 40)
    del document["code"]["reasons"]["git_commit"]


def another_row_in_full(document: dict[str, Any]) -> None:
    row = document["evaluation"]["candidates"][0]
    row["score"] = row["metrics"]["link.mrr"] = 0.99


def a_longer_story(document: dict[str, Any]) -> None:
    document["dataset"]["reasons"]["leakage"] = "checked by hand, there is none"


EDITS = [better_metric, another_dataset, another_commit, another_row_in_full, a_longer_story]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_in_place(scene: Scene, edit: Callable[[dict[str, Any]], None]) -> None:
    name = scene.version.name
    moved = scene.edited(edit).rename(scene.version.parent / name)
    assert {"manifest hash", "signature"} <= scene.failures(moved).keys()
    assert {"manifest hash", "signature"} <= scene.failures(moved, key=False).keys()
    assert hopline("verify", moved, "--key", scene.public).code == 1


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_under_its_own_hash(scene: Scene, edit: Callable[[dict[str, Any]], None]) -> None:
    moved = scene.edited(edit)
    assert "another manifest is signed" in scene.failures(moved)["signature"]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_that_is_signed_by_its_author(scene: Scene, edit: Callable[[dict[str, Any]], None]) -> None:
    moved = scene.edited(edit)
    manifest = Manifest.parse((moved / "manifest.json").read_bytes(), source="m")
    (moved / "manifest.dsse.json").write_bytes(make_envelope(manifest, [scene.attacker]).to_bytes())
    assert "not signed by" in scene.failures(moved)["signature"]
    assert hopline("verify", moved, "--key", scene.public).code == 1


def test_other_weights_with_a_manifest_made_for_them(scene: Scene) -> None:
    """Everything is made anew and agrees; only the signature cannot be."""
    shutil.copy(scene.stage(7) / "model.safetensors", scene.version / "model.safetensors")
    envelope = (scene.version / "manifest.dsse.json").read_bytes()
    (scene.version / "manifest.dsse.json").unlink()
    (scene.version / "manifest.json").unlink()
    manifest = scene.build(scene.version)
    scene.write("manifest.json", manifest.to_bytes())
    scene.write("manifest.dsse.json", envelope)
    moved = scene.version.rename(scene.version.parent / manifest.manifest_hash)
    assert scene.failures(moved).keys() == {"signature"}
    (moved / "manifest.dsse.json").unlink()
    assert scene.failures(moved).keys() == {"signature"}


def test_a_file_more_that_the_manifest_names(scene: Scene) -> None:
    """Code to be imported, listed as if it had been published."""
    scene.write("tokenizer.py", b"import os\n")
    files = [file.model_dump(mode="json") for file in describe_files(scene.version).files]
    moved = scene.edited(lambda document: document["subjects"].update(files=files))
    assert scene.failures(moved).keys() == {"signature"}


def test_the_manifest_of_another_version(scene: Scene) -> None:
    """Whole and signed by the publisher, and about other files."""
    other = scene.publish("other", 5, scene.publisher)
    for name in ("manifest.json", "manifest.dsse.json"):
        shutil.copy(other / name, scene.version / name)
    failed = scene.failures()
    assert {"manifest hash", "file model.safetensors", "tensors digest"} <= failed.keys()
    assert "signature" not in failed
    moved = scene.version.rename(scene.version.parent / sha256_bytes((other / "manifest.json").read_bytes()))
    assert {"file model.safetensors", "tensors digest"} <= scene.failures(moved).keys()


def test_the_manifest_of_another_model(scene: Scene) -> None:
    """A manifest that calls the model by another name contradicts its own config."""
    moved = scene.edited(lambda document: document.update(name="better-known"))
    failed = scene.failures(moved)
    assert "the manifest of better-known" in failed["config hashes"]
    assert "signature" in failed


def test_the_champion_pointer_of_another_model(scene: Scene) -> None:
    """A version of one model, moved beside the pointer of another one that names it."""
    move_champion(
        open_store(str(scene.root)), "tiny", Measured(scene.version.name, "a" * 64, {"link.mrr": 0.8}), GateConfig()
    )
    assert scene.failures() == {}
    pointer = scene.version.parent / "champion.json"
    pointer.write_bytes(pointer.read_bytes().replace(b'"name":"tiny"', b'"name":"other"'))
    assert "pointer of the model 'other'" in scene.failures()["champion"]
