"""A finished dataset, opened for reading: every byte checked, memory-mapped, random access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hopline.config import CurriculumStage
from hopline.datasets.convert import concat_columns, examples_from_columns, take_rows
from hopline.datasets.index import INDEX_FILE, DatasetIndex, SplitIndex
from hopline.datasets.sampler import Eligible
from hopline.datasets.shards import Shard, open_shard, verify_shard
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import IntegrityError, NotFoundError
from hopline.graph import KINDS, ExampleColumns, ReasoningExample

if TYPE_CHECKING:
    from hopline.graph import GraphBatch

__all__ = ["Dataset", "Split", "UnitSizes"]


@dataclass(frozen=True, slots=True, eq=False)
class UnitSizes:
    """Rows, nodes and edges of some units, twins included; int64 ``[units]`` each."""

    rows: NDArray[np.int64]
    nodes: NDArray[np.int64]
    edges: NDArray[np.int64]


class Dataset:
    """A folder of shards with its index; see :meth:`open`."""

    def __init__(self, folder: Path, index: DatasetIndex) -> None:
        self.folder = folder
        self.index = index
        self._splits: dict[str, Split] = {}

    @classmethod
    def open(cls, folder: Path, *, expected_hash: str | None = None) -> Dataset:
        """Open a dataset and check its index; the shards of a split are checked when the split is first asked for.

        Args:
            folder: holds ``index.json`` and the shards.
            expected_hash: the dataset hash under which it was asked for.

        Raises:
            NotFoundError: there is no index.
            IntegrityError: the index was altered, or is another dataset's.
        """
        index = DatasetIndex.load(folder / INDEX_FILE)
        if expected_hash is not None and index.dataset_hash != expected_hash:
            raise IntegrityError(
                f"{folder / INDEX_FILE}: found dataset hash {index.dataset_hash}, expected {expected_hash}"
            )
        return cls(folder, index)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.index.vocabulary

    @property
    def dataset_hash(self) -> str:
        return self.index.dataset_hash

    def split(self, name: str) -> Split:
        """A split, its shards checked against size and sha256 before use.

        Raises:
            NotFoundError: there is no split of that name.
            IntegrityError: a shard is missing, truncated or altered.
        """
        if name not in self._splits:
            if name not in self.index.splits:
                raise NotFoundError(f"{self.folder}: no split '{name}'; there are {', '.join(self.index.splits)}")
            info = self.index.splits[name]
            for shard in info.shards:
                verify_shard(self.folder / shard.file, shard)
            shards = [open_shard(self.folder / shard.file) for shard in info.shards]
            self._splits[name] = Split(name, info, shards, self.vocabulary.num_relations)
        return self._splits[name]


class Split:
    """The units of one split, by position.

    Attributes:
        kinds, hops, statuses: int8 ``[units]``: index into KINDS, hops, index into STATUSES of each unit. Where there is
            a twin, the status is that of the missing example, and the hops are those of the one with more.
    """

    def __init__(self, name: str, info: SplitIndex, shards: Sequence[Shard], num_relations: int) -> None:
        self.name = name
        self.info = info
        self._shards = shards
        self._num_relations = num_relations
        firsts = [np.flatnonzero(shard.values["is_twin"] == 0) for shard in shards]
        self._unit_starts = np.cumsum([0, *map(len, firsts)])
        # First row of each unit within its shard, and the number of rows after the shard's last unit.
        self._first_row = [
            np.append(first, shard.num_rows).astype(np.int32) for first, shard in zip(firsts, shards, strict=True)
        ]
        if int(self._unit_starts[-1]) != info.units:
            raise IntegrityError(f"split {name}: found {self._unit_starts[-1]} examples, expected {info.units}")
        self.kinds = self._per_unit("kind", firsts)
        lasts = [rows[1:] - 1 for rows in self._first_row]
        # Cut evidence has no hops of its own; what it took before is in the twin.
        self.hops = np.maximum(self._per_unit("hops", firsts), self._per_unit("hops", lasts))
        self.statuses = self._per_unit("status", firsts)

    def __len__(self) -> int:
        return int(self._unit_starts[-1])

    def columns(self, units: NDArray[np.int64]) -> ExampleColumns:
        """The rows of some units, in the order given; a twin follows its example. IndexError outside the split."""
        units, owner = self._located(units)
        pieces: list[ExampleColumns] = []
        row_counts = np.empty(len(units), dtype=np.int64)
        order: list[NDArray[np.int64]] = []
        for shard in np.unique(owner).tolist():
            here = np.flatnonzero(owner == shard)
            local = units[here] - self._unit_starts[shard]
            starts = self._first_row[shard][local].astype(np.int64)
            counts = self._first_row[shard][local + 1] - starts
            rows = np.repeat(starts, counts) + _within(counts)
            pieces.append(take_rows(self._shards[shard].values, self._shards[shard].offsets, rows))
            row_counts[here] = counts
            order.append(here)
        joined = concat_columns(pieces)
        if len(pieces) == 1:
            return joined
        # The pieces follow the shards; bring their rows into the order that was asked for.
        gathered = np.concatenate(order)
        ends = np.cumsum(row_counts[gathered])
        first = np.empty(len(units), dtype=np.int64)
        first[gathered] = ends - row_counts[gathered]
        return take_rows(joined.values, joined.offsets, np.repeat(first, row_counts) + _within(row_counts))

    def sizes(self, units: NDArray[np.int64]) -> UnitSizes:
        """How large some units are, in the order given, from the offsets alone. IndexError outside the split."""
        units, owner = self._located(units)
        sizes = np.empty((3, len(units)), dtype=np.int64)
        for shard in np.unique(owner).tolist():
            here = np.flatnonzero(owner == shard)
            local = units[here] - self._unit_starts[shard]
            first, last = self._first_row[shard][local], self._first_row[shard][local + 1]
            offsets = self._shards[shard].offsets
            sizes[0, here] = last - first
            sizes[1, here] = offsets["node"][last] - offsets["node"][first]
            sizes[2, here] = offsets["edge"][last] - offsets["edge"][first]
        return UnitSizes(*sizes)

    def batch(self, units: NDArray[np.int64]) -> GraphBatch:
        """The rows of some units as one batch for the model."""
        from hopline.graph import collate

        return collate(self.columns(units), num_relations=self._num_relations)

    def example(self, unit: int) -> ReasoningExample:
        """One unit as a readable example."""
        return examples_from_columns(self.columns(np.array([unit], dtype=np.int64)))[0]

    def curriculum(self, stages: Sequence[CurriculumStage]) -> tuple[Eligible, ...]:
        """The stages of a curriculum as a view of this split, for :class:`~hopline.datasets.sampler.BatchSampler`."""
        eligible = []
        for stage in stages:
            admitted = np.ones(len(self), dtype=bool)
            if stage.max_hops is not None:
                admitted &= self.hops <= stage.max_hops
            if stage.kinds is not None:
                names = [kind.value for kind in KINDS]
                admitted &= np.isin(self.kinds, [names.index(kind) for kind in stage.kinds])
            eligible.append(Eligible(stage.until_step, np.flatnonzero(admitted)))
        return tuple(eligible)

    def _located(self, units: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Units, checked, and the shard of each."""
        units = np.asarray(units, dtype=np.int64)
        if not len(units) or units.min() < 0 or units.max() >= len(self):
            raise IndexError(f"units must be in [0, {len(self)}) and at least one")
        return units, np.searchsorted(self._unit_starts, units, side="right") - 1

    def _per_unit(self, column: str, rows: Sequence[NDArray[np.signedinteger[Any]]]) -> NDArray[np.int8]:
        parts: list[NDArray[Any]] = [shard.values[column][here] for shard, here in zip(self._shards, rows, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int8)


def _within(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """0..count-1 for each count in turn."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)
