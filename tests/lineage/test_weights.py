from __future__ import annotations

import json

import pytest
import torch

from hopline.errors import DataError, NotFoundError
from hopline.lineage import read_weights, tensors_digest, weight_files, write_weight_shards
from hopline.storage import sha256_file


def tensors() -> dict[str, torch.Tensor]:
    shared = torch.arange(300.0)
    return {
        "z": shared,
        "tied": shared,  # the same memory twice
        "turned": torch.arange(300.0).reshape(30, 10).T,
        "half": torch.ones(100, dtype=torch.bfloat16),
        "scalar": torch.tensor(3),
        "none": torch.zeros(0, 5),
    }


def test_one_file_comes_back(tmp_path):
    assert write_weight_shards(tensors(), tmp_path) == [tmp_path / "model.safetensors"]
    back = read_weights(tmp_path)
    assert back.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


def test_several_files_hold_the_same_tensors_and_keep_the_limit(tmp_path):
    one, many = tmp_path / "one", tmp_path / "many"
    write_weight_shards(tensors(), one)
    files = write_weight_shards(tensors(), many, 2000)
    assert [file.name for file in files] == [
        f"model-0000{i + 1}-of-0000{len(files)}.safetensors" for i in range(len(files))
    ]
    assert len(files) > 2
    assert all(file.stat().st_size <= 2000 for file in files)
    assert tensors_digest(files) == tensors_digest([one / "model.safetensors"])
    assert all(torch.equal(read_weights(many)[name], tensor) for name, tensor in tensors().items())
    index = json.loads((many / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in tensors().values())
    assert index["weight_map"].keys() == tensors().keys()


def test_a_tensor_above_the_limit_has_a_file_of_its_own(tmp_path):
    files = write_weight_shards({"a": torch.zeros(10), "b": torch.zeros(1000), "c": torch.zeros(10)}, tmp_path, 1000)
    assert len(files) == 3


def test_the_same_tensors_give_the_same_bytes_in_any_order(tmp_path):
    forward, backward = tensors(), dict(reversed(tensors().items()))
    for max_bytes in (1 << 30, 2000):
        files = [write_weight_shards(t, tmp_path / n, max_bytes) for n, t in (("f", forward), ("b", backward))]
        assert [sha256_file(p) for p in files[0]] == [sha256_file(p) for p in files[1]]


def test_weights_of_before_are_removed(tmp_path):
    write_weight_shards(tensors(), tmp_path, 2000)
    write_weight_shards(tensors(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    write_weight_shards(tensors(), tmp_path, 2000)
    assert not (tmp_path / "model.safetensors").exists()
    assert len(weight_files(tmp_path)) > 2


@pytest.mark.parametrize("bad", [{}, {"__metadata__": torch.zeros(1)}])
def test_nothing_to_write_is_refused(tmp_path, bad):
    with pytest.raises(DataError, match="at least one tensor"):
        write_weight_shards(bad, tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match=r"expected model\.safetensors"):
        read_weights(tmp_path)


def test_both_forms_at_once_are_refused(tmp_path):
    write_weight_shards(tensors(), tmp_path, 2000)
    write_weight_shards(tensors(), tmp_path / "one")
    (tmp_path / "one/model.safetensors").rename(tmp_path / "model.safetensors")
    with pytest.raises(DataError, match="holds both"):
        read_weights(tmp_path)


@pytest.mark.parametrize("name", ["../model-00001-of-00002.safetensors", "/etc/passwd", "model.bin", 3, None])
def test_an_index_cannot_name_other_files(tmp_path, name):
    write_weight_shards(tensors(), tmp_path, 2000)
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["z"] = name
    path.write_text(json.dumps(index))
    with pytest.raises(DataError, match="'z' is said to be in"):
        read_weights(tmp_path)


def test_a_missing_file_and_a_wrong_index_are_refused(tmp_path):
    files = write_weight_shards(tensors(), tmp_path, 2000)
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["more"] = files[0].name
    path.write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"disagrees with .+ on tensor 'more'"):
        read_weights(tmp_path)
    del index["weight_map"]["more"]
    path.write_text(json.dumps(index))
    files[-1].unlink()
    with pytest.raises(NotFoundError, match="is missing"):
        read_weights(tmp_path)
    path.write_text("{}")
    with pytest.raises(DataError, match="no weight_map"):
        read_weights(tmp_path)
