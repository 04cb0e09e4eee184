"""Read the header of a safetensors file without trusting it, and digest each tensor's bytes without holding them.

The format (https://github.com/huggingface/safetensors#format): eight bytes of little-endian length N, N bytes of JSON that
map a tensor's name to its dtype, shape and place in the buffer, then the buffer, which is little-endian and without holes.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from hopline.errors import DataError
from hopline.storage import parse_json
from hopline.storage.local import os_errors

__all__ = ["DTYPE_BYTES", "FileDigest", "Header", "TensorEntry", "digest_tensor_file", "read_header"]

MAX_HEADER_BYTES: Final = 100_000_000
"""The longest header that the format allows."""

DTYPE_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
        **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
        **dict.fromkeys(("U32", "I32", "F32"), 4),
        **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
    }
)
"""dtype -> bytes of one element. The packed types of less than a byte are not taken."""

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: its name, dtype, shape, and where its bytes lie in the buffer (``begin`` to ``end``)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header: ``entries`` in the order of their bytes, ``start`` of the buffer, ``head`` = the bytes before it."""

    entries: tuple[TensorEntry, ...]
    start: int
    head: bytes


@dataclass(frozen=True, slots=True)
class FileDigest:
    """sha256 and size of a whole file, and the sha256 of each tensor's bytes in it."""

    sha256: str
    size: int
    tensors: tuple[tuple[TensorEntry, str], ...]


def read_header(path: Path) -> Header:
    """Read and check a file's header.

    Raises:
        DataError: the header is longer than the file or the format's limit, is not JSON, has a name twice, an unknown dtype,
            a shape that does not fit its bytes, or tensors that overlap, leave a hole, or do not end with the file.
        StoreError: the file cannot be read.
    """
    with os_errors("read", path), path.open("rb") as file:
        return _read_header(file, str(path))


def digest_tensor_file(path: Path) -> FileDigest:
    """Digest a safetensors file as a whole and tensor by tensor, in one pass over its bytes, 1 MiB at a time.

    Raises as ``read_header``, and ``DataError`` if the file ends early.
    """
    whole = hashlib.sha256()
    found: list[tuple[TensorEntry, str]] = []
    with os_errors("read", path), path.open("rb", buffering=0) as file:
        header = _read_header(file, str(path))
        whole.update(header.head)
        size = header.start
        for entry in header.entries:
            digest = hashlib.sha256()
            for chunk in _chunks(file, entry.end - entry.begin, f"{path}: tensor {entry.name!r}"):
                digest.update(chunk)
                whole.update(chunk)
            size += entry.end - entry.begin
            found.append((entry, digest.hexdigest()))
        if file.read(1):
            raise DataError(f"{path}: was changed while it was being read; read it again")
    return FileDigest(whole.hexdigest(), size, tuple(found))


def _read_header(file: BinaryIO, source: str) -> Header:
    size = os.fstat(file.fileno()).st_size
    prefix = _exactly(file, 8, source)
    length = int.from_bytes(prefix, "little")
    if length > MAX_HEADER_BYTES or length > size - 8:
        raise DataError(
            f"{source}: the header says that it has {length} bytes, and the file has {size}; expected a safetensors file of "
            f"at most {MAX_HEADER_BYTES} header bytes"
        )
    text = _exactly(file, length, source)
    if not text.startswith(b"{"):
        raise DataError(f"{source}: the header does not begin with '{{'; expected a safetensors file")
    table = parse_json(text, source=f"{source}: header", max_bytes=MAX_HEADER_BYTES)
    metadata = table.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise DataError(f"{source}: header: __metadata__ holds something else than strings; expected strings")
    entries = sorted(
        (_entry(name, item, source) for name, item in table.items()), key=lambda e: (e.begin, e.end, e.name)
    )
    end = 0
    for entry in entries:
        if entry.begin != end:
            what = "overlaps another tensor" if entry.begin < end else "leaves a hole before it"
            raise DataError(f"{source}: tensor {entry.name!r} {what}: it begins at {entry.begin}, expected {end}")
        end = entry.end
    if 8 + length + end != size:
        what = "truncated" if 8 + length + end > size else "longer than its tensors"
        raise DataError(f"{source}: the file is {what}: {size} bytes, expected {8 + length + end} by its header")
    return Header(tuple(entries), 8 + length, prefix + text)


def _entry(name: str, item: Any, source: str) -> TensorEntry:
    where = f"{source}: tensor {name!r}"
    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data_offsets"}:
        raise DataError(f"{where}: expected exactly dtype, shape and data_offsets in the header")
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise DataError(f"{where}: dtype {dtype!r} is not known; expected one of {', '.join(sorted(DTYPE_BYTES))}")
    if not _integers(shape):
        raise DataError(f"{where}: shape {str(shape)[:80]} is none; expected a list of integers of 0 or more")
    if not _integers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise DataError(f"{where}: data_offsets {str(offsets)[:80]} are none; expected [begin, end]")
    begin, end = offsets
    needed = math.prod(shape) * DTYPE_BYTES[dtype]
    if end - begin != needed:
        raise DataError(f"{where}: has {end - begin} bytes, expected {needed} for {dtype} of shape {shape}")
    return TensorEntry(name, dtype, tuple(shape), begin, end)


def _integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _exactly(file: BinaryIO, count: int, source: str) -> bytes:
    data = bytearray()
    for chunk in _chunks(file, count, source):
        data += chunk
    return bytes(data)


def _chunks(file: BinaryIO, count: int, source: str) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(count, _CHUNK)))
    left = count
    while left:
        read = file.readinto(buffer[: min(left, len(buffer))])  # type: ignore[attr-defined]
        if not read:
            raise DataError(f"{source}: the file is truncated: {left} of {count} bytes are missing")
        left -= read
        yield buffer[:read]
