"""Candidates as folders of files."""

from __future__ import annotations

import json
import math
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopline.config import ARCHITECTURE_VERSION
from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.storage import canonical_json, sha256_bytes, sha256_file
from hopline.training import CandidateIndex, read_candidate, write_candidate

FILES = ["config.json", "model.safetensors", "scores.json", "vocabulary.json"]


@pytest.fixture
def config(bench):
    return bench.config()


@pytest.fixture
def model(bench, config):
    return bench.model(config)


@pytest.fixture
def write(bench, config, model, tmp_path: Path):
    """Write the model into a new folder; the folder and the digest."""

    def writer(name: str = "candidate", metrics: dict[str, float] | None = None) -> tuple[Path, str]:
        folder = tmp_path / name
        folder.mkdir()
        figures = metrics or {"overall.score": 0.5, "link.mrr": 0.25}
        digest = write_candidate(
            folder, model.state_dict(), config, bench.dataset.vocabulary, step=8, score=0.5, metrics=figures
        )
        return folder, digest

    return writer


def reindex(folder: Path, **changed: Any) -> str:
    """Make the index fit the files again, as somebody would who wants them to be taken for whole."""
    index = json.loads((folder / "index.json").read_bytes())
    for file in index["files"]:
        path = folder / file["path"]
        file |= {"sha256": sha256_file(path), "bytes": path.stat().st_size}
    data = canonical_json(index | changed)
    (folder / "index.json").write_bytes(data)
    return sha256_bytes(data)


def test_a_candidate_comes_back_as_it_went(bench, config, model, write) -> None:
    """G41, G63: weights to the bit, config, vocabulary and step; ready to predict."""
    folder, digest = write()
    found = read_candidate(folder, digest)
    assert found.step == 8
    assert found.config == config
    assert found.vocabulary == bench.dataset.vocabulary
    assert not any(module.training for module in found.model.modules())
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor), name
    batch = bench.dataset.split("valid").batch(np.arange(6))
    with torch.no_grad():
        logits = [m.eval().forward_batch(batch).entity_logits for m in (model, found.model)]
    assert torch.equal(*logits)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "index.json"])
    assert json.loads((folder / "scores.json").read_bytes()) == {
        "step": 8,
        "score": 0.5,
        "metrics": {"overall.score": 0.5, "link.mrr": 0.25},
    }


def test_equal_candidates_have_equal_bytes(write) -> None:
    """G49: the digest names the content, so a run that is repeated gives the same one.

    Eight tries, because an order could vary.
    """
    first, digest = write("0")
    for number in range(1, 8):
        folder, again = write(str(number))
        assert again == digest
        assert all((folder / name).read_bytes() == (first / name).read_bytes() for name in [*FILES, "index.json"])


def test_the_index_names_every_file_with_its_digest(write) -> None:
    """G49, D35: files and index cannot tell of different models."""
    folder, digest = write()
    assert digest == sha256_file(folder / "index.json")
    index = CandidateIndex.parse((folder / "index.json").read_bytes(), source="index")
    assert index.architecture_version == ARCHITECTURE_VERSION
    assert [file.path for file in index.files] == FILES
    for file in index.files:
        assert (file.sha256, file.bytes) == (sha256_file(folder / file.path), (folder / file.path).stat().st_size)


def test_no_file_needs_code_to_be_read(write) -> None:
    """G63: JSON and safetensors; nothing is unpickled."""
    folder, _ = write()
    for name in FILES:
        data = (folder / name).read_bytes()
        if name.endswith(".safetensors"):
            (length,) = struct.unpack("<Q", data[:8])
            data = data[8 : 8 + length]
        assert isinstance(json.loads(data), dict)


def test_a_figure_that_is_no_number_is_left_out(write) -> None:
    """G41: a single NaN among the metrics of a good model ends no training."""
    folder, digest = write(metrics={"overall.score": 0.5, "confidence.nll": math.nan, "link.mrr": math.inf})
    assert json.loads((folder / "scores.json").read_bytes())["metrics"] == {"overall.score": 0.5}
    read_candidate(folder, digest)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0, 1, -1])
