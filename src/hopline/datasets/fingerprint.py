"""Digests of logical content: the same for any number of workers, any shard size and any version of pyarrow."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

import hopline
from hopline.datasets.vocabulary import Vocabulary
from hopline.graph import COLUMNS, GROUPS, ExampleColumns
from hopline.storage import canonical_json

__all__ = ["BLOCK_UNITS", "block_digest", "code_digest", "dataset_digest"]

BLOCK_UNITS: Final = 512
"""Units in one block; the last block of a split may hold fewer."""

_FORMAT: Final = "hopline-dataset-v1"


def block_digest(columns: ExampleColumns) -> str:
    """sha256 over the rows of one block: every column, then the lengths of every ragged group, little-endian."""
    digest = hashlib.sha256()
    for name, spec in COLUMNS.items():
        array = np.ascontiguousarray(columns.values[name], dtype=spec.dtype)
        digest.update(f"{name}:{spec.dtype}:{len(array)};".encode())
        digest.update(array.data if len(array) else b"")
    for group in GROUPS:
        lengths = np.ascontiguousarray(np.diff(columns.offsets[group]), dtype="<i4")
        digest.update(f"{group}:{len(lengths)};".encode())
        digest.update(lengths.data if len(lengths) else b"")
    return digest.hexdigest()


def dataset_digest(splits: Mapping[str, tuple[int, int, tuple[str, ...]]], vocabulary: Vocabulary) -> str:
    """The dataset hash: sha256 over the schema, the vocabulary, and each split's units, rows and block digests."""
    document = {
        "format": _FORMAT,
        "columns": [[name, spec.group, spec.dtype] for name, spec in COLUMNS.items()],
        "groups": list(GROUPS),
        "block_units": BLOCK_UNITS,
        "vocabulary": vocabulary.model_dump(mode="json"),
        "splits": {
            name: {"units": units, "rows": rows, "blocks": list(blocks)}
            for name, (units, rows, blocks) in splits.items()
        },
    }
    return hashlib.sha256(canonical_json(document)).hexdigest()


@cache
def code_digest() -> str:
    """sha256 over the sources that decide what a dataset holds: the packages ``graph`` and ``datasets``."""
    root = Path(hopline.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(file for package in ("graph", "datasets") for file in (root / package).rglob("*.py")):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
