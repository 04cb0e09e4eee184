"""Shards: Arrow IPC files of one record batch, ragged columns as lists, read through a memory map."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

from hopline.datasets.index import ShardInfo
from hopline.errors import DataError, IntegrityError
from hopline.graph import COLUMNS, ExampleColumns
from hopline.storage import sha256_bytes, sha256_file

__all__ = ["Shard", "open_shard", "verify_shard", "write_shard"]

Ints = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The columns of one shard, as views of the mapped file; offsets are int32 as Arrow stores them."""

    values: Mapping[str, Ints]
    offsets: Mapping[str, Ints]

    @property
    def num_rows(self) -> int:
        return len(self.values["example_id"])


def write_shard(columns: ExampleColumns, path: Path, scratch: Path) -> ShardInfo:
    """Write rows as one shard, in place at once or not at all; ``scratch`` is a folder on the same disk."""
    arrays: list[Any] = []
    for name, spec in COLUMNS.items():
        array: Any = pa.array(np.ascontiguousarray(columns.values[name], dtype=spec.dtype))
        if spec.group != "row":
            if spec.group == "step":
                array = pa.ListArray.from_arrays(_offsets(columns, "step"), array)
            group = "path" if spec.group == "step" else spec.group
            array = pa.ListArray.from_arrays(_offsets(columns, group), array)
        arrays.append(array)
    batch = pa.record_batch(arrays, schema=_schema())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = memoryview(sink.getvalue())
    temporary = scratch / f"{path.name}.{os.getpid()}"
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    units = int(np.count_nonzero(columns.values["is_twin"] == 0))
    return ShardInfo(file=path.name, units=units, rows=columns.num_rows, bytes=len(data), sha256=sha256_bytes(data))


def verify_shard(path: Path, info: ShardInfo) -> None:
    """Check a shard's size and digest.

    Raises:
        IntegrityError: it is missing, truncated or altered; the message names the file, and both digests.
    """
    try:
        size = path.stat().st_size
        digest = sha256_file(path)
    except FileNotFoundError:
        raise IntegrityError(f"{path}: the shard is missing, expected sha256 {info.sha256}") from None
    except OSError as error:
        raise IntegrityError(f"{path}: cannot be read ({error.strerror}), expected sha256 {info.sha256}") from None
    if size != info.bytes or digest != info.sha256:
        raise IntegrityError(
            f"{path}: found sha256 {digest} ({size} bytes), expected {info.sha256} ({info.bytes} bytes); "
            "the shard was altered or truncated: make or fetch the dataset again"
        )


def open_shard(path: Path) -> Shard:
    """Map a shard whose digest has been checked. DataError if it is no shard of this schema, or not well formed."""
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            if not reader.schema.equals(_schema()) or reader.num_record_batches != 1:
                raise DataError(f"{path}: not a shard of this version; make the dataset again")
            batch = reader.get_batch(0)
            batch.validate(full=True)  # offsets rise, and stay inside their values
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: not an Arrow file: {' '.join(str(error).split())}") from None
    values: dict[str, Ints] = {}
    offsets: dict[str, Ints] = {}
    for index, (name, spec) in enumerate(COLUMNS.items()):
        array: Any = batch.column(index)
        if spec.group != "row":
            group = "path" if spec.group == "step" else spec.group
            offsets[group] = array.offsets.to_numpy()
            array = array.values
            if spec.group == "step":
                offsets["step"] = array.offsets.to_numpy()
                array = array.values
        values[name] = array.to_numpy()
    return Shard(values, offsets)


@cache
def _schema() -> pa.Schema:
    fields = []
    for name, spec in COLUMNS.items():
        kind: Any = pa.from_numpy_dtype(np.dtype(spec.dtype))
        if spec.group != "row":
            kind = pa.list_(pa.list_(kind)) if spec.group == "step" else pa.list_(kind)
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def _offsets(columns: ExampleColumns, group: str) -> Any:
    offsets = columns.offsets[group]
    if offsets[-1] > np.iinfo(np.int32).max:
        raise DataError(f"a shard would hold {offsets[-1]} values of {group}; lower dataset.shard_size")
    return pa.array(offsets.astype(np.int32))
