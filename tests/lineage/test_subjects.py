from __future__ import annotations

import os

import pytest

from hopline.errors import DataError, NotFoundError
from hopline.lineage import describe_files, tensors_digest, weight_files
from hopline.storage import sha256_file


def test_every_file_is_described(stage):
    folder = stage()
    (folder / "manifest.json").write_text("{}")
    (folder / "manifest.dsse.json").write_text("{}")
    (folder / "extra").mkdir()
    (folder / "extra/picture.png").write_bytes(b"png")
    subjects = describe_files(folder)
    paths = [
        "README.md",
        "config.json",
        "extra/picture.png",
        "metrics.json",
        "model.safetensors",
        "report.html",
        "vocabulary.json",
    ]
    assert [file.path for file in subjects.files] == paths
    for file in subjects.files:
        assert file.sha256 == sha256_file(folder / file.path)
        assert file.size == (folder / file.path).stat().st_size
    media = {file.path: file.media_type for file in subjects.files}
    assert media["README.md"] == "text/markdown"
    assert media["extra/picture.png"] == "image/png"
    assert subjects.tensors_digest == tensors_digest(weight_files(folder))


def test_cut_weights_are_the_same_weights(stage, tmp_path):
    one = describe_files(stage(folder=tmp_path / "one"))
    many = describe_files(stage(folder=tmp_path / "many", max_bytes=500))
    assert len(many.files) > len(one.files)
    assert one.tensors_digest == many.tensors_digest


@pytest.mark.parametrize("name", ["c\u043enfig.json", "cafe\u0301.json", "a b", ".hidden", "Config.json", "README.MD"])
def test_a_name_that_cannot_be_published_is_refused(stage, name):
    folder = stage()
    (folder / name).write_text("x")
    with pytest.raises(DataError, match="rename"):
        describe_files(folder)


def test_symbolic_links_and_pipes_are_refused(stage, tmp_path):
    folder = stage()
    (folder / "link").symlink_to(folder / "config.json")
    with pytest.raises(DataError, match="symbolic link"):
        describe_files(folder)
    (folder / "link").unlink()
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(DataError, match="symbolic link"):
        describe_files(folder)
    (folder / "linked").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(DataError, match="special"):
        describe_files(folder)


def test_a_version_needs_weights(tmp_path):
    with pytest.raises(NotFoundError, match="no such folder"):
        describe_files(tmp_path / "gone")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotFoundError, match="no weights"):
        describe_files(tmp_path)


def test_damaged_weights_are_refused(stage, damage):
    folder = stage()
    damage.cut(folder / "model.safetensors")
    with pytest.raises(DataError, match="truncated"):
        describe_files(folder)
