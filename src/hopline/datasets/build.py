"""Build a dataset: shards made by worker processes, the leakage gate, the index last. A killed build continues."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopline.config import DatasetConfig
from hopline.datasets.fingerprint import code_digest, dataset_digest
from hopline.datasets.index import (
    INDEX_FILE,
    SCHEMA_VERSION,
    DatasetIndex,
    GeneratorInfo,
    Leakage,
    SourceFiles,
    SplitIndex,
)
from hopline.datasets.leakage import repeated_units
from hopline.datasets.plan import Plan, make_plan
from hopline.datasets.pool import run_tasks
from hopline.datasets.shards import verify_shard
from hopline.datasets.source import snapshot_source
from hopline.datasets.splits import SPLITS
from hopline.datasets.tasks import ShardResult, ShardTask, read_keys, shard_tasks
from hopline.errors import DataError, IntegrityError
from hopline.progress import Event, EventSink, NullSink

__all__ = ["GENERATOR_NAME", "GENERATOR_VERSION", "build_dataset"]

GENERATOR_NAME: Final = "hopline.datasets"
GENERATOR_VERSION: Final = "2"

_VERSIONS_FILE: Final = "versions.json"
_ROUNDS: Final = 20
_PER_WORKER: Final = 1_000
_PER_WORKER_SYNTHETIC: Final = 20_000
"""Units below which another worker process is not worth its start, where their number is left open."""

_KEY_PART_BITS: Final = 18
"""Canonical keys are compared about 2^18 at a time."""


def build_dataset(
    config: DatasetConfig, out: Path, *, source: SourceFiles | None = None, sink: EventSink | None = None
) -> DatasetIndex:
    """Make a dataset in a folder: its shards, and ``index.json`` last.

    A build that was killed continues where it was if it is called again with the same arguments; finished shards are
    checked and kept. The content, and its hash, depend on the config section, the source and the code alone.

    Args:
        config: the dataset section.
        out: the folder; made if needed. What else is in it stays.
        source: from :func:`snapshot_source`; None takes the snapshot here.
        sink: hears progress.

    Raises:
        DataError: the source is wrong or too small, or a query would be in two splits.
        ConfigError: the section asks for what the source cannot give.
    """
    sink = sink or NullSink()
    source = source or snapshot_source(config, None)
    plan = make_plan(config, source)
    try:
        return _build(plan, out, source, sink)
    except OSError as error:
        place = error.filename or out
        raise DataError(f"{place}: cannot be written: {error.strerror or error}; run again to continue") from None


def _build(plan: Plan, out: Path, source: SourceFiles, sink: EventSink) -> DatasetIndex:
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    work = _work_area(out, plan.digest(source))
    plan.save(work)
    (out / INDEX_FILE).unlink(missing_ok=True)
    if plan.data is not None and plan.data.unseen:
        note = f"{plan.data.unseen} entities of the source are in no training triple"
        sink.emit(Event("generate", "note", note))
    versions = _load_versions(work)
    for _ in range(_ROUNDS):
        results = _finish(plan, versions, out, work, sink)
        repeated = _repeated(results, work)
        # What people import is theirs: it is counted, not replaced.
        if not repeated or plan.imported is not None:
            break
        versions = _replace(versions, repeated, work)
    else:
        raise DataError(
            f"{plan.config.source}: after {_ROUNDS} rounds a query is still in two splits; the source or the graphs are too "
            "small for this many examples"
        )
    index = _index(plan, source, results, versions, sum(map(len, repeated.values())))
    temporary = work / INDEX_FILE
    temporary.write_bytes(index.to_bytes())
    _remove_other_shards(out, index)
    temporary.replace(out / INDEX_FILE)
    shutil.rmtree(work)
    seconds = time.monotonic() - started
    note = f"{plan.total} examples in {seconds:.1f} s"
    sink.emit(Event("generate", "note", note, values={"examples_per_second": round(plan.total / seconds, 1)}))
    return DatasetIndex.load(out / INDEX_FILE)


def _remove_other_shards(out: Path, index: DatasetIndex) -> None:
    """Remove the shards that a build with another shard size left in the folder."""
    named = {shard.file for split in index.splits.values() for shard in split.shards}
    for path in out.glob("*.arrow"):
        if path.name not in named and re.fullmatch(rf"({'|'.join(SPLITS)})-\d{{5,}}\.arrow", path.name):
            path.unlink()


def _work_area(out: Path, digest: str) -> Path:
    """The folder of what is known of finished shards; that of another build is removed."""
    work = out / f".work-{digest[:16]}"
    for other in out.glob(".work-*"):
        if other != work:
            shutil.rmtree(other)
    work.mkdir(exist_ok=True)
    return work


def _finish(
    plan: Plan, versions: Mapping[str, Mapping[int, int]], out: Path, work: Path, sink: EventSink
) -> list[ShardResult]:
    """Make every shard that is not there yet; all of them, in order."""
    tasks = shard_tasks(plan, versions)
    results = {task.file: kept for task in tasks if (kept := _kept(task, out, work)) is not None}
    waiting = [task for task in tasks if task.file not in results]
    progress = _Progress(plan.total, sum(result.info.units for result in results.values()), sink)
    for task, result in run_tasks(plan, waiting, out, work, _workers(plan, waiting), progress.made):
        _write(work / f"{task.file}.json", result.model_dump_json())
        results[task.file] = result
    return [results[task.file] for task in tasks]


def _kept(task: ShardTask, out: Path, work: Path) -> ShardResult | None:
    """What an earlier call noted of a shard, if it made the same and the file is whole."""
    try:
        result = ShardResult.model_validate_json((work / f"{task.file}.json").read_bytes())
        if result.task != task:
            return None
        verify_shard(out / task.file, result.info)
        read_keys(task, work)
    except (OSError, EOFError, ValueError, IntegrityError):
        return None
    return result


def _workers(plan: Plan, tasks: Sequence[ShardTask]) -> int:
    """Processes to start. A file of examples is read once, in this one."""
    if plan.imported is not None:
        return 1
    if plan.config.workers:
        return min(plan.config.workers, len(tasks))
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    least = _PER_WORKER_SYNTHETIC if plan.is_synthetic else _PER_WORKER
    useful = sum(task.last - task.first for task in tasks) // least
    return max(1, min(available, useful, len(tasks)))


class _Progress:
    """Tells the sink how far it is, a few times a second at most."""

    def __init__(self, total: int, done: int, sink: EventSink) -> None:
        self._total = total
        self._done = self._before = done
        self._sink = sink
        self._started = self._told = time.monotonic()

    def made(self, units: int) -> None:
        self._done += units
        now = time.monotonic()
        if now - self._told < 0.2 and self._done < self._total:
            return
        self._told = now
        rate = (self._done - self._before) / max(now - self._started, 1e-9)
        values = {
            "examples_per_second": round(rate, 1),
            "eta_seconds": round((self._total - self._done) / max(rate, 1e-9), 1),
        }
        event = Event("generate", "progress", "examples", step=self._done, total=self._total, values=values)
        self._sink.emit(event)


def _repeated(results: Sequence[ShardResult], work: Path) -> dict[str, list[int]]:
    """The units of each split whose query is in an earlier split too.

    Keys are compared part by part, so that memory does not grow with their number.
    """
    total = sum(result.info.units for result in results)
    bits = max(0, (total - 1).bit_length() - _KEY_PART_BITS)
    repeated: dict[str, list[int]] = {}
    for part in range(1 << bits):
        keys: dict[str, NDArray[np.uint64]] = {}
        units: dict[str, NDArray[np.int64]] = {}
        for name in SPLITS:
            found = [_part_of_keys(r.task, work, part, bits) for r in results if r.task.split == name]
            keys[name] = np.concatenate([key for key, _ in found] or [np.zeros(0, np.uint64)])
            units[name] = np.concatenate([unit for _, unit in found] or [np.zeros(0, np.int64)])
        for name, places in repeated_units(keys).items():
            repeated.setdefault(name, []).extend(units[name][places].tolist())
    return {name: sorted(found) for name, found in repeated.items()}


def _part_of_keys(task: ShardTask, work: Path, part: int, bits: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The keys of a shard that begin with some bits, and their units."""
    keys = read_keys(task, work)
    here = np.flatnonzero(keys >> np.uint64(64 - bits) == part) if bits else np.arange(len(keys))
    return keys[here], task.first + here


