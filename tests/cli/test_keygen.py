"""``hopline keygen``, and the key at work: publish signs, verify checks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.stages.conftest import Finished
from tests.stages.workbench import hopline, stage


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a key."""
    for name in ("HOPLINE_SIGNING_KEY", "HOPLINE_SIGNING_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key pair: this path with .key and .pub."""
    hopline("keygen", tmp_path / "keys/publisher")
    return tmp_path / "keys/publisher"


def secrets(key: Path) -> list[str]:
    """The lines of a private key's file that must stand nowhere else."""
    return [line for line in key.with_suffix(".key").read_text().splitlines() if "-----" not in line]


def claim(done, name: str = "signature") -> str:
    (line,) = [line for line in done.stdout.splitlines() if f"  {name}: " in line]
    return line


def test_says_where_the_files_are_and_what_to_do(tmp_path: Path) -> None:
    done = hopline("keygen", tmp_path / "publisher")
    assert done.code == 0
    assert f"--key {tmp_path}/publisher.pub" in done.stdout
    assert f"HOPLINE_SIGNING_KEY_FILE={tmp_path}/publisher.key" in done.stdout
    assert not any(line in done.stdout for line in secrets(tmp_path / "publisher"))
    assert "publisher.key: is there already" in hopline("keygen", tmp_path / "publisher").error
    record = hopline("keygen", tmp_path / "other", "--json").result
    assert record["private_key"] == f"{tmp_path}/other.key"
    assert len(record["key_id"]) == 64


def test_a_version_is_signed_when_it_is_published(root: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the config by a file's name; the config and its manifest hold the name alone."""
    done = stage("publish", root, f"publish.signing_keys=['file:{key}.key']")
    target = done.result["manifest_uri"]
    assert done.result["reused"] is False
    assert hopline("verify", target, "--key", f"{key}.pub").code == 0
    assert claim(hopline("verify", target, "--key", f"{key}.pub")).startswith("OK")
    assert any(event.get("message", "").startswith("signed by ") for event in done.events)
    text = done.stdout + done.stderr
    files = [path for path in root.rglob("*") if path.is_file()]
    for line in secrets(key):
        assert line not in text
        assert not any(line.encode() in path.read_bytes() for path in files)


def test_a_key_in_the_environment_signs_what_is_published_already(
    finished: Finished, root: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPLINE_SIGNING_KEY", key.with_suffix(".key").read_text())
    done = stage("publish", root)
    assert done.result["reused"] is True
    assert done.result["manifest_hash"] == finished.results["publish"]["manifest_hash"]
    version = root / "models/tiny" / done.result["manifest_hash"]
    assert claim(hopline("verify", version, "--key", f"{key}.pub")).startswith("OK")
    hopline("keygen", key.parent / "second")
    monkeypatch.setenv("HOPLINE_SIGNING_KEY_FILE", f"{key.parent}/second.key")
    assert stage("publish", root).result["reused"] is True
    for name in ("publisher", "second"):
        assert hopline("verify", version, "--key", key.parent / f"{name}.pub").code == 0
    for line in secrets(key):
        assert not any(line.encode() in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_publishing_without_a_key_is_allowed_and_said(finished: Finished, root: Path, key: Path) -> None:
    done = stage("publish", root)
    (warning,) = [event["message"] for event in done.events if event["kind"] == "warning"]
    assert warning.startswith("NOT SIGNED")
    assert "hopline keygen" in warning
    assert hopline("verify", done.result["manifest_uri"]).code == 0
    checked = hopline("verify", done.result["manifest_uri"], "--key", f"{key}.pub")
    assert checked.code == 1
    assert claim(checked).startswith("FAIL")


def test_a_key_that_is_not_there_stops_before_anything_is_published(
    root: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(root / "models")
    for setting, expected in (
        (f"['file:{key}.gone']", "no such signing key"),
        (f"['file:{key}.pub']", "is no private key"),
        ("['env:NOT_THERE']", "NOT_THERE: the variable is not set"),
        ("env:NAME", "publish.signing_keys: expected a list of places"),
    ):
        assert expected in stage("publish", root, f"publish.signing_keys={setting}").error
    assert not (root / "models").exists()


def test_a_key_in_the_config_is_refused_and_not_shown(tmp_path: Path, key: Path) -> None:
    text = key.with_suffix(".key").read_text()
    for value in (text, [text], [f"file:{text}"], [f"env:{text}"], {"key": text}, [text.replace("\n", " ")]):
        config = tmp_path / "with-key.yaml"
        config.write_text(json.dumps({"name": "m", "publish": {"signing_keys": value}}))
        done = hopline("config", "validate", "-c", config)
        assert "the key itself never stands in a config" in done.error
        assert not any(line[:20] in done.error for line in secrets(key))


def test_verify_takes_several_keys(finished: Finished, root: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hopline("keygen", key.parent / "other")
    monkeypatch.setenv("HOPLINE_SIGNING_KEY_FILE", f"{key}.key")
    target = stage("publish", root).result["manifest_uri"]
    assert hopline("verify", target, "--key", key.parent / "other.pub").code == 1
    done = hopline("verify", target, "--key", key.parent / "other.pub", "--key", f"{key}.pub", "--json")
    assert done.code == 0
    claims = {item["name"]: item["status"] for item in done.result["claims"]}
    assert claims["signature"] == "OK"
    assert "is a private key" in hopline("verify", target, "--key", f"{key}.key").error
