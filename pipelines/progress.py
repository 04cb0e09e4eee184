"""The events of a pipeline run: read from the side file while it grows, and written as lines where no person looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from rich.console import Console

from hopline.cli.console import ProgressDisplay
from hopline.progress import Event, EventSink, event_from_json

__all__ = ["GRACE", "EventTail", "PlainLines", "run_sink"]

GRACE: Final = 60.0
"""Seconds that a step gets to save its state before it is killed."""

_SHOWN: Final = ("loss", "score", "examples_per_second", "eta_seconds")


class EventTail:
    """Reads the events that a growing file has gained since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Event]:
        """New whole lines as events. A line that is no event is passed over: it must not stop a run."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = []
        for line in whole.splitlines():
            try:
                events.append(event_from_json(line.decode("utf-8")))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return events


class PlainLines:
    """One line an event; progress at most once in some seconds for each stage."""

    def __init__(self, stream: IO[str], *, every: float = 2.0) -> None:
        self._stream = stream
        self._every = every
        self._last: dict[str, float] = {}

    def emit(self, event: Event) -> None:
        if event.kind == "error":
            return  # the command ends with it, and says it once
        if event.kind == "progress":
            finished = event.total is not None and event.step == event.total
            if event.time - self._last.get(event.stage, 0.0) < self._every and not finished:
                return
            self._last[event.stage] = event.time
        self._stream.write(_line(event) + "\n")
        self._stream.flush()


@contextmanager
def run_sink(*, plain: bool = False) -> Iterator[EventSink]:
    """A live display on stderr if that is a terminal, plain lines otherwise or if asked for."""
    if plain or not sys.stderr.isatty():
        yield PlainLines(sys.stderr)
        return
    with ProgressDisplay(Console(stderr=True)) as display:
        yield display


def _line(event: Event) -> str:
    parts = [f"{event.stage}:"]
    if event.kind == "warning":
        parts.append("warning:")
    if event.step is not None:
        parts.append(f"{event.step}/{event.total}" if event.total is not None else f"{event.step}")
    if event.message:
        parts.append(event.message)
    for name in _SHOWN:
        value = event.values.get(name)
        if isinstance(value, int | float):
            label = {"examples_per_second": "examples/s", "eta_seconds": "ETA s"}.get(name, name)
            parts.append(f"{label} {value:,.0f}" if abs(value) >= 100 else f"{label} {value:.3g}")
    return " ".join(parts)
