"""Digests of bytes and files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hopline.storage import sha256_bytes, sha256_file


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1000])
def test_a_file_and_its_bytes_have_one_digest(tmp_path: Path, size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    (tmp_path / "f").write_bytes(data)
    expected = hashlib.sha256(data).hexdigest()
    assert sha256_bytes(data) == sha256_file(tmp_path / "f") == sha256_file(tmp_path / "f", chunk=100) == expected
