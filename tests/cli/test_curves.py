"""Curves in the terminal."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.cli.curves import beside, draw

BLANK = "\u2800"


def dots(lines: list[str]) -> list[str]:
    return [line.partition("| ")[2] for line in lines if any(BLANK <= c <= "\u28ff" for c in line)]


def test_a_rising_curve_rises() -> None:
    plot = dots(draw("loss", range(100), [float(y) for y in range(100)], width=60, height=8))
    first = [min((place for place, c in enumerate(line) if c != BLANK), default=99) for line in plot]
    assert first == sorted(first, reverse=True)
    assert first[-1] == 0


def test_the_title_tells_the_last_value() -> None:
    assert draw("loss", [1, 2], [3.0, 0.25], width=60, height=4)[0] == "loss: 0.25 at step 2"


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(allow_infinity=True, allow_nan=True, width=32), max_size=30),
    st.integers(34, 130),
    st.integers(2, 9),
)
def test_any_values_fit_their_place(ys: list[float], width: int, height: int) -> None:
    lines = draw("score", range(len(ys)), ys, width=width, height=height)
    assert bool(lines) is any(math.isfinite(y) for y in ys)
    assert all(len(line) <= width for line in lines)
    if lines:
        assert len(dots(lines)) == height


@pytest.mark.parametrize("ys", [[5.0], [5.0, 5.0], [0.0, 0.0]])
def test_equal_values_are_in_the_middle(ys: list[float]) -> None:
    plot = dots(draw("score", range(len(ys)), ys, width=60, height=6))
    assert [any(c != BLANK for c in line) for line in plot].index(True) in (2, 3)


def test_two_plots_stand_beside_each_other() -> None:
    assert beside(["ab", "c"], ["d"], width=4) == ["ab  d", "c"]
    assert beside(["a"], ["b", "c"], width=3) == ["a  b", "   c"]
