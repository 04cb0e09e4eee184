"""The stages with a root, and a source, on a real S3 server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hopline.storage import open_store, sha256_file
from tests.conftest import S3Server
from tests.stages.conftest import Finished
from tests.stages.workbench import STAGES, chain, content, hopline, reused, stage

pytestmark = pytest.mark.s3

QUESTION = {
    "nodes": ["a", "b", "c"],
    "edges": [["a", "relation_00", "b"], ["b", "relation_01", "c"]],
    "query": {"anchors": ["a"], "relations": ["relation_00", "relation_01"], "answer_mode": "entities"},
}


def at(results: dict, root: str) -> dict:
    """Results with the root taken out of every URI."""
    return {name: json.loads(json.dumps(result).replace(root, "ROOT")) for name, result in results.items()}


def test_the_whole_chain_in_a_bucket(
    finished: Finished, s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = chain(s3_root)
    assert reused(first) == [False] * 4
    for name in STAGES[:3]:
        expected = content(finished.results[name], finished.root)
        assert {**at(first, s3_root)[name], "reused": True} == {**expected, "reused": True}, "as in a folder"
    uri = first["publish"]["manifest_uri"]
    assert uri == f"{s3_root}/models/tiny/{first['publish']['manifest_hash']}/manifest.json"
    assert first["publish"]["champion"] is True

    monkeypatch.setenv("HOPLINE_CACHE", str(tmp_path / "another-machine"))
    again = chain(s3_root)
    assert reused(again) == [True] * 4
    assert {name: {**result, "reused": False} for name, result in again.items()} == first

    checked = hopline("verify", uri)
    assert checked.code == 0, checked.stdout
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps(QUESTION) + "\n")
    answer = json.loads(hopline("predict", uri, "--input", questions, "--json").stdout)
    assert answer["answer_mode"] == "entities"
    assert 0 <= answer["confidence"] <= 1

    store = open_store(s3_root)
    work = [info.key for info in store.list() if ".work/" in info.key or ".tmp" in info.key]
    assert work == [], "nothing is left of work in progress"
    shard = next(info.key for info in store.list("datasets/") if "train-" in info.key)
    data = bytearray(store.get_bytes(shard))
    data[len(data) // 2] ^= 1
    store.put_bytes(shard, bytes(data))
    monkeypatch.setenv("HOPLINE_CACHE", str(tmp_path / "a-third-machine"))
    assert shard in stage("train", s3_root, "training.seed=5").error


def test_a_run_in_a_bucket_continues_from_what_another_machine_saved(
    finished: Finished, s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hopline.stages.runs import AttemptLog  # its last write comes after all others

    stage("generate", s3_root).result  # noqa: B018 - it checks the exit code

    def lose_power(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AttemptLog, "end", lose_power)
        assert stage("train", s3_root).code == 130
    monkeypatch.setenv("HOPLINE_CACHE", str(tmp_path / "another-machine"))
    done = stage("train", s3_root)
    assert any("continues from step 6" in event.get("message", "") for event in done.events)
    assert at({"train": done.result}, s3_root)["train"] == content(finished.results["train"], finished.root) | {
        "reused": False
    }


def test_triples_and_examples_in_a_bucket(s3_root: str, tmp_path: Path) -> None:
    folder = tmp_path / "triples"
    folder.mkdir()
    lines = [f"e{head}\tr{relation}\te{(3 * head + relation) % 12}\n" for head in range(12) for relation in range(5)]
    for name, part in (("train", lines[12:]), ("valid", lines[:6]), ("test", lines[6:12])):
        (folder / f"{name}.txt").write_text("".join(part))
    store = open_store(s3_root)
    for path in folder.iterdir():
        store.put_file(f"triples/{path.name}", path, sha256=sha256_file(path))

    def generate(source: str | Path) -> dict:
        return stage("generate", tmp_path / "root", f"dataset.source={source}", "dataset.entities=identity").result

    remote, local = generate(f"{s3_root}/triples"), generate(folder)
    assert remote["dataset_hash"] == local["dataset_hash"]
    assert generate(f"{s3_root}/triples")["reused"] is True
    store.put_bytes("triples/train.txt", "".join(lines[13:]).encode())
    changed = generate(f"{s3_root}/triples")
    assert changed["reused"] is False
    assert changed["dataset_hash"] != local["dataset_hash"]
    missing = stage("generate", tmp_path / "root", f"dataset.source={s3_root}/none").error
    assert f"{s3_root}/none" in missing
    store.delete("triples/valid.txt")
    assert "valid.txt" in stage("generate", tmp_path / "root", f"dataset.source={s3_root}/triples").error


def test_wrong_keys_and_a_missing_bucket(
    finished: Finished, s3_server: S3Server, s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = s3_root.replace(s3_server.bucket, "no-such-bucket")
    for name in ("generate", "train"):
        assert "no-such-bucket" in stage(name, nowhere).error
    root = tmp_path / "root"
    shutil.copytree(finished.root / "datasets", root / "datasets")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "wrong" * 4)
            for name in ("generate", "publish"):
                error = stage(name, s3_root).error
                assert s3_server.secret_key not in error
                assert "wrong" * 4 not in error
                assert s3_server.bucket in error
            assert s3_server.bucket in hopline("verify", f"{s3_root}/m/manifest.json").error
    assert list(open_store(s3_root).list()) == []
