"""The curves of a run as a picture."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import matplotlib as mpl

from hopline.report import EvaluationPoint, TrainingCurves
from hopline.report.run_picture import run_picture

STEPS = tuple(range(10, 210, 10))
CURVES = TrainingCurves(
    steps=STEPS,
    loss=tuple(100 / step for step in STEPS),
    learning_rate=(0.1,) * len(STEPS),
    components={f"part {n}": tuple(n + 1 / step for step in STEPS) for n in range(12)},
    evaluations=(EvaluationPoint(100, 0.4), EvaluationPoint(200, math.nan)),
    grad_norm=tuple(math.nan if step == 50 else 1 + 10 / step for step in STEPS),
)
SHORT = TrainingCurves(steps=(1, 2), loss=(2.0, 1.0), learning_rate=(0.1, 0.1), components={"a": (1.0, 2.0)})
HEALTH = [{"step": 10.0, "examples_per_second": 100.0}, {"step": 20.0}]


def size(picture: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", picture[16:24])


def test_each_curve_that_is_known_has_a_panel() -> None:
    """Two to a row: six panels in three rows, three panels in two, none in one."""
    width, height = size(run_picture("run", CURVES, HEALTH))
    assert size(run_picture("run", replace(CURVES, grad_norm=()), HEALTH[1:])) == (width, height * 2 // 3)
    fewer = size(run_picture("run", SHORT, []))
    assert fewer == (width, height * 2 // 3)
    assert size(run_picture("run", TrainingCurves(), [])) == (width // 2, height // 3)


def test_the_same_data_give_the_same_bytes_and_settings_stay_as_they_were() -> None:
    before = dict(mpl.rcParams)
    first = run_picture("run", SHORT, [])
    assert run_picture("run", SHORT, []) == first
    assert run_picture("other", SHORT, []) != first
    assert dict(mpl.rcParams) == before
