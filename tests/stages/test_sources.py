"""Sources of every kind through the dataset stage: what is read, what is read again, and how mistakes are told."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopline.config import DatasetConfig
from hopline.errors import DataError
from hopline.stages import sources
from hopline.stages.sources import source_snapshot
from hopline.storage import open_store, sha256_bytes, sha256_file
from tests.stages.workbench import Done, stage

TRIPLES = [f"e{head}\tr{relation}\te{(3 * head + relation) % 12}\n" for head in range(12) for relation in range(5)]
SPLITS = {"train": TRIPLES[12:], "valid": TRIPLES[:6], "test": TRIPLES[6:12]}


def examples(*, more: int = 0) -> str:
    """Some lines of relation queries."""
    lines: list[dict[str, Any]] = []
    for number in range(12 + more):
        second, answer = [("sister", "aunt"), ("brother", "uncle")][number % 2]
        edges = [["x", "mother", "y"], ["y", second, f"z{number}"]]
        query = {"anchors": ["x", f"z{number}"], "relations": [], "answer_mode": "relation"}
        line = {"nodes": ["x", "y", f"z{number}"], "edges": edges, "query": query, "answers": [answer]}
        lines.append(line | {"split": ["train", "valid", "test"][number % 3 if number < 9 else 0]})
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Triples in a folder."""
    path = tmp_path / "triples"
    path.mkdir()
    for name, lines in SPLITS.items():
        (path / f"{name}.txt").write_text("".join(lines))
    return path


@pytest.fixture
def generate(tmp_path: Path) -> Callable[..., Done]:
    """Run the stage on a source, calibration left out: the sets are tiny."""

    def run(source: str | Path, *sets: str) -> Done:
        keys = (f"dataset.source={source}", "dataset.calibration_share=0.0", *sets)
        return stage("generate", tmp_path / "root", *keys)

    return run


def packed(folder: Path, name: str, inside: str = "") -> Path:
    """An archive of a folder, beside it."""
    path = folder.parent / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.iterdir()):
                archive.write(file, inside + file.name)
    else:
        with tarfile.open(path, "w:gz" if name.endswith("gz") else "w") as tar:
            for file in sorted(folder.iterdir()):
                tar.add(file, inside + file.name)
    return path


@pytest.mark.parametrize(
    ("name", "inside"), [("a.zip", "umls/"), ("a.tar", ""), ("a.tar.gz", "./"), ("a.tgz", "data/umls/")]
)
def test_an_archive_holds_what_the_folder_holds(folder: Path, generate, name: str, inside: str) -> None:
    plain = generate(folder).result
    archive = packed(folder, name, inside)
    made = generate(archive)
    assert made.result["dataset_hash"] == plain["dataset_hash"]
    assert made.result["reused"] is False, "another source, though its content is the same"
    assert generate(archive).result["reused"] is True
    assert generate(archive.as_uri()).result["dataset_hash"] == plain["dataset_hash"]
    index = json.loads(Path(made.result["dataset_uri"].removeprefix("file://"), "index.json").read_text())
    assert index["dataset_hash"] == plain["dataset_hash"]


def test_the_snapshot_of_an_archive_names_it_and_its_files(folder: Path) -> None:
    archive = packed(folder, "a.zip")
    found = source_snapshot(DatasetConfig(source=str(archive)))
    assert [file.path for file in found.files] == ["a.zip", "train.txt", "valid.txt", "test.txt"]
    assert [file.sha256 for file in found.files] == [
        sha256_file(archive),
        *(sha256_file(folder / f"{name}.txt") for name in SPLITS),
    ]


def test_an_archive_is_unpacked_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DatasetConfig(source=str(packed(folder, "a.tgz")))
    first = source_snapshot(config)
    with monkeypatch.context() as patch:
        patch.setattr(sources, "unpack", None)
        assert source_snapshot(config) == first
    assert first.folder is not None
    (first.folder / "train.txt").unlink()
    assert source_snapshot(config) == first, "a copy that is not whole is made again"
    assert (first.folder / "train.txt").is_file()


