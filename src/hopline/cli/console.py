"""Events on the terminal: a live progress bar for a person, one JSON line an event where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from hopline.progress import Event, EventSink, JsonLinesSink

__all__ = ["ProgressDisplay", "terminal_sink"]

_SHOWN = ("loss", "score", "learning_rate", "examples_per_second")


class ProgressDisplay:
    """Draws the events of stages on a terminal; one bar a stage, notes and warnings above it."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._figures: dict[str, dict[str, str]] = {}

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def emit(self, event: Event) -> None:
        task = self._task(event.stage)
        figures = self._figures[event.stage]
        if event.kind in {"note", "warning"}:
            style = "yellow" if event.kind == "warning" else "dim"
            self._progress.console.print(f"[{style}]{event.stage}: {escape(event.message)}[/]", highlight=False)
        if event.kind == "progress":
            figures |= {
                name: _figure(name, event.values[name]) for name in _SHOWN if event.values.get(name) is not None
            }
            text = " ".join(figures.values()) or escape(event.message)
            self._progress.update(task, completed=event.step or 0, total=event.total, figures=text)
        elif event.kind == "done":
            total = self._progress.tasks[self._index(task)].total or 1
            self._progress.update(task, completed=total, total=total, figures=escape(event.message))

    def _task(self, stage: str) -> TaskID:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=None, figures="")
            self._figures[stage] = {}
        return self._tasks[stage]

    def _index(self, task: TaskID) -> int:
        return next(i for i, other in enumerate(self._progress.tasks) if other.id == task)


@contextmanager
def terminal_sink() -> Iterator[EventSink]:
    """The sink for a stage command: a display on stderr if it is a terminal, JSON lines on stderr otherwise."""
    if not sys.stderr.isatty():
        yield JsonLinesSink()
        return
    with ProgressDisplay(Console(stderr=True)) as display:
        yield display


def _figure(name: str, value: float | int | str | bool | None) -> str:
    label = {"examples_per_second": "ex/s", "learning_rate": "lr"}.get(name, name)
    if not isinstance(value, int | float):
        return f"{label} {value}"
    return f"{label} {value:,.0f}" if name == "examples_per_second" else f"{label} {value:.3g}"
