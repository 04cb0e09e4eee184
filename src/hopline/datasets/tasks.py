"""One shard as a task: make its units, digest its blocks, write the file, and say what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from hopline.datasets.column_checks import check_rows
from hopline.datasets.convert import concat_columns, examples_from_columns, slice_rows, take_rows
from hopline.datasets.fingerprint import BLOCK_UNITS, block_digest
from hopline.datasets.index import ShardInfo
from hopline.datasets.patterns import Patterns
from hopline.datasets.plan import Plan
from hopline.datasets.shards import write_shard
from hopline.datasets.splits import SPLITS
from hopline.datasets.validation import check_solution
from hopline.graph import KINDS, STATUSES, ExampleColumns, QueryKind

__all__ = ["ShardResult", "ShardTask", "read_keys", "run_task", "shard_tasks"]

_CHECK_ALL: Final = 30_000
"""Datasets of up to this many units are solved again whole when they are made."""
_ONE_IN: Final = 32
"""Of larger ones, one unit in so many."""

_KEYS_SUFFIX: Final = ".keys.npy"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardTask(_Frozen):
    """Units ``[first, last)`` of a split.

    The last block that begins in the shard may end in a later one: units up to ``made`` are made, for its digest alone.
    ``versions`` says which of them are made anew because their query is in an earlier split too (unit -> version).
    """

    split: str
    number: int
    first: int
    last: int
    made: int
    versions: dict[int, int] = {}

    @property
    def file(self) -> str:
        return f"{self.split}-{self.number:05d}.arrow"


class ShardResult(_Frozen):
    """A finished shard. ``blocks`` are the digests of the blocks that begin in it."""

    task: ShardTask
    info: ShardInfo
    blocks: dict[int, str]
    kinds: dict[str, int]
    statuses: dict[str, int]
    hops: dict[int, int]
    validated: int
    held_out_edges: int


def shard_tasks(plan: Plan, versions: Mapping[str, Mapping[int, int]]) -> list[ShardTask]:
    """The shards of a dataset, in order."""
    tasks = []
    for split in SPLITS:
        units, size = plan.units(split), plan.config.shard_size
        for first in range(0, units, size):
            last = min(first + size, units)
            begun = (last - 1) // BLOCK_UNITS * BLOCK_UNITS
            made = max(last, min(begun + BLOCK_UNITS, units)) if begun >= first else last
            here = {unit: version for unit, version in versions.get(split, {}).items() if first <= unit < made}
            tasks.append(ShardTask(split=split, number=first // size, first=first, last=last, made=made, versions=here))
    return tasks


def run_task(plan: Plan, task: ShardTask, out: Path, work: Path, progress: Callable[[int], None]) -> ShardResult:
    """Make one shard in ``out``, by way of ``work``; ``progress`` hears how many of its units were made since last time.

    The canonical keys of its units are left in the work area; see :func:`read_keys`.
    """
    maker = _Maker(plan, task)
    pieces = []
    for first in range(task.first, task.made, plan.units_at_once):
        last = min(first + plan.units_at_once, task.made)
        pieces.append(maker.make(first, last))
        progress(max(0, min(last, task.last) - first))
    made = concat_columns(pieces)
    pieces.clear()
    first_row = np.append(np.flatnonzero(made.values["is_twin"] == 0), made.num_rows)
    blocks: dict[int, str] = {}
    for number in range(-(-task.first // BLOCK_UNITS), -(-task.last // BLOCK_UNITS)):
        first = number * BLOCK_UNITS - task.first
        last = min(first + BLOCK_UNITS, task.made - task.first)
        blocks[number] = block_digest(slice_rows(made, int(first_row[first]), int(first_row[last])))
    columns = slice_rows(made, 0, int(first_row[task.last - task.first]))
    kinds = Counter(columns.values["kind"][first_row[: task.last - task.first]].tolist())
    statuses = Counter(columns.values["status"].tolist())
    keys = np.concatenate(maker.keys)[: task.last - task.first]
    with (work / f"{task.file}{_KEYS_SUFFIX}").open("wb") as file:
        np.save(file, keys, allow_pickle=False)
    return ShardResult(
        task=task,
        info=write_shard(columns, out / task.file, work),
        blocks=blocks,
        kinds={KINDS[kind].value: kinds[kind] for kind in sorted(kinds)},
        statuses={STATUSES[status].value: statuses[status] for status in sorted(statuses)},
        hops=dict(sorted(Counter(_unit_hops(columns).tolist()).items())),
        validated=maker.validated,
        held_out_edges=maker.held_out_edges,
    )


def read_keys(task: ShardTask, work: Path) -> NDArray[np.uint64]:
    """The canonical keys of a shard's units, as mapped from the work area.

    Raises:
        OSError, EOFError, ValueError: they are not there, or not whole.
    """
    path = work / f"{task.file}{_KEYS_SUFFIX}"
    keys: NDArray[np.uint64] = np.load(path, mmap_mode="r", allow_pickle=False)
    if keys.shape != (task.last - task.first,) or keys.dtype != np.uint64:
        raise ValueError(f"{path}: not the keys of this shard")
    return keys


class _Maker:
    """Makes and checks the units of one task, piece by piece."""

    def __init__(self, plan: Plan, task: ShardTask) -> None:
        self._plan = plan
        self._task = task
        self._patterns = Patterns.of(plan.patterns)
        self._stride = 1 if plan.total <= _CHECK_ALL else _ONE_IN
        self.keys: list[NDArray[np.uint64]] = []
        self.validated = 0
        self.held_out_edges = 0

    def make(self, first: int, last: int) -> ExampleColumns:
        units, versions = np.arange(first, last), np.zeros(last - first, dtype=np.int64)
        for unit, version in self._task.versions.items():
            if first <= unit < last:
                versions[unit - first] = version
        columns, keys = self._plan.rows(self._task.split, units, versions)
        self.keys.append(keys)
        check_rows(columns, self._plan.vocabulary.num_relations, paths_end_in_answers=self._plan.imported is None)
        if self._plan.imported is None:
            self._solve_sample(columns, units)
        self.held_out_edges += self._held_out(columns)
        return columns

    def _solve_sample(self, columns: ExampleColumns, units: NDArray[np.int64]) -> None:
        """Derive the answers of a sample of the units from their graphs again."""
        chosen = (units % self._stride == 0) & (units < self._task.last)
        unit_of_row = np.cumsum(columns.values["is_twin"] == 0) - 1
        rows = np.flatnonzero(chosen[unit_of_row])
        if not len(rows):
            return
        for example in examples_from_columns(take_rows(columns.values, columns.offsets, rows)):
            # The answers of link queries from triples are what was held out, not what their graphs say.
            if self._plan.data is None or example.kind is not QueryKind.LINK:
                check_solution(example, self._plan.rules, self._patterns)
            self.validated += 1 if example.pair is None else 2

    def _held_out(self, columns: ExampleColumns) -> int:
        """How many edges are triples of valid, calibration or test, where nodes have identities."""
        if not self._plan.vocabulary.identity or not len(self._plan.held_out):
            return 0
        values, offsets = columns.values, columns.offsets
        starts = np.repeat(offsets["node"][:-1], np.diff(offsets["edge"]))
        entity: NDArray[np.int64] = values["node_entity"].astype(np.int64)
        facts = self._plan.fact_numbers(
            entity[values["edge_source"] + starts],
            values["edge_relation"].astype(np.int64),
            entity[values["edge_target"] + starts],
        )
        return int(np.count_nonzero(np.isin(facts, self._plan.held_out)))


def _unit_hops(columns: ExampleColumns) -> NDArray[np.int8]:
    """The hops of each unit: the most of its rows."""
    firsts = np.flatnonzero(columns.values["is_twin"] == 0)
    hops: NDArray[np.int8] = np.maximum.reduceat(columns.values["hops"], firsts)
    return hops
