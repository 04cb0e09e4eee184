"""Curves in the terminal, in braille dots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

from plotille import Figure

__all__ = ["beside", "draw"]

_MARGIN = 14
"""Columns beside the dots: the labels of y, and the arrow of x."""
_LEAST = 20


def draw(title: str, xs: Sequence[float], ys: Sequence[float], *, width: int, height: int) -> list[str]:
    """The lines of a plot; values that are not finite are left out. No lines if there is nothing to draw.

    Args:
        title: what y is; shortened to fit its place.
        xs, ys: steps and values.
        width: columns of the whole.
        height: lines of the dots; four more are axes and labels.
    """
    points = [(float(x), float(y)) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]
    if not points:
        return []
    figure = Figure()
    figure.width, figure.height = max(_LEAST, width - _MARGIN), height
    figure.with_colors = False
    figure.origin = False
    figure.x_label, figure.y_label = "step", ""
    figure.set_x_limits(*_limits([x for x, _ in points]))
    figure.set_y_limits(*_limits([y for _, y in points]))
    figure.x_ticks_fkt = lambda low, _: f"{low:.0f}"
    figure.y_ticks_fkt = lambda low, _: f"{low:.4g}"
    figure.plot([x for x, _ in points], [y for _, y in points])
    last = f"{title}: {points[-1][1]:.4g} at step {points[-1][0]:.0f}"
    # The first line of a plot holds only the name of y, which has no room there.
    return [line.rstrip()[:width] for line in (last, *figure.show().splitlines()[1:])]


def beside(left: Sequence[str], right: Sequence[str], *, width: int) -> list[str]:
    """Two plots side by side, the right one from column ``width``."""
    return [f"{a:<{width}}{b}".rstrip() for a, b in zip_longest(left, right, fillvalue="")]


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Limits that are apart; those of equal values lie around them."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - max(1.0, abs(low)) * 0.1, high + max(1.0, abs(high)) * 0.1)
