"""Sources located and hashed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hopline.config import DatasetConfig
from hopline.datasets import SourceFiles, snapshot_source
from hopline.errors import DataError
from hopline.storage import sha256_file


def snapshot(source: str, folder: Path | None = None) -> SourceFiles:
    return snapshot_source(DatasetConfig(source=source), folder)


def test_the_synthetic_source_has_no_files() -> None:
    assert snapshot("synthetic") == SourceFiles(uri="synthetic")


def test_sets_of_pykeen_are_found_without_importing_it() -> None:
    found = snapshot("pykeen://umls")
    assert [file.path for file in found.files] == ["train.txt", "valid.txt", "test.txt"]
    assert found.files[0].sha256 == sha256_file(found.folder / "train.txt")
    assert "pykeen" not in sys.modules
    assert "folder" not in found.model_dump()


@pytest.mark.parametrize("uri", [False, True])
def test_a_folder_is_named_by_path_or_uri(write_triples, uri: bool) -> None:
    folder = write_triples()
    found = snapshot(folder.as_uri() if uri else str(folder))
    assert found.folder == folder
    assert found.files[2].bytes == (folder / "test.txt").stat().st_size


def test_a_fetched_source_keeps_its_uri(write_triples) -> None:
    found = snapshot("s3://bucket/triples", write_triples())
    assert (found.uri, len(found.files)) == ("s3://bucket/triples", 3)


def test_one_changed_byte_is_another_snapshot(write_triples) -> None:
    before = snapshot(str(write_triples()))
    after = snapshot(str(write_triples(test="d likes b\n")))
    assert [a == b for a, b in zip(before.files, after.files, strict=True)] == [True, True, False]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pykeen://fb15k", r"no such set in pykeen; there are pykeen://umls"),
        ("/nowhere/triples", r"/nowhere/triples: no such folder; dataset\.source is"),
        ("/nowhere/examples.jsonl", r"/nowhere/examples\.jsonl: no such file"),
        ("s3://bucket/x", r"s3://bucket/x: has to be fetched"),
    ],
)
def test_sources_that_are_not_there(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        snapshot(source)


def test_a_folder_without_a_split_is_named_with_the_file(write_triples) -> None:
    with pytest.raises(DataError, match=r"valid\.txt: no such file; expected train\.txt, valid\.txt and test\.txt"):
        snapshot(str(write_triples(valid=None)))


def test_without_pykeen_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pykeen is not installed; pip install --no-deps pykeen"):
        snapshot("pykeen://umls")