def test_copies_that_nobody_used_for_a_week_are_removed(folder: Path) -> None:
    first = source_snapshot(DatasetConfig(source=str(packed(folder, "a.tgz"))))
    assert first.folder is not None
    old = time.time() - 8 * 24 * 3600
    os.utime(first.folder, (old, old))
    (folder / "test.txt").write_text("e1\tr1\te2\n")
    second = source_snapshot(DatasetConfig(source=str(packed(folder, "b.tgz"))))
    assert second.folder is not None
    assert second.folder.is_dir()
    assert not first.folder.exists()


@pytest.mark.parametrize("line", ["e1\tr1\n", "e1\tr1\te2\te3\n"])
def test_errors_in_an_archive_name_it_and_not_the_copy(folder: Path, generate, line: str, tmp_path: Path) -> None:
    (folder / "valid.txt").write_text(TRIPLES[0] + line)
    archive = packed(folder, "a.tar.gz", "umls/")
    error = generate(archive).error
    assert f"{archive}/valid.txt:2: found" in error
    assert "cache" not in error


def test_archives_that_are_no_source(folder: Path, generate, tmp_path: Path) -> None:
    assert "no such file; expected an archive" in generate(tmp_path / "nothing.zip").error
    (folder / "train.txt").unlink()
    assert (
        "a.zip/train.txt: no such file; expected train.txt, valid.txt and test.txt"
        in generate(packed(folder, "a.zip")).error
    )
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("readme.md", "hello")
    assert "b.zip: no data files in it" in generate(tmp_path / "b.zip").error
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("../train.txt", "a r b\n")
    assert "c.zip: member '../train.txt' has a path that leads out of its folder" in generate(tmp_path / "c.zip").error


def test_one_file_and_compressed_files(folder: Path, generate, tmp_path: Path) -> None:
    plain = generate(folder).result
    for name, lines in SPLITS.items():
        (folder / f"{name}.txt").unlink()
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress("".join(lines).encode()))
    assert generate(folder).result["dataset_hash"] == plain["dataset_hash"]
    single = tmp_path / "facts.txt"
    single.write_text("".join(TRIPLES))
    assert "set dataset.triple_split to triple or entity" in generate(single).error
    assert generate(single, "dataset.triple_split=triple").result["examples"]["test"] > 0


def test_examples_in_files_and_folders_and_archives(tmp_path: Path, generate) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    text = examples()
    (folder / "examples.jsonl").write_text(text)
    plain = generate(folder / "examples.jsonl").result
    assert plain["examples"] == {"train": 6, "valid": 3, "calibration": 0, "test": 3}
    lines = text.splitlines(keepends=True)
    (folder / "examples.jsonl").unlink()
    (folder / "a.jsonl").write_text("".join(lines[:5]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[5:]).encode()))
    for source in (folder, packed(folder, "q.zip", "inner/")):
        assert generate(source).result["dataset_hash"] == plain["dataset_hash"]
    (folder / "c.jsonl").write_text(lines[0].replace("mother", "mother\\", 1))
    assert f"{folder}/c.jsonl:1: " in generate(folder).error
    (folder / "train.txt").write_text("a r b\n")
    assert "holds examples (a.jsonl) and triples (train.txt); keep one kind there" in generate(folder).error


def test_what_was_left_out_is_told_and_recorded(folder: Path, generate) -> None:
    with (folder / "test.txt").open("a") as file:
        file.write("e1\tfears\te2\ne1\tfears\te3\n")
    done = generate(folder)
    (warning,) = [event["message"] for event in done.events if event["kind"] == "warning"]
    assert warning == "2 of test left out: relations that training does not have: 'fears' (first: test.txt:7)"
    index = json.loads(Path(done.result["dataset_uri"].removeprefix("file://"), "index.json").read_text())
    assert index["imported"] == {
        "items": {"train.txt": 48, "valid.txt": 6, "test.txt": 8},
        "headers": [],
        "unknown_relations": [{"relation": "fears", "split": "test", "count": 2, "first": "test.txt:7"}],
        "crossing_triples": 0,
        "shared_entities": None,
    }


