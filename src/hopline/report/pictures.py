"""Pictures as inline SVG that takes its colours from the page, so that one drawing serves light and dark.

Figures are drawn with matplotlib's objects, never with pyplot's global state, in marker colours which are then replaced
by CSS variables. The same data give the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from hopline.evaluation import ReliabilityBin

__all__ = ["lines", "reliability", "spark"]

_INK, _MUTED, _GRID = "#010101", "#020202", "#030303"
_SERIES: Final = ("#0a0101", "#0a0202", "#0a0303", "#0a0404", "#0a0505", "#0a0606")
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _GRID: "var(--line)",
    **{color: f"var(--series-{place})" for place, color in enumerate(_SERIES)},
}
_MARKERS: Final = ("o", "s", "^", "D", "v", "P")
_POINTS: Final = 300
"""Most points of a curve; longer ones are averaged over equal stretches."""
_SHORT_LABEL: Final = 12
"""Characters of a label with which three columns of a legend fit the width of a picture."""
_SETTINGS: Final[Mapping[str, Any]] = {
    "svg.hashsalt": "hopline",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
    "lines.linewidth": 1.7,
    "legend.frameon": False,
}

Floats = NDArray[np.float64]


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    key: str,
    alt: str,
    x: str,
    y: str,
    unit_range: bool = False,
    marked: float | None = None,
    whole_x: bool = True,
    log_y: bool = False,
) -> str:
    """A line for each series; points that are not finite are gaps.

    Args:
        series: by name, x and y values.
        key: unique within the page; prefixes every id.
        alt: what the picture shows, for people who do not see it.
        x, y: axis labels.
        unit_range: y runs from 0 to 1.
        marked: an x that gets a vertical line.
        whole_x: ticks of x are whole numbers.
        log_y: logarithmic y, where all values are above 0.
    """
    with _settings():
        figure, axes = _figure(4.6, 2.7)
        few = max((len(xs) for xs, _ in series.values()), default=0) <= 40
        for place, (name, (xs, ys)) in enumerate(series.items()):
            a, b = _thin(xs, ys)
            style = place % len(_SERIES)
            axes.plot(a, b, color=_SERIES[style], label=name, marker=_MARKERS[style] if few else None, markersize=4.5)
        if marked is not None:
            axes.axvline(marked, color=_MUTED, linewidth=1.1, linestyle=(0, (3, 3)))
        if unit_range:
            axes.set_ylim(-0.02, 1.04)
        if log_y and all(np.nanmin(_finite(ys), initial=np.inf) > 0 for _, ys in series.values()):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_locator(NullLocator())
        if whole_x:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if len(series) > 1:
            columns = 3 if max(map(len, series)) <= _SHORT_LABEL else 2
            axes.legend(
                loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=columns, columnspacing=1.4, handlelength=1.8
            )
        return _svg(figure, key, alt)


def reliability(bins: Sequence[ReliabilityBin], *, key: str, alt: str) -> str:
    """The outcome of each bin against its confidence; on the diagonal they agree."""
    with _settings():
        figure, axes = _figure(3.6, 3.3)
        axes.plot([0, 1], [0, 1], color=_MUTED, linewidth=1.1, linestyle=(0, (3, 3)))
        confidence = [part.confidence for part in bins]
        target = [part.target for part in bins]
        axes.vlines(confidence, confidence, target, color=_SERIES[1], linewidth=1.6, alpha=0.75)
        axes.plot(confidence, target, color=_SERIES[0], marker="o", markersize=6, linestyle="none")
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.04), xlabel="confidence", ylabel="share that was right")
        axes.set_aspect("equal")
        return _svg(figure, key, alt)


def spark(xs: Sequence[float], ys: Sequence[float], *, key: str, alt: str) -> str:
    """One small curve without axes."""
    with _settings():
        figure, axes = _figure(1.9, 0.5)
        axes.set_axis_off()
        a, b = _thin(xs, ys, points=100)
        axes.plot(a, b, color=_SERIES[0], linewidth=1.5)
        return _svg(figure, key, alt)


def _settings() -> AbstractContextManager[None]:
    return mpl.rc_context(cast(Any, _SETTINGS))


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes: Axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    axes.tick_params(length=0)
    return figure, axes


def _finite(values: Sequence[float]) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, np.nan)


def _thin(xs: Sequence[float], ys: Sequence[float], points: int = _POINTS) -> tuple[Floats, Floats]:
    """The means of at most ``points`` equal stretches of a curve; a stretch without any finite value is a gap."""
    a, b = np.asarray(xs, dtype=np.float64), _finite(ys)
    if len(a) <= points:
        return a, b
    stretch = np.arange(len(a)) * points // len(a)
    known = np.isfinite(b)
    size = np.bincount(stretch[known], minlength=points)
    total = np.bincount(stretch[known], weights=b[known], minlength=points)
    means = np.where(size > 0, total / np.maximum(size, 1), np.nan)
    return np.bincount(stretch, weights=a) / np.bincount(stretch), means


def _svg(figure: Figure, key: str, alt: str) -> str:
    """The figure as one ``<svg>`` element for an HTML page."""
    stream = io.BytesIO()
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(stream, format="svg", metadata=metadata)
    text = stream.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[^"]*pt"', "", text)
    # Groups are never referred to; what is (clips, markers) gets an id of its own within the page.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', text)
    text = re.sub(r'(url\(|xlink:href="|href=")#', rf"\1#{key}-", text)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, variable)
    # Text takes the page's font, whichever form of the style this version of matplotlib writes.
    text = re.sub(r"font:\s*(\d+(?:\.\d+)?)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"font-family:[^;\"]*;?\s*", "", text)
    text = re.sub(r"\s*\n\s*", " ", text)
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{_attribute(alt)}" ', text, count=1).strip()


def _attribute(text: str) -> str:
    for character, escape in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(character, escape)
    return text