def _load_versions(work: Path) -> dict[str, dict[int, int]]:
    try:
        document = json.loads((work / _VERSIONS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {split: {int(unit): version for unit, version in units.items()} for split, units in document.items()}


def _replace(
    versions: Mapping[str, Mapping[int, int]], repeated: Mapping[str, Sequence[int]], work: Path
) -> dict[str, dict[int, int]]:
    """The next version of each repeated unit."""
    following = {split: dict(units) for split, units in versions.items()}
    for split, units in repeated.items():
        here = following.setdefault(split, {})
        for unit in units:
            here[unit] = here.get(unit, 0) + 1
    _write(work / _VERSIONS_FILE, json.dumps(following))
    return following


def _index(
    plan: Plan,
    source: SourceFiles,
    results: Sequence[ShardResult],
    versions: Mapping[str, Mapping[int, int]],
    repeated: int,
) -> DatasetIndex:
    splits = {name: _split_index([r for r in results if r.task.split == name]) for name in SPLITS}
    content = {name: (split.units, split.rows, split.blocks) for name, split in splits.items()}
    held_out = sum(result.held_out_edges for result in results)
    if held_out:
        raise DataError(
            f"{source.uri}: {held_out} edges of graphs are held-out triples; this is a fault of the generator"
        )
    leakage = Leakage(
        held_out_edges=held_out,
        duplicate_queries=repeated,
        replaced_queries=sum(map(len, versions.values())),
        dropped_triples=dict(plan.data.dropped) if plan.data is not None else {},
        unseen_entities=plan.data.unseen if plan.data is not None else 0,
    )
    return DatasetIndex(
        schema_version=SCHEMA_VERSION,
        dataset_hash=dataset_digest(content, plan.vocabulary),
        splits=splits,
        generator=GeneratorInfo(name=GENERATOR_NAME, version=GENERATOR_VERSION, code_digest=code_digest()),
        config=plan.config.model_dump(mode="json"),
        seed=plan.config.seed,
        vocabulary=plan.vocabulary,
        patterns=plan.patterns,
        source=source,
        leakage=leakage,
        imported=plan.report,
        validated=sum(result.validated for result in results),
    )


def _split_index(results: Sequence[ShardResult]) -> SplitIndex:
    blocks = {number: digest for result in results for number, digest in result.blocks.items()}
    return SplitIndex(
        units=sum(result.info.units for result in results),
        rows=sum(result.info.rows for result in results),
        kinds=_total(result.kinds for result in results),
        statuses=_total(result.statuses for result in results),
        hops=_total({str(hops): n for hops, n in result.hops.items()} for result in results),
        shards=tuple(result.info for result in results),
        blocks=tuple(blocks[number] for number in sorted(blocks)),
    )


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