def test_repeated_problems_of_a_file_are_told(tmp_path: Path, generate) -> None:
    (tmp_path / "examples.jsonl").write_text(examples())
    warnings = [
        event["message"] for event in generate(tmp_path / "examples.jsonl").events if event["kind"] == "warning"
    ]
    assert warnings == ["6 examples ask what an earlier split asks, up to the names of nodes"]


def test_local_files_are_read_once_for_their_digest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot hashes each file once; what is parsed later is hashed on the way."""
    hashed: list[str] = []

    def count(path: Path) -> str:
        hashed.append(path.name)
        return sha256_file(path)

    monkeypatch.setattr("hopline.datasets.source.sha256_file", count)
    source_snapshot(DatasetConfig(source=str(folder)))
    assert sorted(hashed) == ["test.txt", "train.txt", "valid.txt"]


@pytest.mark.s3
def test_a_prefix_that_changes_is_another_dataset_and_one_that_does_not_is_reused(
    s3_root: str, generate, tmp_path: Path
) -> None:
    store = open_store(s3_root)
    prefix, rule = f"{s3_root}/facts", "dataset.triple_split=triple"

    def put(name: str, lines: list[str]) -> None:
        store.put_bytes(f"facts/{name}", "".join(lines).encode())

    put("2026-01.tsv", TRIPLES[:40])
    first = generate(prefix, rule).result
    assert generate(prefix, rule).result == {**first, "reused": True}
    put("notes.md", ["not data"])
    put("older/2025.tsv", TRIPLES[40:])
    assert generate(prefix, rule).result["reused"] is True, "neither notes nor what lies deeper is part of the source"
    put("2026-02.tsv", TRIPLES[40:])
    second = generate(prefix, rule).result
    assert second["reused"] is False
    assert second["dataset_hash"] != first["dataset_hash"]
    assert generate(prefix, rule).result["reused"] is True
    put("2026-02.tsv", [*TRIPLES[40:], "e1\tr1\tnew\n"])
    assert generate(prefix, rule).result["dataset_hash"] not in (first["dataset_hash"], second["dataset_hash"])
    store.delete("facts/2026-02.tsv")
    assert generate(prefix, rule).result == {**first, "reused": True}, "what was there before is still known"


@pytest.mark.s3
def test_objects_are_fetched_once_and_named_in_errors(
    s3_root: str, generate, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(s3_root)
    for archive in (packed(folder, "a.zip", "x/"), packed(folder, "a.tgz")):
        store.put_file(f"in/{archive.name}", archive, sha256=sha256_file(archive))
    store.put_bytes("in/examples.jsonl.gz", gzip.compress(examples().encode(), mtime=0))
    plain = generate(folder).result["dataset_hash"]
    for name in ("a.zip", "a.tgz"):
        assert generate(f"{s3_root}/in/{name}").result["dataset_hash"] == plain
    source = f"{s3_root}/in/examples.jsonl.gz"
    assert generate(source).result["examples"]["train"] == 6
    found = source_snapshot(DatasetConfig(source=source))
    assert [file.sha256 for file in found.files] == [sha256_bytes(gzip.compress(examples().encode(), mtime=0))]
    with monkeypatch.context() as patch:
        patch.setattr(sources, "_fetch", None)
        assert source_snapshot(DatasetConfig(source=source)) == found
    store.put_bytes("in/examples.jsonl.gz", gzip.compress(b"{}\n"))
    assert f"{source}:1: " in generate(source).error
    assert f"{s3_root}/in/b.zip: no such object" in generate(f"{s3_root}/in/b.zip").error
    assert f"{s3_root}/none: no data files there" in generate(f"{s3_root}/none").error


def test_a_cache_that_cannot_be_written(
    folder: Path, generate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOPLINE_CACHE", str(tmp_path / "file"))
    assert "set HOPLINE_CACHE to a folder that can be written" in generate(packed(folder, "a.zip")).error


def test_a_uri_of_another_kind() -> None:
    with pytest.raises(DataError, match=r"gs://b/x: no source can be read there; dataset\.source is"):
        source_snapshot(DatasetConfig(source="gs://b/x"))
