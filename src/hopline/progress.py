"""What a stage says while it works, and the sinks that take it: a terminal, JSON lines in a pod, or a side file.

A stage emits :class:`Event` objects and knows nothing of where they go. ``hopline run`` reads the side file of each
step and draws it; in a pod one JSON line an event is what log collectors want.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal, Protocol

__all__ = [
    "EVENTS_VARIABLE",
    "Event",
    "EventKind",
    "EventSink",
    "JsonLinesSink",
    "NullSink",
    "event_from_json",
    "side_file_sink",
]

EVENTS_VARIABLE: Final = "HOPLINE_EVENTS"
"""Environment variable that names the side file a step appends its events to."""

EventKind = Literal["start", "progress", "note", "warning", "done", "error"]
Value = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Event:
    """One thing said by a stage.

    Attributes:
        stage: ``generate``, ``train``, ``evaluate`` or ``publish``.
        kind: ``progress`` carries ``step`` of ``total``; ``error`` is the typed error that ended the stage.
        message: one line for a person.
        step, total: units of work done and to do, where they are known.
        values: figures by name (loss, score, examples_per_second, eta_seconds, ...).
        time: seconds since the epoch.
    """

    stage: str
    kind: EventKind
    message: str = ""
    step: int | None = None
    total: int | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    time: float = field(default_factory=time.time)

    def to_json(self) -> str:
        """One line of JSON; empty fields are left out."""
        record: dict[str, Any] = {"time": round(self.time, 3), "stage": self.stage, "kind": self.kind}
        if self.message:
            record["message"] = self.message
        if self.step is not None:
            record["step"] = self.step
        if self.total is not None:
            record["total"] = self.total
        record.update({k: v for k, v in self.values.items() if k not in record})
        return json.dumps(record, ensure_ascii=False)


def event_from_json(line: str) -> Event:
    """The event that :meth:`Event.to_json` wrote. ValueError or KeyError if it is none (for instance half a line)."""
    record = json.loads(line)
    return Event(
        stage=record.pop("stage"),
        kind=record.pop("kind"),
        message=record.pop("message", ""),
        step=record.pop("step", None),
        total=record.pop("total", None),
        time=record.pop("time"),
        values=record,
    )


class EventSink(Protocol):
    """Takes events; must not raise for a full or broken terminal in a way that stops training."""

    def emit(self, event: Event) -> None: ...


class NullSink:
    """Drops every event."""

    def emit(self, event: Event) -> None:
        return


class JsonLinesSink:
    """Writes one JSON line an event and flushes it, so that a killed process loses nothing it said."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr

    def emit(self, event: Event) -> None:
        self._stream.write(event.to_json() + "\n")
        self._stream.flush()


@contextmanager
def side_file_sink() -> Iterator[EventSink | None]:
    """The sink for the file that ``HOPLINE_EVENTS`` names, None if it names none."""
    path = os.environ.get(EVENTS_VARIABLE)
    if not path:
        yield None
        return
    with Path(path).open("a", encoding="utf-8") as stream:
        yield JsonLinesSink(stream)
