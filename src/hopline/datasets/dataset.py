"""A finished dataset, opened for reading: every byte checked, memory-mapped, random access."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from hopline.config import CurriculumStage
from hopline.datasets.convert import examples_from_columns
from hopline.datasets.index import INDEX_FILE, DatasetIndex, ShardInfo
from hopline.datasets.mapped import MappedShards
from hopline.datasets.sampler import Eligible, UnitSet
from hopline.datasets.shards import Shard, open_shard, verify_shard
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import IntegrityError, NotFoundError
from hopline.graph import KINDS, ExampleColumns, ReasoningExample

if TYPE_CHECKING:
    from hopline.graph import GraphBatch

__all__ = ["Dataset", "ShardFiles", "Split", "UnitSizes"]


@dataclass(frozen=True, slots=True, eq=False)
class UnitSizes:
    """Rows, nodes and edges of some units, twins included; int64 ``[units]`` each."""

    rows: NDArray[np.int64]
    nodes: NDArray[np.int64]
    edges: NDArray[np.int64]


class ShardFiles(Protocol):
    """Where the files of shards are."""

    def files(self, shards: Sequence[ShardInfo]) -> AbstractContextManager[list[Path]]:
        """The local files of some shards, every byte checked; they stay until the block ends, and need not longer.

        Raises IntegrityError if one is missing, truncated or altered.
        """


class Dataset:
    """An index, and shards that are mapped when their split is first asked for; see :meth:`open`.

    Args:
        index: checked.
        shards: where its shards are.
        name: what errors call it.
    """

    def __init__(self, index: DatasetIndex, shards: ShardFiles, *, name: str) -> None:
        self.index = index
        self.name = name
        self._shards = shards
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
        return cls(index, _FolderShards(folder), name=str(folder))

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
            self._splits[name] = self._open(name, self._shards_of(name))
        return self._splits[name]

    def part(self, name: str, shards: int) -> Split:
        """A split as if it had but some of its shards, evenly spread; where it has no more, all of it. Errors as above."""
        whole = self._shards_of(name)
        if len(whole) <= shards:
            return self.split(name)
        chosen = np.linspace(0, len(whole) - 1, shards).round().astype(int).tolist()
        return self._open(name, [whole[number] for number in chosen])

    def head(self, name: str, most: int) -> list[ReasoningExample]:
        """The first examples of a split, at most ``most``; only the shards that hold them are read. Errors as above."""
        shards = self._shards_of(name)
        ends = itertools.accumulate(shard.units for shard in shards)
        needed = sum(end - shard.units < most for end, shard in zip(ends, shards, strict=True))
        units = self._open(name, shards[:needed])
        return [units.example(unit) for unit in range(min(most, len(units)))]

    def _shards_of(self, name: str) -> Sequence[ShardInfo]:
        if name not in self.index.splits:
            raise NotFoundError(f"{self.name}: no split '{name}'; there are {', '.join(self.index.splits)}")
        return self.index.splits[name].shards

    def _open(self, name: str, shards: Sequence[ShardInfo]) -> Split:
        units = sum(shard.units for shard in shards)
        with self._shards.files(shards) as paths:
            return Split(name, units, map(open_shard, paths), self.vocabulary.num_relations)


@dataclass(frozen=True, slots=True)
class _FolderShards:
    """Shards in a local folder."""

    folder: Path

    @contextmanager
    def files(self, shards: Sequence[ShardInfo]) -> Iterator[list[Path]]:
        paths = [self.folder / shard.file for shard in shards]
        # Digests are computed outside the interpreter lock.
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            deque(pool.map(verify_shard, paths, shards), maxlen=0)
        yield paths


class Split:
    """The units of one split, by position.

    Args:
        name: of the split.
        units: how many there have to be.
        shards: mapped.
        num_relations: R.
    """

    def __init__(self, name: str, units: int, shards: Iterable[Shard], num_relations: int) -> None:
        self.name = name
        self._rows = MappedShards(shards)
        self._num_relations = num_relations
        # First row of each unit within its shard, and the rows of the shard after its last unit: with those of the shards
        # before, unit u of shard s is at u + s.
        bounds = []
        for shard, rows in enumerate(self._rows.num_rows.tolist()):
            firsts = np.flatnonzero(self._rows.column("is_twin", shard) == 0)
            bounds.append(np.append(firsts, rows).astype(np.int32))
            if bounds[-1][0] or np.diff(bounds[-1]).max(initial=0) > 2:
                raise IntegrityError(f"split {name}: a twin does not follow its example; make the dataset again")
        self._unit_starts = np.cumsum([0, *(len(each) - 1 for each in bounds)])
        self._first_row = np.concatenate(bounds) if bounds else np.zeros(0, np.int32)
        if len(self) != units:
            raise IntegrityError(f"split {name}: found {len(self)} examples, expected {units}")

    def __len__(self) -> int:
        return int(self._unit_starts[-1])

    @property
    def num_rows(self) -> int:
        """Rows of all units, twins too."""
        return int(self._rows.num_rows.sum())

    @property
    def kinds(self) -> NDArray[np.int8]:
        """Index into KINDS of each unit, int8 ``[units]``."""
        return self._per_unit("kind")

    @property
    def statuses(self) -> NDArray[np.int8]:
        """Index into STATUSES of each unit, int8 ``[units]``; where there is a twin, that of the missing example."""
        return self._per_unit("status")

    @property
    def row_statuses(self) -> NDArray[np.int8]:
        """Index into STATUSES of each row, twins too; int8 ``[rows]``."""
        parts = [self._rows.column("status", shard) for shard in range(len(self._rows.num_rows))]
        return np.concatenate(parts) if parts else np.zeros(0, np.int8)

    @property
    def hops(self) -> NDArray[np.int8]:
        """Hops of each unit, int8 ``[units]``; where there is a twin, those of the one with more."""
        # Cut evidence has no hops of its own; what it took before is in the twin.
        return np.maximum(self._per_unit("hops"), self._per_unit("hops", last=True))

    def sizes(self, units: NDArray[np.int64]) -> UnitSizes:
        """How large some units are, in the order given, from the offsets alone. IndexError outside the split."""
        shard, first, last = self._located(units)
        lengths = (self._rows.lengths(group, shard, first, last) for group in ("node", "edge"))
        return UnitSizes(last - first, *lengths)

    def example_sizes(self) -> UnitSizes:
        """How large every unit is without its twin."""
        shard, first, _ = self._located(np.arange(len(self)))
        lengths = (self._rows.lengths(group, shard, first, first + 1) for group in ("node", "edge"))
        return UnitSizes(np.ones_like(first), *lengths)

    def columns(self, units: NDArray[np.int64]) -> ExampleColumns:
        """The rows of some units, in the order given; a twin follows its example. IndexError outside the split."""
        shard, first, last = self._located(units)
        counts = last - first
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1]) + np.repeat(first - ends + counts, counts)
        return self._rows.take(np.repeat(shard, counts), rows)

    def batch(self, units: NDArray[np.int64]) -> GraphBatch:
        """The rows of some units as one batch for the model."""
        from hopline.graph import collate

        return collate(self.columns(units), num_relations=self._num_relations)

    def example(self, unit: int) -> ReasoningExample:
        """One unit as a readable example."""
        return examples_from_columns(self.columns(np.array([unit], dtype=np.int64)))[0]

    def curriculum(self, stages: Sequence[CurriculumStage]) -> tuple[Eligible, ...]:
        """The stages of a curriculum as a view of this split, for :class:`~hopline.datasets.sampler.BatchSampler`."""
        return tuple(Eligible(stage.until_step, UnitSet.of(self._admitted(stage))) for stage in stages)

    def _admitted(self, stage: CurriculumStage) -> NDArray[np.bool_]:
        admitted = np.ones(len(self), dtype=bool)
        if stage.max_hops is not None:
            admitted &= self.hops <= stage.max_hops
        if stage.kinds is not None:
            names = [kind.value for kind in KINDS]
            admitted &= np.isin(self.kinds, [names.index(kind) for kind in stage.kinds])
        return admitted

    def _located(self, units: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The shard of each unit, its first row there, and the row after its last."""
        units = np.asarray(units, dtype=np.int64)
        if not len(units) or units.min() < 0 or units.max() >= len(self):
            raise IndexError(f"units must be in [0, {len(self)}) and at least one")
        shard = np.searchsorted(self._unit_starts, units, side="right") - 1
        at = units + shard
        return shard, self._first_row[at].astype(np.int64), self._first_row[at + 1].astype(np.int64)

    def _per_unit(self, column: str, *, last: bool = False) -> NDArray[np.int8]:
        """A column of the first or the last row of every unit."""
        values = np.empty(len(self), dtype=np.int8)
        for shard, (start, end) in enumerate(itertools.pairwise(self._unit_starts.tolist())):
            rows = self._first_row[start + shard : end + shard + 1]
            values[start:end] = self._rows.column(column, shard)[rows[1:] - 1 if last else rows[:-1]]
        return values
