"""What a run leaves beside its checkpoints: its record, its attempts, and the log of its steps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hopline.errors import DataError, HoplineError
from hopline.progress import Event, EventSink
from hopline.report import EvaluationPoint, TrainingCurves
from hopline.stages.roots import run_prefix
from hopline.storage import Store, canonical_json, parse_json

__all__ = [
    "AttemptLog",
    "AttemptRecord",
    "HealthLog",
    "RunRecord",
    "curves_of",
    "read_run",
    "training_curves",
    "training_log",
    "write_run",
]

RUN_FILE: Final = "run.json"
STEP_LOG: Final = "steps.jsonl"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Record = TypeVar("Record", bound=_Record)


class AttemptRecord(_Record):
    """One time that training ran, from its start or from a training state."""

    started: str
    """Time in UTC, ISO 8601."""
    ended: str | None = None
    """null while it runs, and for ever if it was killed."""
    end_reason: str | None = None
    ranks: int = 1
    parallelism: str = "none"
    examples_per_step: int
    resumed_from: str | None = None
    """Digest of the training state that it continued."""
    first_step: int = 0
    last_step: int | None = None


class RunRecord(_Record):
    """A finished run."""

    schema_version: Literal[1] = 1
    run_hash: str
    dataset_hash: str
    steps: int
    stop_reason: str
    samples_seen: int
    skipped_updates: int
    non_finite_updates: int
    step_log_sha256: str
    attempts: tuple[AttemptRecord, ...]
    run_manifest: dict[str, Any]
    """The trainer's own record, TRAINING facts of the last step."""


class AttemptLog:
    """The attempts of a run, one object each: written when it starts, and again when it ends."""

    def __init__(
        self, store: Store, run_hash: str, *, examples_per_step: int, ranks: int = 1, parallelism: str = "none"
    ) -> None:
        self._store = store
        self._prefix = f"{run_prefix(run_hash)}/attempts"
        self._earlier = self._read()
        self.number = len(self._earlier) + 1
        self._key = f"{self._prefix}/{self.number:04d}.json"
        self._current = AttemptRecord(
            started=_now(), ranks=ranks, parallelism=parallelism, examples_per_step=examples_per_step
        )

    def start(self, first_step: int, resumed_from: str | None) -> None:
        """Record that this attempt begins, and the digest of the training state that it continues."""
        self._current = self._current.model_copy(update={"first_step": first_step, "resumed_from": resumed_from})
        self._write()

    def end(self, reason: str, last_step: int) -> None:
        """Record how this attempt ended."""
        self._current = self._current.model_copy(update={"ended": _now(), "end_reason": reason, "last_step": last_step})
        self._write()

    @property
    def attempts(self) -> tuple[AttemptRecord, ...]:
        """All attempts, the current one last."""
        return (*self._earlier, self._current)

    def _read(self) -> tuple[AttemptRecord, ...]:
        return tuple(
            _parse(AttemptRecord, self._store.get_bytes(info.key), self._store.uri(info.key))
            for info in self._store.list(f"{self._prefix}/")
        )

    def _write(self) -> None:
        self._store.put_bytes(self._key, canonical_json(self._current.model_dump(mode="json")))


class HealthLog:
    """Passes events on, and keeps the figures of an attempt beside the run: ``runs/<run_hash>/health/<attempt>.jsonl``.

    A line is one interval of steps. The file is written now and then, and at the end.
    """

    def __init__(self, sink: EventSink, *, every: float = 30.0) -> None:
        self._sink = sink
        self._every = every
        self._lines: list[str] = []
        self._store: Store | None = None
        self._key = ""
        self._written = time.monotonic()

    def begin(self, store: Store, run_hash: str, attempt: int) -> None:
        """Say where the figures go."""
        self._store, self._key = store, f"{run_prefix(run_hash)}/health/{attempt:04d}.jsonl"

    def emit(self, event: Event) -> None:
        """Pass an event on, and keep it if it has figures of speed."""
        self._sink.emit(event)
        if event.kind == "progress" and "examples_per_second" in event.values:
            self._lines.append(event.to_json())
            if time.monotonic() - self._written > self._every:
                self.write()

    def write(self) -> None:
        """Write what there is. It is no part of the result: where it cannot be written, training goes on."""
        self._written = time.monotonic()
        if self._store is not None and self._lines:
            with suppress(HoplineError):
                self._store.put_bytes(self._key, "".join(f"{line}\n" for line in self._lines).encode())


def write_run(store: Store, record: RunRecord, step_log: bytes) -> None:
    """Keep the step log and then the record of a finished run."""
    prefix = run_prefix(record.run_hash)
    store.put_bytes(f"{prefix}/{STEP_LOG}", step_log)
    store.put_bytes(f"{prefix}/{RUN_FILE}", canonical_json(record.model_dump(mode="json")))


def read_run(store: Store, run_hash: str) -> RunRecord:
    """The record of a finished run.

    Raises:
        NotFoundError: there is none.
        DataError: it is damaged.
    """
    key = f"{run_prefix(run_hash)}/{RUN_FILE}"
    return _parse(RunRecord, store.get_bytes(key), store.uri(key))


def training_log(store: Store, run: RunRecord) -> bytes:
    """The log of a finished run's steps. Raises NotFoundError, IntegrityError."""
    return store.get_bytes(f"{run_prefix(run.run_hash)}/{STEP_LOG}", sha256=run.step_log_sha256)


def training_curves(store: Store, run_hash: str) -> TrainingCurves:
    """The curves of a run from its step log.

    Raises:
        IntegrityError: the log was altered.
    """
    log = training_log(store, read_run(store, run_hash))
    return curves_of([json.loads(line) for line in log.decode().splitlines()])


def curves_of(lines: Sequence[Mapping[str, Any]]) -> TrainingCurves:
    """The curves in the records of a step log; a value that a record lacks, or that was no number, is NaN."""
    steps = [line for line in lines if "loss" in line]
    names = sorted({name for line in steps for name in line.get("components", {})})
    return TrainingCurves(
        steps=tuple(int(line["step"]) for line in steps),
        loss=tuple(_number(line["loss"]) for line in steps),
        learning_rate=tuple(_number(line.get("learning_rate")) for line in steps),
        grad_norm=tuple(_number(line.get("grad_norm")) for line in steps),
        components={name: tuple(_number(line.get("components", {}).get(name)) for line in steps) for name in names},
        evaluations=tuple(
            EvaluationPoint(line["step"], _number(line.get("score")), line["metrics"])
            for line in lines
            if "metrics" in line
        ),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _parse(kind: type[Record], data: bytes, source: str) -> Record:
    try:
        return kind.model_validate(parse_json(data, source=source))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{source}: {where}: {first['msg']}; it is damaged: remove it to train again") from None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
