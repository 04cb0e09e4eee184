"""``hopline champion show | history | promote | rollback``."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopline.storage import open_store, sha256_file
from tests.stages.conftest import Finished
from tests.stages.workbench import flip, hopline, stage

OTHER = "publish.gate.minimum={overall.score: 0.0}"


def test_show_says_which_since_when_and_why(finished: Finished) -> None:
    version = finished.results["publish"]["manifest_hash"]
    done = hopline("champion", "show", "tiny", "--root", finished.root)
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "model      tiny",
        f"champion   {version}",
        f"manifest   {finished.results['publish']['manifest_uri']}",
    ]
    assert "moved by   the gate (publish)" in lines
    assert "because    there is no champion to compare with" in lines
    assert f"overall.score {finished.results['evaluate']['metrics']['overall.score']:.4f}" in done.stdout


@pytest.mark.parametrize("form", ["models/tiny", "models/tiny/", "models/tiny/champion.json"])
def test_a_model_is_named_by_its_uri_too(finished: Finished, form: str) -> None:
    found = hopline("champion", "show", f"{finished.root.as_uri()}/{form}", "--json").result
    assert found == hopline("champion", "show", "tiny", "--root", finished.root, "--json").result
    assert set(found) == {"name", "champion", "state", "metrics", "withdrawn"}


def test_a_rollback_is_kept_with_who_and_why_and_holds(finished: Finished, root: Path) -> None:
    old, new = finished.results["publish"]["manifest_hash"], stage("publish", root, OTHER).result["manifest_hash"]
    done = hopline("champion", "rollback", "tiny", "--reason", "answers got worse", "--by", "anna", "--root", root)
    assert done.stdout == f"{old} is the champion of tiny now, after {new[:12]}\n"
    heads, first, second, third = hopline("champion", "history", "tiny", "--root", root).stdout.splitlines()
    assert heads.split() == ["since", "(UTC)", "version", "action", "by", "because"]
    assert first.split()[1:4] == [old[:12], "rollback", "anna"]
    assert first.endswith("answers got worse")
    assert second.split()[1:3] == [new[:12], "publish"]
    assert third.split()[1:3] == [old[:12], "publish"]

    again = stage("publish", root, OTHER).result
    assert again["champion"] is False, "a scheduled run of the same config does not undo it"
    assert "rolled back from" in again["reasons"][0]
    shown = hopline("champion", "show", "tiny", "--root", root).stdout
    assert f"withdrawn  {new}" in shown

    promoted = hopline(
        "champion", "promote", "tiny", new[:8], "--reason", "it was the data", "--root", root, "--json"
    ).result
    assert promoted["moved"] is True
    assert promoted["champion"]["manifest_hash"] == new
    assert "@" in promoted["champion"]["by"], "by default this user on this machine"
    assert stage("publish", root, OTHER).result["champion"] is True
    history = hopline("champion", "history", "tiny", "--root", root, "--json").result
    assert [move["action"] for move in history["moves"]] == ["promote", "rollback", "publish", "publish"]


def test_a_version_is_promoted_by_its_uri(finished: Finished, root: Path) -> None:
    stage("publish", root, OTHER).result  # noqa: B018 - it checks the exit code
    uri = f"{root.as_uri()}/models/tiny/{finished.results['publish']['manifest_hash']}"
    assert "is the champion of tiny now" in hopline("champion", "promote", uri, "--reason", "better").stdout
    done = hopline("champion", "promote", f"{uri}/manifest.json", "--reason", "better")
    assert "already; nothing was moved" in done.stdout


def test_a_version_that_does_not_verify_is_refused_with_exit_code_1(finished: Finished, root: Path) -> None:
    stage("publish", root, OTHER).result  # noqa: B018 - it checks the exit code
    old = finished.results["publish"]["manifest_hash"]
    before = (root / "models/tiny/champion.json").read_bytes()
    flip(root / "models/tiny" / old / "report.html")
    done = hopline("champion", "rollback", "tiny", "--reason", "x", "--root", root)
    assert (done.code, done.stdout) == (1, "")
    assert "does not verify, so it cannot be champion: file report.html: altered" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (root / "models/tiny/champion.json").read_bytes() == before


def test_a_version_that_is_not_signed_by_the_key_is_refused(root: Path, tmp_path: Path) -> None:
    version = stage("publish", root, OTHER).result["manifest_hash"]
    assert hopline("keygen", tmp_path / "publisher").code == 0
    (public,) = tmp_path.glob("publisher*.pub")
    done = hopline("champion", "promote", "tiny", version, "--reason", "x", "--key", public, "--root", root)
    assert done.code == 1
    assert "signature" in done.stderr


def test_mistakes_are_one_line(finished: Finished, root: Path, tmp_path: Path) -> None:
    def error(*words: str) -> str:
        return hopline("champion", *words, "--root", root).error

    assert "the model 'none' has no champion in this root" in error("show", "none")
    assert "has no champion" in hopline("champion", "history", "tiny", "--root", tmp_path / "empty").error
    assert "expected the name of a model, or the URI" in error("show", "some/where")
    assert "which version?" in error("promote", "tiny", "--reason", "x")
    assert "no version there begins with 'ffff'" in error("promote", "tiny", "ffff", "--reason", "x")
    assert "there is no champion before" in error("rollback", "tiny", "--reason", "x")
    assert "expected one line" in error("promote", "tiny", finished.results["publish"]["manifest_hash"], "--reason", "")
    assert hopline("champion", "rollback", "tiny", "--root", root).code == 2, "--reason is asked for"


def test_a_champion_whose_version_is_gone_is_shown_as_such(root: Path) -> None:
    (manifest,) = root.glob("models/tiny/*/manifest.json")
    manifest.unlink()
    found = hopline("champion", "show", "tiny", "--root", root, "--json").result
    assert (found["state"], found["metrics"]) == ("missing", {})
    assert "(missing)" in hopline("champion", "show", "tiny", "--root", root).stdout


@pytest.mark.s3
def test_a_model_in_a_bucket(finished: Finished, s3_root: str) -> None:
    store = open_store(s3_root)
    for path in sorted((finished.root / "models").rglob("*")):
        if path.is_file():
            store.put_file(path.relative_to(finished.root).as_posix(), path, sha256=sha256_file(path))
    version = finished.results["publish"]["manifest_hash"]
    shown = hopline("champion", "show", f"{s3_root}/models/tiny", "--json").result
    assert shown["champion"]["manifest_uri"] == f"{s3_root}/models/tiny/{version}/manifest.json"
    done = hopline("champion", "promote", shown["champion"]["manifest_uri"], "--reason", "x", "--json").result
    assert done["moved"] is False
