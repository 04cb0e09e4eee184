"""What is known of the runs of a root, while they go on and afterwards. Nothing is changed; what is missing is left out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.report import TrainingCurves
from hopline.stages.roots import open_root, run_prefix
from hopline.stages.runs import RUN_FILE, STEP_LOG, AttemptRecord, curves_of, read_run
from hopline.stages.work import held_here
from hopline.storage import Store
from hopline.training.candidate import CONFIG_FILE, SCORES_FILE
from hopline.training.checkpoint_store import Checkpoints
from hopline.training.state import TrainingState
from hopline.training.state_files import LOG_FILE, STATE_FILE

__all__ = ["RunCandidate", "RunState", "RunSummary", "RunView", "list_runs", "view_run"]

RunState = Literal["running", "finished", "killed", "diverged", "stopped", "failed"]
"""``stopped``: a signal ended it and its state was saved; ``failed``: an error that a person has to put right."""

_SILENCE: Final = 300.0
"""Seconds without a sign of life after which a run on another machine counts as killed."""
_DIVERGED: Final = ("training diverged", "no evaluation of run")
_STOPPED: Final = "training stopped after step"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_CANDIDATE: Final = re.compile(r"candidates/step-(\d+)/index\.json")
_LOSS: Final = "loss."


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSummary(_View):
    """A run in one line. Times are UTC, ISO 8601."""

    run_uri: str
    run_hash: str
    name: str | None
    """Name of the model; null until there is a candidate."""
    state: RunState
    step: int
    max_steps: int | None
    best_score: float | None
    best_step: int | None
    attempts: int
    started: str | None
    last_seen: str | None
    """The newest sign of life."""
    reason: str | None
    """Why it ended."""


class RunCandidate(_View):
    """A kept candidate."""

    step: int
    uri: str
    score: float | None


class RunView(_View):
    """Everything about a run."""

    summary: RunSummary
    attempts: tuple[AttemptRecord, ...]
    candidates: tuple[RunCandidate, ...]
    """Best first."""
    health: tuple[dict[str, float], ...]
    """One for each interval of steps, in order: step, examples_per_second, data_wait and whatever else was measured."""
    counts: dict[str, int]
    """Updates that were applied, skipped, not finite."""
    curves: TrainingCurves


def list_runs(root: str, *, now: datetime | None = None) -> tuple[RunSummary, ...]:
    """The runs of a root, the newest first. What cannot be read of a run is left out; the run is not."""
    store = open_root(root)
    runs: dict[str, list[str]] = {}
    for info in store.list("runs/"):
        _, run_hash, key = info.key.split("/", 2) if info.key.count("/") >= 2 else ("", "", "")
        if _HASH.fullmatch(run_hash):
            runs.setdefault(run_hash, []).append(key)
    found = (_Run(store, run_hash, keys).summary(now or datetime.now(UTC)) for run_hash, keys in runs.items())
    return tuple(sorted(found, key=lambda run: (run.started or "", run.run_hash), reverse=True))


def view_run(run: str, *, root: str, now: datetime | None = None) -> RunView:
    """Everything about one run.

    Args:
        run: its URI, or the first characters of its hash within ``root``.
        root: URI of a root.
        now: the time; None = the clock's.

    Raises:
        NotFoundError: there is none, or several begin like that.
        StoreError: the root refuses or cannot be reached.
    """
    place, separator, name = run.rstrip("/").rpartition("/runs/")
    store = open_root(place if separator else root)
    name = name if separator else run
    keys = [info.key.split("/", 2) for info in store.list(f"runs/{name}")]
    by_hash: dict[str, list[str]] = {}
    for parts in keys:
        if len(parts) == 3 and _HASH.fullmatch(parts[1]):
            by_hash.setdefault(parts[1], []).append(parts[2])
    if len(by_hash) != 1:
        found = f"{len(by_hash)} runs begin like that" if by_hash else "no such run"
        raise NotFoundError(
            f"{store.uri('runs')}/{name}: {found}; `hopline runs list --root {store.base_uri}` shows them"
        )
    ((run_hash, names),) = by_hash.items()
    return _Run(store, run_hash, names).view(now or datetime.now(UTC))


class _Run:
    """What lies under a run's prefix."""

    def __init__(self, store: Store, run_hash: str, keys: list[str]) -> None:
        self._store = store
        self._hash = run_hash
        self._prefix = run_prefix(run_hash)
        self._keys = set(keys)
        self._attempts = tuple(self._read_attempts())
        self._state = self._read_state()
        self._config = self._read_config()

    def summary(self, now: datetime) -> RunSummary:
        state, last = self._state, self._attempts[-1] if self._attempts else None
        # What the newest attempt said last; of one that has ended its record tells more, and is smaller.
        heard = self._last_heard() if last is None or last.ended is None else {}
        seen = [_seconds(attempt.ended or attempt.started) for attempt in self._attempts]
        seen += [heard["time"]] if "time" in heard else []
        condition = self._condition(now.timestamp(), max(seen, default=0.0))
        training, best = self._config.get("training", {}), next(iter(self._candidates()), None)
        total = heard.get("total")
        ended = state.stop_reason if state and condition == "finished" else last.end_reason if last else None
        return RunSummary(
            run_uri=self._store.uri(self._prefix),
            run_hash=self._hash,
            name=self._config.get("name"),
            state=condition,
            step=max(state.step if state else 0, int(heard.get("step", 0)), (last and last.last_step) or 0),
            max_steps=training.get("max_steps") or (None if total is None else int(total)),
            best_score=state.best_score if state else best.score if best else None,
            best_step=state.best_step if state else best.step if best else None,
            attempts=len(self._attempts),
            started=self._attempts[0].started if self._attempts else None,
            last_seen=_iso(max(seen)) if seen else None,
            reason=ended if condition != "running" else None,
        )

    def view(self, now: datetime) -> RunView:
        state, health = self._state or TrainingState(), list(self._read_health())
        return RunView(
            summary=self.summary(now),
            attempts=self._attempts,
            candidates=tuple(self._candidates()),
            health=tuple(
                {name: value for name, value in record.items() if not name.startswith(_LOSS)} for record in health
            ),
            counts={
                "applied": state.applied_updates,
                "skipped": state.skipped_updates,
                "not finite": state.non_finite_updates,
            },
            curves=self._curves(health),
        )

    def _condition(self, now: float, seen: float) -> RunState:
        if RUN_FILE in self._keys:
            return "finished"
        last = self._attempts[-1] if self._attempts else None
        if last is None or last.ended is None:
            # Who opened the lock after the attempt before had begun is the one that made this attempt.
            before = _seconds(self._attempts[-2].started) if len(self._attempts) > 1 else 0.0
            held = held_here(self._store, self._hash, since=before)
            alive = held if held is not None else now - seen < _SILENCE
            return "running" if alive else "killed"
        reason = last.end_reason or ""
        if self._state is not None and reason == self._state.stop_reason:
            return "killed"  # after its last step, before its record was written: another attempt ends it at once
        if reason.startswith(_DIVERGED):
            return "diverged"
        return "stopped" if reason.startswith(_STOPPED) else "failed"

    def _read_attempts(self) -> Iterator[AttemptRecord]:
        for key in sorted(key for key in self._keys if key.startswith("attempts/")):
            with suppress(ValueError):  # no record, or its times are none
                attempt = AttemptRecord.model_validate(self._document(key))
                _seconds(attempt.ended or attempt.started)
                yield attempt

    def _read_state(self) -> TrainingState | None:
        """The loop's state in the newest training state that can be read."""
        data = self._newest(STATE_FILE)
        with suppress(DataError):
            return None if data is None else TrainingState.parse(data, source=STATE_FILE)
        return None

    def _newest(self, name: str) -> bytes | None:
        """A small file of the newest training state; a run that goes on may remove one while it is read."""
        states = Checkpoints(self._store, f"{self._prefix}/checkpoints")
        for step in reversed(states.committed()):
            try:
                files = {file.path.rpartition("/")[2]: file for file in states.index(step)[0].files}
                return states.read(step, files[name])
            except (NotFoundError, IntegrityError, DataError, KeyError):
                continue
        return None

    def _health_files(self) -> list[str]:
        return sorted(key for key in self._keys if key.startswith("health/"))

    def _last_heard(self) -> Mapping[str, float]:
        """The last record of the newest health file that is newer than the attempts before; empty without one."""
        newest = f"health/{len(self._attempts):04d}.jsonl"
        records = [_figures(line) for line in self._lines(newest)] if newest in self._keys else []
        return records[-1] if records else {}

    def _read_health(self) -> Iterator[dict[str, float]]:
        """One record for each logged step, that of the latest attempt."""
        lines = (line for key in self._health_files() for line in self._lines(key))
        records = {line["step"]: _figures(line) for line in lines if isinstance(line.get("step"), int)}
        for step in sorted(records):
            yield records[step]

    def _read_config(self) -> dict[str, Any]:
        """The config beside a candidate."""
        for key in sorted(self._keys, reverse=True):
            if key.startswith("candidates/") and key.endswith(f"/{CONFIG_FILE}"):
                return self._document(key)
        return {}

    def _candidates(self) -> list[RunCandidate]:
        scores = {candidate.step: candidate.score for candidate in self._state.candidates} if self._state else {}
        found = []
        for step in sorted(int(match[1]) for key in self._keys if (match := _CANDIDATE.fullmatch(key))):
            folder = f"candidates/step-{step:08d}"
            score = scores.get(step)
            if score is None:
                score = self._document(f"{folder}/{SCORES_FILE}").get("score")
            found.append(RunCandidate(step=step, uri=self._store.uri(f"{self._prefix}/{folder}"), score=score))
        return sorted(found, key=lambda c: (math.inf if c.score is None else -c.score, c.step))

    def _curves(self, health: Iterable[Mapping[str, float]]) -> TrainingCurves:
        """From the log of the finished run, or of the newest training state and the health figures that came after it."""
        if RUN_FILE in self._keys:
            data: bytes | None = self._store.get_bytes(
                f"{self._prefix}/{STEP_LOG}", sha256=read_run(self._store, self._hash).step_log_sha256
            )
        else:
            data = self._newest(LOG_FILE)
        lines = [json.loads(line) for line in (data or b"").decode().splitlines()]
        last = max((line["step"] for line in lines), default=0)
        later = [_as_log_line(record) for record in health if record["step"] > last and "loss" in record]
        return curves_of([*lines, *later])

    def _document(self, key: str) -> dict[str, Any]:
        lines = list(self._lines(key))
        return lines[0] if lines else {}

    def _lines(self, key: str) -> Iterable[dict[str, Any]]:
        """The objects of a file of JSON lines; what is no object is left out, and so is a file that is gone."""
        try:
            data = self._store.get_bytes(f"{self._prefix}/{key}")
        except (NotFoundError, DataError):
            return
        for line in data.splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record."""
    return {
        name: value for name, value in line.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _as_log_line(record: Mapping[str, float]) -> dict[str, Any]:
    parts = {name.removeprefix(_LOSS): value for name, value in record.items() if name.startswith(_LOSS)}
    return {**record, "components": parts}


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
