"""The curves of a run as one PNG picture: for a terminal that shows none, a chat, or a slide."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hopline.report.data import TrainingCurves

__all__ = ["run_picture"]

_SETTINGS = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}
_WIDTH, _HEIGHT = 5.2, 3.4

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def run_picture(title: str, curves: TrainingCurves, health: Sequence[Mapping[str, float]]) -> bytes:
    """Loss, its components, the score on valid, learning rate, gradient norm and speed, each where it is known; PNG bytes.

    The same data give the same bytes.

    Args:
        title: over all of them.
        curves: of the run.
        health: one record for each interval, with ``step`` and ``examples_per_second``.
    """
    panels = [(name, series) for name, series in _panels(curves, health) if series]
    with mpl.rc_context(_SETTINGS):  # type: ignore[arg-type]  # the stubs want literal keys
        columns = min(2, len(panels)) or 1
        rows = max(1, math.ceil(len(panels) / columns))
        figure = Figure(figsize=(columns * _WIDTH, rows * _HEIGHT), layout="constrained")
        figure.suptitle(title)
        for place, (name, series) in enumerate(panels):
            _draw(figure.add_subplot(rows, columns, place + 1), name, series)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
    return stream.getvalue()


def _panels(curves: TrainingCurves, health: Sequence[Mapping[str, float]]) -> list[tuple[str, Series]]:
    evaluations = curves.evaluations
    speed = [(record["step"], record["examples_per_second"]) for record in health if "examples_per_second" in record]
    return [
        ("loss", {"loss": (curves.steps, curves.loss)} if curves.steps else {}),
        ("components, before their weights", {name: (curves.steps, ys) for name, ys in curves.components.items()}),
        (
            "score on valid",
            {"score": ([e.step for e in evaluations], [e.score for e in evaluations])} if evaluations else {},
        ),
        ("learning rate", {"learning rate": (curves.steps, curves.learning_rate)} if curves.steps else {}),
        ("gradient norm, before clipping", {"norm": (curves.steps, curves.grad_norm)} if curves.grad_norm else {}),
        ("examples a second", {"examples": ([x for x, _ in speed], [y for _, y in speed])} if speed else {}),
    ]


def _draw(axes: Axes, name: str, series: Series) -> None:
    for place, (label, (xs, ys)) in enumerate(series.items()):
        # Ten colours; what comes after them is dashed.
        style = "-" if place < 10 else "--"
        axes.plot(xs, ys, style, label=label, linewidth=1.4, marker="o" if len(xs) <= 20 else None, markersize=3.5)
    axes.set_title(name, loc="left", fontsize=10)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if len(series) > 1:
        axes.legend(fontsize=7.5, ncols=4, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
