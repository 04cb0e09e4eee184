from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from hopline.errors import DataError
from hopline.lineage import tensors_digest
from hopline.lineage.tensorfile import digest_tensor_file, read_header
from hopline.storage import sha256_bytes, sha256_file


def write(path: Path, header: object, body: bytes = b"", *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + body)
    return path


def tensor(begin: int, end: int, shape: list | None = None, dtype: str = "U8") -> dict:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def test_header_and_digests_are_those_of_the_library(tmp_path):
    tensors = {"b": torch.arange(6, dtype=torch.int16).reshape(2, 3), "a": torch.ones(3), "empty": torch.zeros(0, 4)}
    save_file(tensors, tmp_path / "m.safetensors", {"format": "pt"})
    found = digest_tensor_file(tmp_path / "m.safetensors")
    assert found.sha256 == sha256_file(tmp_path / "m.safetensors")
    assert found.size == (tmp_path / "m.safetensors").stat().st_size
    by_name = {entry.name: (entry.dtype, entry.shape, digest) for entry, digest in found.tensors}
    assert by_name == {
        "a": ("F32", (3,), sha256_bytes(tensors["a"].numpy().tobytes())),
        "b": ("I16", (2, 3), sha256_bytes(tensors["b"].numpy().tobytes())),
        "empty": ("F32", (0, 4), sha256_bytes(b"")),
    }


def test_every_byte_sized_dtype_of_torch_is_known(tmp_path):
    names = "bool uint8 int8 float8_e4m3fn float8_e5m2 int16 uint16 float16 bfloat16 int32 uint32 float32 "
    names += "int64 uint64 float64 complex64"
    save_file({name: torch.zeros(2).to(getattr(torch, name)) for name in names.split()}, tmp_path / "m.safetensors")
    assert len(read_header(tmp_path / "m.safetensors").entries) == len(names.split())


@pytest.mark.parametrize(
    ("header", "body", "length", "problem"),
    [
        (b"{}", b"", 3, "header says that it has 3 bytes"),
        (b"{}", b"", (1 << 64) - 1, "header says that it has"),
        (b"{}", b"", 100_000_001, "header says that it has"),
        (b"[]", b"", None, "does not begin with"),
        (b"{", b"", None, "not JSON"),
        (
            b'{"a": {"dtype":"U8","shape":[1],"data_offsets":[0,1]}, "a": {"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"x",
            None,
            "stands twice",
        ),
        ({"a": tensor(0, 2), "b": tensor(1, 3)}, b"xyz", None, "overlaps"),
        ({"a": tensor(0, 1), "b": tensor(2, 3)}, b"xyz", None, "hole"),
        ({"a": tensor(1, 3)}, b"xyz", None, "hole"),
        ({"a": tensor(0, 4)}, b"xyz", None, "truncated"),
        ({"a": tensor(0, 1 << 70)}, b"xyz", None, "truncated"),
        ({"a": tensor(0, 2)}, b"xyz", None, "longer than its tensors"),
        ({"a": tensor(0, 3, [2])}, b"xyz", None, "expected 2 for U8"),
        ({"a": tensor(0, 3, [-3])}, b"xyz", None, "shape"),
        ({"a": tensor(0, 3, [True, 3])}, b"xyz", None, "shape"),
        ({"a": tensor(0, 3, dtype="F4")}, b"xyz", None, "dtype 'F4'"),
        ({"a": tensor(0, 3, dtype=[])}, b"xyz", None, "dtype"),
        ({"a": {**tensor(0, 3), "data_offsets": [3, 0]}}, b"xyz", None, "data_offsets"),
        ({"a": {**tensor(0, 3), "data_offsets": [0, 3.0]}}, b"xyz", None, "data_offsets"),
        ({"a": {**tensor(0, 3), "more": 1}}, b"xyz", None, "exactly dtype"),
        ({"a": 1}, b"", None, "exactly dtype"),
        ({"__metadata__": {"a": 1}}, b"", None, "__metadata__"),
        ({"__metadata__": []}, b"", None, "__metadata__"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path, header, body, length, problem):
    path = write(tmp_path / "m.safetensors", header, body, length=length)
    with pytest.raises(DataError, match=problem) as caught:
        digest_tensor_file(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"\x00" * 7])
def test_a_file_shorter_than_its_length_field_is_refused(tmp_path, data):
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(DataError, match="truncated"):
        read_header(tmp_path / "m")


@given(data=st.binary(max_size=200), length=st.integers(0, 220))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data, length):
    path = tmp_path_factory.mktemp("any") / "m"
    path.write_bytes(length.to_bytes(8, "little") + data)
    try:
        read_header(path)
    except DataError:
        return
    assert data[:length].startswith(b"{")


def test_tensors_digest_ignores_order_and_files_and_nothing_else(tmp_path):
    a, b = torch.arange(4.0), torch.arange(3)

    def digest(*files: dict) -> str:
        for i, tensors in enumerate(files):
            save_file(tensors, tmp_path / str(i))
        return tensors_digest([tmp_path / str(i) for i in range(len(files))])

    whole = digest({"a": a, "b": b})
    assert digest({"b": b}, {"a": a}) == whole
    others = [
        {"a": a, "c": b},
        {"a": a.reshape(2, 2), "b": b},
        {"a": a, "b": b.to(torch.int32)},
        {"a": a + 1, "b": b},
        {"a": a},
        {"a": a, "b": b, "c": torch.zeros(0)},
    ]
    digests = [digest(other) for other in others]
    assert len({whole, *digests}) == len(others) + 1
    # bf16 never equals the fp32 it was rounded from, even where the values are the same
    assert digest({"a": a.bfloat16(), "b": b}) != whole


def test_tensors_digest_refuses_a_name_in_two_files(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "0")
    save_file({"a": torch.zeros(1)}, tmp_path / "1")
    with pytest.raises(DataError, match="stands in two files"):
        tensors_digest([tmp_path / "0", tmp_path / "1"])


def test_tensors_digest_is_the_documented_one(tmp_path):
    save_file({"b": torch.tensor([1, 2], dtype=torch.uint8), "a": torch.zeros(1, 2)}, tmp_path / "m")
    rows = [["a", "F32", [1, 2], sha256_bytes(bytes(8))], ["b", "U8", [2], sha256_bytes(b"\x01\x02")]]
    assert tensors_digest([tmp_path / "m"]) == sha256_bytes(json.dumps(rows, separators=(",", ":")).encode())
