from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hopline.config import DatasetConfig
from hopline.datasets import DatasetIndex, build_dataset
from hopline.errors import NotFoundError
from hopline.lineage import dataset_part, split_digest, verify, vocabulary_digest
from hopline.lineage.data import dataset_claims
from hopline.progress import NullSink
from hopline.storage import canonical_json, parse_json, sha256_bytes


def build_one(folder: Path, **changes: object) -> DatasetIndex:
    small = {
        "examples": {"train": 700, "valid": 8, "calibration": 8, "test": 12},
        "workers": 1,
        "min_nodes": 8,
        "max_nodes": 12,
        "max_hops": 2,
    }
    config = DatasetConfig.model_validate({**small, **changes})
    return build_dataset(config, folder, source=None, sink=NullSink())


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset") / "d"
    build_one(folder)
    return folder


@pytest.fixture
def dataset(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "dataset"))


@pytest.fixture
def manifest(stage, build, built):
    """A manifest about the dataset."""
    index = DatasetIndex.load(built)
    folder = stage()
    (folder / "vocabulary.json").write_text(index.vocabulary.to_json())
    base = build(folder)
    record = base.training.run_manifest.model_copy(update={"dataset_hash": index.dataset_hash})
    return build(
        folder,
        dataset=dataset_part(index, split_rule="by hash"),
        evaluation=base.evaluation.model_copy(update={"split_digest": split_digest(index, "test")}),
        training=base.training.model_copy(update={"run_manifest": record}),
    )


def claims(manifest, folder, deep=False) -> dict[str, tuple[str, str]]:
    return {claim.name: (claim.status, claim.detail) for claim in dataset_claims(manifest, folder, deep)}


def edit(folder: Path, change) -> None:
    """Change an index as somebody would who also repairs the digest in it."""
    path = folder / "index.json"
    document = parse_json(path.read_bytes(), source="index")
    change(document)
    del document["index_sha256"]
    document["index_sha256"] = sha256_bytes(canonical_json(document))
    path.write_text(json.dumps(document))


def test_the_part_says_what_the_index_says(built):
    index = DatasetIndex.load(built)
    part = dataset_part(index)
    assert part.dataset_hash == index.dataset_hash
    assert part.generator.code_digest == index.generator.code_digest
    assert part.splits["train"].units == 700
    assert part.splits["train"].shards[0].sha256 == index.splits["train"].shards[0].sha256
    assert part.vocabulary_digest == vocabulary_digest(json.loads(index.vocabulary.to_json()))
    assert part.source.uri == "synthetic"
    assert part.reasons == {"split_rule": "the dataset's index does not say"}
    with pytest.raises(NotFoundError, match="no split 'other'"):
        split_digest(index, "other")


def test_a_split_is_the_same_split_in_another_dataset_only_if_its_content_is(built, tmp_path):
    index = DatasetIndex.load(built)
    digests = {name: split_digest(index, name) for name in index.splits}
    assert len(set(digests.values())) == 4
    cut = build_one(tmp_path / "cut", shard_size=5)
    assert {name: split_digest(cut, name) for name in cut.splits} == digests
    other = build_one(tmp_path / "other", seed=1)
    assert split_digest(other, "test") != digests["test"]
    fewer = index.model_copy(update={"splits": {"test": index.splits["test"]}})
    assert split_digest(fewer, "test") == digests["test"]


def test_without_the_dataset_it_says_so(manifest):
    assert claims(manifest, None)["dataset"][0] == "NOT CHECKED"


def test_the_dataset_verifies(manifest, dataset, tmp_path, stage):
    assert {status for status, _ in claims(manifest, dataset, deep=True).values()} == {"OK"}
    shallow = claims(manifest, dataset)
    assert shallow["dataset"][0] == shallow["dataset record"][0] == "OK"
    assert shallow["dataset shards"][0] == "NOT CHECKED"
    folder = tmp_path / "staged-0"
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    report = verify(str(folder), dataset=dataset, deep=True)
    assert [c for c in report.claims if c.status == "FAIL"] == []
    assert [c.status for c in report.claims if c.name == "dataset shards"] == ["OK"]


def test_the_same_content_in_other_files_verifies(manifest, tmp_path):
    build_one(tmp_path / "cut", shard_size=100)
    found = claims(manifest, tmp_path / "cut", deep=True)
    assert {status for status, _ in found.values()} == {"OK"}
    assert "other files" in found["dataset record"][1]


def test_another_dataset_fails(manifest, tmp_path):
    build_one(tmp_path / "other", seed=1)
    assert claims(manifest, tmp_path / "other", deep=True)["dataset"][0] == "FAIL"


def test_a_folder_without_an_index_cannot_be_read(manifest, tmp_path):
    with pytest.raises(NotFoundError):
        claims(manifest, tmp_path)


def test_an_altered_index_fails(manifest, dataset, damage):
    edit(dataset, lambda index: index["splits"]["test"]["blocks"].__setitem__(0, "0" * 64))
    assert "block digests" in claims(manifest, dataset)["dataset"][1]
    (dataset / "index.json").write_text("{")
    assert claims(manifest, dataset)["dataset"][0] == "FAIL"


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.update(seed=5),
        lambda index: index["generator"].update(version="9"),
        lambda index: index["source"].update(uri="elsewhere"),
        lambda index: index["leakage"].update(held_out_edges=3),
    ],
)
def test_what_the_hash_does_not_cover_is_compared(manifest, dataset, change):
    edit(dataset, change)
    found = claims(manifest, dataset)
    assert found["dataset"][0] == "OK"
    assert found["dataset record"][0] == "FAIL"


@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_an_altered_shard_fails_a_deep_check(manifest, dataset, damage, how):
    path = dataset / "test-00000.arrow"
    path.unlink() if how == "gone" else getattr(damage, how)(path)
    assert claims(manifest, dataset, deep=True)["dataset shards"][0] == "FAIL"


def test_another_shard_under_a_repaired_index_fails_a_deep_check(manifest, dataset, tmp_path):
    """The file digests are repaired, the block digests cannot be: they make the dataset hash."""
    other = build_one(tmp_path / "other", seed=1)
    shard = other.splits["test"].shards[0]
    shutil.copy(tmp_path / "other" / shard.file, dataset / shard.file)
    edit(dataset, lambda index: index["splits"]["test"]["shards"][0].update(sha256=shard.sha256, bytes=shard.bytes))
    found = claims(manifest, dataset, deep=True)
    assert found["dataset"][0] == "OK"
    assert found["dataset shards"][0] == "FAIL"


def test_blocks_of_several_shards_are_put_together(manifest, tmp_path):
    """700 examples are two blocks of 512; shards of 100 cut across them."""
    index = build_one(tmp_path / "cut", shard_size=100)
    assert len(index.splits["train"].blocks) == 2
    assert len(index.splits["train"].shards) == 7
    assert "blocks of content" in claims(manifest, tmp_path / "cut", deep=True)["dataset shards"][1]
