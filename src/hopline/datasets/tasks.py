"""One shard as a task: make its units, digest its blocks, write the file, and say what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from hopline.datasets.convert import columns_from_examples, concat_columns, take_rows
from hopline.datasets.fingerprint import BLOCK_UNITS, block_digest
from hopline.datasets.index import ShardInfo
from hopline.datasets.leakage import structure_keys
from hopline.datasets.patterns import Patterns
from hopline.datasets.plan import Plan
from hopline.datasets.shards import write_shard
from hopline.datasets.splits import SPLITS
from hopline.datasets.validation import check_solution, check_structure
from hopline.graph import KINDS, STATUSES, ExampleColumns, QueryKind, ReasoningExample

__all__ = ["ShardResult", "ShardTask", "run_task", "shard_tasks"]

_CHECK_ALL: Final = 30_000
"""Datasets of up to this many units are checked by the solver whole; of larger ones, one unit in sixteen."""


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
    keys: tuple[int, ...]
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
    """Make one shard in ``out``, by way of ``work``; ``progress`` hears how many of its units were made since last time."""
    begun = range(-(-task.first // BLOCK_UNITS) * BLOCK_UNITS, task.last, BLOCK_UNITS)
    bounds = sorted({task.first, task.made, *begun})
    maker = _Maker(plan, task)
    pieces = []
    blocks: dict[int, str] = {}
    for first, last in pairwise(bounds):
        columns = maker.make(first, last)
        if first % BLOCK_UNITS == 0:
            blocks[first // BLOCK_UNITS] = block_digest(columns)
        if last > task.last:
            columns = _first_units(columns, task.last - first)
        pieces.append(columns)
        progress(min(last, task.last) - first)
    columns = concat_columns(pieces)
    first_rows = columns.values["is_twin"] == 0
    kinds = Counter(columns.values["kind"][first_rows].tolist())
    statuses = Counter(columns.values["status"].tolist())
    return ShardResult(
        task=task,
        info=write_shard(columns, out / task.file, work),
        blocks=blocks,
        kinds={KINDS[kind].value: kinds[kind] for kind in sorted(kinds)},
        statuses={STATUSES[status].value: statuses[status] for status in sorted(statuses)},
        hops=dict(sorted(Counter(_unit_hops(columns).tolist()).items())),
        keys=tuple(maker.keys[: task.last - task.first]),
        validated=maker.validated,
        held_out_edges=maker.held_out_edges,
    )


class _Maker:
    """Makes and checks the units of one task, piece by piece."""

    def __init__(self, plan: Plan, task: ShardTask) -> None:
        self._plan = plan
        self._task = task
        self._patterns = Patterns.of(plan.patterns)
        self._stride = 1 if plan.total <= _CHECK_ALL else 16
        self.keys: list[int] = []
        self.validated = 0
        self.held_out_edges = 0

    def make(self, first: int, last: int) -> ExampleColumns:
        split, versions = self._task.split, self._task.versions
        examples: list[ReasoningExample] = []
        keys: list[int | None] = []
        for index in range(first, last):
            example, key = self._plan.unit(split, index, versions.get(index, 0))
            if index % self._stride == 0 and index < self._task.last:
                self._check(example)
            examples.append(example)
            keys.append(key)
        columns = columns_from_examples(examples)
        if None in keys:
            structural = structure_keys(columns)[columns.values["is_twin"] == 0].tolist()
            self.keys += [known if known is not None else made for known, made in zip(keys, structural, strict=True)]
        else:
            self.keys += [key for key in keys if key is not None]
        self.held_out_edges += self._held_out(columns)
        return columns

    def _check(self, example: ReasoningExample) -> None:
        check_structure(example, self._plan.vocabulary.num_relations)
        from_triples = self._plan.data is not None and example.kind is QueryKind.LINK
        if not from_triples and self._plan.imported is None:
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


def _first_units(columns: ExampleColumns, units: int) -> ExampleColumns:
    firsts = np.append(np.flatnonzero(columns.values["is_twin"] == 0), columns.num_rows)
    return take_rows(columns.values, columns.offsets, np.arange(firsts[units]))
