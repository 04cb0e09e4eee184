"""Learning rates as a pure function of the step."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.training.schedule import learning_rate_factor, warmup_steps


def factor(step: int, *, total: int = 100, ratio: float = 0.1, floor: float = 0.1) -> float:
    return learning_rate_factor(step, total_steps=total, warmup_ratio=ratio, floor=floor)


def test_warm_up_rises_linearly_from_its_first_step() -> None:
    """G14: (step + 1) / warmup, with warmup = max(1, int(total * ratio))."""
    assert [factor(step) for step in range(10)] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert [warmup_steps(total, 0.05) for total in (1, 19, 20, 59)] == [1, 1, 1, 2]
    assert warmup_steps(1000, 0.0) == 1
    assert factor(0, ratio=0.0) == 1.0


def test_cosine_falls_to_the_floor_and_stays_there() -> None:
    """G15: 0.5 (1 + cos(pi p)) * 0.9 + 0.1, with p capped at 1 beyond total_steps."""
    for step in (10, 40, 55, 99):
        p = (step - 10) / 90
        assert factor(step) == pytest.approx(0.5 * (1 + math.cos(math.pi * p)) * 0.9 + 0.1)
    assert factor(55) == pytest.approx(0.55)
    assert factor(100) == factor(10_000) == pytest.approx(0.1)
    assert factor(100, floor=0.0) == pytest.approx(0.0)


@given(
    total=st.integers(1, 10_000),
    ratio=st.floats(0, 1),
    floor=st.floats(0, 1),
    step=st.integers(0, 20_000),
)
def test_the_factor_stays_between_floor_and_one_and_has_one_peak(
    total: int, ratio: float, floor: float, step: int
) -> None:
    """G14, G15 for every horizon: up while it warms up, never up again afterwards."""
    here, after = (
        learning_rate_factor(s, total_steps=total, warmup_ratio=ratio, floor=floor) for s in (step, step + 1)
    )
    assert 0 < here <= 1 or floor == 0
    if step + 1 < warmup_steps(total, ratio):
        assert after > here
    elif step >= warmup_steps(total, ratio):
        assert floor - 1e-12 <= after <= here + 1e-12