def test_an_altered_byte_is_found(write, name: str, place: int) -> None:
    """G63, D36: first, second and last byte of every file."""
    folder, digest = write()
    data = bytearray((folder / name).read_bytes())
    data[place] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(IntegrityError, match=f"{name}: found sha256 [0-9a-f]{{64}} .* it was altered") as caught:
        read_candidate(folder, digest)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_found(write, name: str) -> None:
    """G63, D36."""
    folder, digest = write()
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(IntegrityError, match=name):
        read_candidate(folder, digest)


def test_another_candidate_in_its_place_is_found(write) -> None:
    """G63, D35: each file fits the index, and the index is not the one that was asked for."""
    folder, digest = write()
    scores = json.loads((folder / "scores.json").read_bytes())
    (folder / "scores.json").write_bytes(canonical_json(scores | {"score": 0.9}))
    other = reindex(folder)
    read_candidate(folder, other)
    with pytest.raises(IntegrityError, match=f"found sha256 {other}, expected {digest}"):
        read_candidate(folder, digest)


@pytest.mark.parametrize("name", [*FILES, "index.json"])
def test_a_missing_file_is_named(write, name: str) -> None:
    """G63."""
    folder, digest = write()
    (folder / name).unlink()
    with pytest.raises(NotFoundError, match=name):
        read_candidate(folder, digest)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """G63."""
    with pytest.raises(NotFoundError, match="expected a candidate there"):
        read_candidate(tmp_path / "nowhere")


def test_a_model_of_another_architecture_is_refused(write) -> None:
    """G63, D36: the error names both versions and what to do."""
    folder, _ = write()
    digest = reindex(folder, architecture_version="graph-architecture-v3")
    expected = f"found architecture version graph-architecture-v3, expected {ARCHITECTURE_VERSION}; use the version"
    with pytest.raises(DataError, match=expected):
        read_candidate(folder, digest)


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b"{}",
        b'{"step": 1, "step": 2}',
        b'{"architecture_version": "x", "files": [], "schema_version": 2, "step": 1}',
    ],
)
def test_what_is_no_index_is_one_clear_sentence(tmp_path: Path, index: bytes) -> None:
    """G63."""
    (tmp_path / "index.json").write_bytes(index)
    with pytest.raises(DataError, match=r"index\.json") as caught:
        read_candidate(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_index_names_these_files_and_no_others(write, tmp_path: Path) -> None:
    """G63: nothing outside the folder is looked at, whatever an index says."""
    folder, _ = write()
    index = json.loads((folder / "index.json").read_bytes())
    outside = {"path": "../secret", "sha256": "0" * 64, "bytes": 1}
    for files in (index["files"][1:], [*index["files"], outside]):
        digest = reindex(folder, files=files)
        with pytest.raises(DataError, match=r"found files .* expected"):
            read_candidate(folder, digest)


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("config.json", b'{"name": "x", "unknown": 1}', r"config\.json: no config of a model"),
        ("config.json", b"{", r"config\.json: no config of a model"),
        ("vocabulary.json", b'{"relations": 3}', r"vocabulary\.json: no vocabulary"),
        ("model.safetensors", b"\x80\x04K\x01.", r"model\.safetensors: the weights do not fit"),
    ],
)
def test_files_that_make_no_model_are_refused_in_one_line(write, name: str, data: bytes, what: str) -> None:
    """G63: digests that fit do not make a file good; a pickle in the place of the weights is not opened as one."""
    folder, _ = write()
    (folder / name).write_bytes(data)
    with pytest.raises(DataError, match=what) as caught:
        read_candidate(folder, reindex(folder))
    assert "\n" not in str(caught.value)


def test_weights_of_another_size_do_not_fit(bench, write, tmp_path: Path) -> None:
    """G63: config and weights belong together."""
    folder, _ = write()
    wide = bench.config({"hidden_dim": 16})
    other = tmp_path / "wide"
    other.mkdir()
    write_candidate(
        other, bench.model(wide).state_dict(), wide, bench.dataset.vocabulary, step=1, score=0.0, metrics={}
    )
    shutil.copy(other / "model.safetensors", folder)
    with pytest.raises(DataError, match="the weights do not fit the config beside them"):
        read_candidate(folder, reindex(folder))
