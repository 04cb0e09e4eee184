"""``hopline runs``: list, show."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from hopline.cli.options import json_option, root_option
from hopline.cli.tables import table
from hopline.errors import StoreError
from hopline.stages.roots import resolve_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopline.stages.run_listing import RunSummary, RunView

__all__ = ["runs"]

_COLOURS = {
    "running": "cyan",
    "finished": "green",
    "stopped": "yellow",
    "killed": "red",
    "diverged": "red",
    "failed": "red",
}
_SHORT = 12
"""Characters of a hash that are shown."""
_HEALTH = {
    "examples_per_second": "examples a second",
    "messages_per_second": "messages a second",
    "bandwidth_share": "share of the copy bandwidth",
    "data_wait": "share of time waiting for data",
    "straggler_spread": "spread between the processes",
    "grad_norm": "gradient norm",
    "memory_bytes": "bytes on a GPU",
}
_WIDEST = 110


@click.group()
def runs() -> None:
    """List the runs of a root, or show one."""


@runs.command("list")
@root_option
@json_option
def list_(root: str | None, as_json: bool) -> None:
    """Print the runs of a root, the newest first, also while they go on."""
    from hopline.stages.run_listing import list_runs

    place = resolve_root(root)
    found = list_runs(place)
    if as_json:
        click.echo(json.dumps({"runs": [run.model_dump(mode="json") for run in found]}))
        return
    if not found:
        click.echo(f"no runs in {place}")
        return
    heads = ("run", "model", "state", "step", "best score", "attempts", "started", "last seen")
    lines = table(heads, [_row(run) for run in found], right=(3, 4, 5)).splitlines()
    for line, run in zip(lines, (None, *found), strict=True):
        click.echo(line if run is None else line.replace(run.state, click.style(run.state, fg=_COLOURS[run.state]), 1))


@runs.command()
@click.argument("run", metavar="RUN_URI")
@root_option
@click.option(
    "--png",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw the curves to a picture instead.",
)
@json_option
def show(run: str, root: str | None, png: Path | None, as_json: bool) -> None:
    """Print a run: attempts, health, candidates, and the curves of loss, components and score.

    RUN_URI is the run_uri that `hopline train` printed, or the first characters of the run's hash in the root.
    """
    from hopline.stages.run_listing import view_run

    view = view_run(run, root=resolve_root(root))
    if png is not None:
        _write_picture(view, png)
    if as_json:
        click.echo(view.model_dump_json())
        return
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    parts = [_summary(view.summary, view.counts), _attempts(view), _health(view), _candidates(view)]
    if png is None:
        parts += _curves(view, width)
    click.echo("\n\n".join(part for part in parts if part))


def _row(run: RunSummary) -> list[str]:
    return [
        run.run_hash[:_SHORT],
        run.name or "-",
        run.state,
        _progress(run),
        _score(run),
        str(run.attempts),
        _time(run.started),
        _time(run.last_seen),
    ]


def _summary(run: RunSummary, counts: dict[str, int]) -> str:
    rows = [
        ("run", run.run_uri),
        ("model", run.name or "not known before the first candidate"),
        ("state", run.state + (f": {run.reason}" if run.reason else "")),
        ("step", _progress(run)),
        ("best score", _score(run) + (f" at step {run.best_step}" if run.best_step is not None else "")),
        ("updates", ", ".join(f"{count} {name}" for name, count in counts.items())),
        ("last seen", _time(run.last_seen)),
    ]
    return "\n".join(f"{name:<11} {value}" for name, value in rows)


def _attempts(view: RunView) -> str:
    rows = [
        [
            str(number),
            _time(attempt.started),
            _time(attempt.ended),
            str(attempt.first_step),
            "-" if attempt.last_step is None else str(attempt.last_step),
            str(attempt.ranks),
            attempt.end_reason or "",
        ]
        for number, attempt in enumerate(view.attempts, start=1)
    ]
    heads = ("attempt", "started", "ended", "from step", "to step", "processes", "end")
    return table(heads, rows, right=(0, 3, 4, 5)) if rows else ""


def _health(view: RunView) -> str:
    rows = []
    for name, words in _HEALTH.items():
        values = [record[name] for record in view.health if name in record]
        if values:
            rows.append(
                [words, _figure(values[-1]), _figure(median(values)), _figure(min(values)), _figure(max(values))]
            )
    return table(("health", "last", "median", "least", "most"), rows, right=(1, 2, 3, 4)) if rows else ""


def _candidates(view: RunView) -> str:
    rows = [[str(c.step), "-" if c.score is None else f"{c.score:.4f}", c.uri] for c in view.candidates]
    return table(("candidate", "score", "where"), rows, right=(0, 1)) if rows else ""


def _curves(view: RunView, width: int) -> list[str]:
    from hopline.cli.curves import beside, draw

    curves, evaluations = view.curves, view.curves.evaluations
    half = (width - 2) // 2
    score = draw("score on valid", [e.step for e in evaluations], [e.score for e in evaluations], width=width, height=6)
    parts = [draw("loss", curves.steps, curves.loss, width=width, height=10), score]
    others = {"gradient norm": curves.grad_norm, "learning rate": curves.learning_rate, **curves.components}
    small = [draw(name, curves.steps, ys, width=half, height=4) for name, ys in others.items() if ys]
    small = [lines for lines in small if lines]
    for place in range(0, len(small), 2):
        right: Sequence[str] = small[place + 1] if place + 1 < len(small) else ()
        parts.append(beside(small[place], right, width=half + 2))
    return ["\n".join(lines) for lines in parts if lines]


def _write_picture(view: RunView, path: Path) -> None:
    from hopline.report.run_picture import run_picture

    run = view.summary
    title = f"{run.name or 'run'} {run.run_hash[:_SHORT]}, {run.state} at step {run.step}"
    try:
        path.write_bytes(run_picture(title, view.curves, view.health))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from None
    click.echo(f"{path}: written", err=True)


def _progress(run: RunSummary) -> str:
    return f"{run.step}" if run.max_steps is None else f"{run.step} of {run.max_steps}"


def _score(run: RunSummary) -> str:
    return "-" if run.best_score is None else f"{run.best_score:.4f}"


def _time(time: str | None) -> str:
    """A time of a record, to the second, in UTC."""
    return "-" if time is None else time[:19].replace("T", " ")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
