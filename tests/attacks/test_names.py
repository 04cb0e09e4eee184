"""Names that look like others, lead out of the folder, or write to the terminal of whoever reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hopline.errors import DataError
from hopline.lineage import Manifest, publish_version
from hopline.progress import NullSink
from hopline.storage import open_store
from tests.attacks.conftest import Scene
from tests.stages.workbench import hopline

LOOK_ALIKES = {
    "a Cyrillic o": "c\u043enfig.json",
    "a dotless i": "conf\u0131g.json",
    "full width": "\uff43onfig.json",
    "a composed letter": "c\u00f6nfig.json",
    "a decomposed letter": "co\u0308nfig.json",
    "a zero width space": "config\u200b.json",
    "letters turned around": "config\u202enosj.",
    "a soft hyphen": "con\u00adfig.json",
    "a dot that is none": "config\u2024json",
    "a slash that is none": "weights\u2215config.json",
    "another case": "Config.JSON",
    "a blank at the end": "config.json ",
    "a dot at the end": "config.json.",
}
WAYS_OUT = [
    "../config.json",
    "/etc/passwd",
    "a/../../x",
    "./config.json",
    "a//x",
    "C:\\x",
    "a\\x",
    "~/x",
    "",
    ".",
    "..",
    "nul",
]


def renamed(name: str) -> Any:
    def change(document: dict[str, Any]) -> None:
        files = document["subjects"]["files"]
        next(file for file in files if file["path"] == "config.json")["path"] = name
        files.sort(key=lambda file: file["path"])

    return change


@pytest.mark.parametrize("what", LOOK_ALIKES)
def test_a_file_that_looks_like_another(scene: Scene, what: str) -> None:
    """As a file beside the others, and in the place of one, with a manifest that names it."""
    name = LOOK_ALIKES[what]
    (scene.version / name).parent.mkdir(exist_ok=True)
    shutil.copy(scene.version / "config.json", scene.version / name)
    assert "is not in the manifest" in scene.failures()["no other files"]
    (scene.version / "config.json").unlink()
    failed = scene.failures(scene.edited(renamed(name)))
    if name == "Config.JSON":  # a name like another, and no other than that
        assert "signature" in failed
    else:
        assert "manifest" in failed


@pytest.mark.parametrize("name", WAYS_OUT)
def test_a_name_that_leads_out(scene: Scene, name: str) -> None:
    failed = scene.failures(scene.edited(renamed(name)))
    assert {"manifest", "signature"} <= failed.keys()


def test_two_names_that_are_one_on_other_systems(scene: Scene) -> None:
    def change(document: dict[str, Any]) -> None:
        files = document["subjects"]["files"]
        files.insert(0, {**next(file for file in files if file["path"] == "config.json"), "path": "CONFIG.json"})

    shutil.copy(scene.version / "config.json", scene.version / "CONFIG.json")
    assert "one where case does not count" in scene.failures(scene.edited(change))["manifest"]


@pytest.mark.parametrize(
    "name", ["t\u0456ny", "tiny\u200b", "\uff54iny", "ti\u0301ny", "tiny ", "../tiny", "tiny/x", "a" * 64]
)
def test_a_model_that_looks_like_another(scene: Scene, name: str) -> None:
    """Models of that name can neither be published nor read."""
    failed = scene.failures(scene.edited(lambda document: document.update(name=name)))
    assert failed["manifest"].startswith("manifest.json: name: ")


def test_a_model_is_not_published_under_a_name_that_looks_like_its_own(scene: Scene, tmp_path: Path) -> None:
    """It ends before anything is stored."""
    folder = scene.stage(3)
    manifest = scene.build(folder)
    store = open_store(str(tmp_path / "other-root"))
    with pytest.raises(DataError, match="is of the model 'tiny'"):
        publish_version(store, "t\u0456ny", folder, manifest, sink=NullSink())
    assert not (tmp_path / "other-root/models").exists()


def test_text_that_writes_to_the_terminal(scene: Scene) -> None:
    """A reason that is shown in a claim: escapes would wipe the line, and turned letters would read as another word."""

    def change(document: dict[str, Any]) -> None:
        document["code"]["reasons"]["git_commit"] = "\x1b[2K\x1b[1A\x1b[1GOK  signature\u202e\u2066 \x07"

    moved = scene.edited(change)
    manifest = Manifest.parse((moved / "manifest.json").read_bytes(), source="m")
    assert "\x1b" in manifest.code.reasons["git_commit"]
    done = hopline("verify", moved)
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert "\\x1b[2K" in done.stdout
    other = scene.publish("other", 9)
    assert all(line.isprintable() for line in hopline("diff", moved, other).stdout.splitlines())
