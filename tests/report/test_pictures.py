"""Pictures: the same bytes, no global state, ids of their own."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from hopline.evaluation import ReliabilityBin
from hopline.report import pictures


def draw(key: str = "a") -> str:
    return pictures.lines(
        {"x": ([1, 2, 3], [0.1, math.nan, 0.9]), "y": ([1, 2, 3], [0.3, 0.4, 0.5])},
        key=key,
        alt="Two <lines>",
        x="s",
        y="v",
    )


def settings() -> dict[str, object]:
    return {name: mpl.rcParams[name] for name in mpl.rcParams if name != "backend"}  # asking for it imports pyplot


def test_a_picture_is_reproducible_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it would fail
    before = settings()
    assert draw() == draw()
    assert settings() == before


def test_a_picture_is_one_element_with_its_meaning_in_words() -> None:
    root = ElementTree.fromstring(draw())
    assert root.tag.endswith("svg")
    assert root.get("aria-label") == "Two <lines>"
    assert root.get("width") is None
    assert root.get("viewBox")
    assert not re.search(r"\d{4}-\d{2}-\d{2}|<style|font-family", draw())


def test_ids_of_two_pictures_differ() -> None:
    def ids(text: str) -> set[str]:
        return set(re.findall(r'id="([^"]+)"', text))

    assert ids(draw("a"))
    assert not ids(draw("a")) & ids(draw("b"))


def test_long_curves_are_averaged_without_losing_their_shape() -> None:
    steps = np.arange(50_000)
    values = np.where(steps < 25_000, 2.0, 1.0)
    values[7] = math.inf
    a, b = pictures._thin(steps, values)
    assert len(a) == len(b) == 300
    assert set(b.tolist()) == {1.0, 2.0}
    assert np.all(np.diff(a) > 0)
    assert len(pictures.lines({"x": (steps, values)}, key="k", alt="long", x="s", y="v")) < 30_000


@pytest.mark.parametrize("bins", [(), (ReliabilityBin(0.5, 0.5, 0.5, 1.0, 3),)])
def test_a_reliability_diagram_of_few_bins(bins) -> None:
    assert ElementTree.fromstring(pictures.reliability(bins, key="r", alt="few bins")) is not None


def test_a_series_of_no_numbers_is_an_empty_picture() -> None:
    svg = pictures.lines({"x": ([1, 2], [math.nan, math.inf])}, key="k", alt="nothing", x="s", y="v", log_y=True)
    assert ElementTree.fromstring(svg) is not None
