"""Everything that a dataset claims of itself, checked: one claim each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hopline.datasets import DatasetIndex, Split, SplitIndex
from hopline.datasets.fingerprint import BLOCK_UNITS, block_digest, code_digest, dataset_digest
from hopline.errors import DataError, IntegrityError
from hopline.graph import KINDS, STATUSES
from hopline.lineage import Claim
from hopline.stages.find_dataset import DatasetPlace

__all__ = ["check_dataset"]


def check_dataset(place: DatasetPlace, *, deep: bool = False) -> Iterator[Claim]:
    """Check a dataset where it lies: the shards of a remote one are fetched again, whatever a cache has.

    Args:
        place: see :func:`hopline.stages.find_dataset.find_dataset`.
        deep: compute the dataset hash again from the rows of its shards.

    Raises:
        NotFoundError: there is no dataset.
        StoreError: the store refuses or cannot be reached.
    """
    with tempfile.TemporaryDirectory(prefix="hopline-verify-") as scratch:
        try:
            dataset = place.open(cache=Path(scratch))
        except (DataError, IntegrityError) as error:
            yield Claim("index", "FAIL", str(error))
            return
        index = dataset.index
        yield Claim("index", "OK", f"{index.dataset_hash}, computed again from the digests that it lists")
        blocks: dict[str, list[str]] = {}
        for name, said in index.splits.items():
            try:
                split = dataset.split(name)
            except (DataError, IntegrityError) as error:
                yield Claim(f"{name} shards", "FAIL", str(error))
                continue
            size = sum(shard.bytes for shard in said.shards)
            files = f"{len(said.shards)} file{'s' * (len(said.shards) != 1)}"
            yield Claim(f"{name} shards", "OK", f"{files}, every byte of {size / 1e6:.1f} MB")
            yield _counts(split, said)
            if deep:
                blocks[name] = list(_blocks(split))
        yield _content(index, blocks) if deep else Claim("content", "NOT CHECKED", "ask for a --deep check")
        yield _leakage(index)
        yield _generator(index)


def _counts(split: Split, said: SplitIndex) -> Claim:
    """What the index counts, counted again."""
    name = f"{split.name} counts"
    found: dict[str, object] = {
        "examples": len(split),
        "rows": split.num_rows,
        "kinds": _count(split.kinds, [kind.value for kind in KINDS]),
        "hops": _count(split.hops, [str(hops) for hops in range(128)]),
        "statuses": _count(split.row_statuses, [status.value for status in STATUSES]),
    }
    listed: dict[str, object] = {
        "examples": said.units,
        "rows": said.rows,
        "kinds": said.kinds,
        "hops": said.hops,
        "statuses": said.statuses,
    }
    for what, value in found.items():
        if value != listed[what]:
            return Claim(name, "FAIL", f"{what}: found {value}, the index says {listed[what]}")
    return Claim(name, "OK", f"{said.units} examples in {said.rows} rows, by kind, status and hops")


def _count(values: NDArray[np.int8], names: Sequence[str]) -> dict[str, int]:
    """How often each name occurs; a number that has none stands for itself."""
    found, counts = np.unique(values, return_counts=True)
    pairs = zip(found.tolist(), counts.tolist(), strict=True)
    return {names[value] if 0 <= value < len(names) else str(value): count for value, count in pairs}


def _blocks(split: Split) -> Iterator[str]:
    for start in range(0, len(split), BLOCK_UNITS):
        yield block_digest(split.columns(np.arange(start, min(start + BLOCK_UNITS, len(split)))))


def _content(index: DatasetIndex, blocks: dict[str, list[str]]) -> Claim:
    """The dataset hash, from the rows."""
    for name, said in index.splits.items():
        if name not in blocks:
            return Claim("content", "FAIL", f"the shards of {name} cannot be read")
        for number, (found, expected) in enumerate(zip(blocks[name], said.blocks, strict=False)):
            if found != expected:
                return Claim("content", "FAIL", f"{name}, block {number}: found {found}, the index says {expected}")
    splits = {name: (said.units, said.rows, tuple(blocks[name])) for name, said in index.splits.items()}
    found = dataset_digest(splits, index.vocabulary)
    if found != index.dataset_hash:
        return Claim("content", "FAIL", f"found dataset hash {found}, the index says {index.dataset_hash}")
    return Claim("content", "OK", f"{found}, computed again from the rows of {sum(map(len, blocks.values()))} blocks")


def _leakage(index: DatasetIndex) -> Claim:
    """Whether the gate, as it was recorded, had been passed."""
    leakage = index.leakage
    if leakage.held_out_edges or leakage.duplicate_queries:
        return Claim(
            "leakage gate",
            "FAIL",
            f"recorded: {leakage.held_out_edges} held-out edges in graphs, {leakage.duplicate_queries} queries twice",
        )
    return Claim("leakage gate", "OK", "recorded: no held-out edge in a graph, no query in two splits")


def _generator(index: DatasetIndex) -> Claim:
    """Whether this version would make the same."""
    said = index.generator
    if said.code_digest == code_digest():
        return Claim("generator", "OK", f"{said.name} {said.version}, the code of this version")
    return Claim(
        "generator", "NOT CHECKED", f"{said.name} {said.version}, other code than here: {said.code_digest[:12]}"
    )
