from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.config import GateConfig
from hopline.lineage import Measured, decide

HERE, ELSEWHERE = "a" * 64, "b" * 64


def measured(split: str = HERE, **metrics: float | None) -> Measured:
    return Measured("c" * 64, split, metrics)


@pytest.mark.parametrize(
    ("minimum", "allowed", "challenger", "champion", "accepted", "reason"),
    [
        ({}, {}, measured(), None, True, "no champion"),
        ({}, {}, measured(), measured(ELSEWHERE), True, "no comparison"),
        ({"mrr": 0.5}, {}, measured(mrr=0.5), None, True, "0.5"),
        ({"mrr": 0.5}, {}, measured(mrr=0.4), None, False, "mrr is 0.4, below the minimum 0.5"),
        ({"mrr": 0.5}, {}, measured(), None, False, "mrr was not measured"),
        ({"mrr": 0.5}, {}, measured(mrr=None), None, False, "mrr was not measured"),
        ({"mrr": 0.5}, {}, measured(mrr=math.nan), None, False, "mrr was not measured"),
        ({"mrr": 0.5}, {}, measured(mrr=math.inf), None, False, "mrr was not measured"),
        ({}, {"mrr": 0.1}, measured(mrr=0.7), measured(mrr=0.8), True, "may be undercut by 0.1"),
        ({}, {"mrr": 0.0}, measured(mrr=0.8), measured(mrr=0.8), True, "mrr"),
        ({}, {"mrr": 0.1}, measured(mrr=0.69), measured(mrr=0.8), False, "more than 0.1 below the champion's 0.8"),
        ({}, {"mrr": -0.1}, measured(mrr=0.85), measured(mrr=0.8), False, "below"),
        ({}, {"mrr": 0.1}, measured(), measured(mrr=0.8), False, "mrr was not measured"),
        ({}, {"mrr": 0.1}, measured(), None, False, "no later version could be compared"),
        ({}, {"mrr": 0.1}, measured(mrr=0.9), measured(), False, "mrr of the champion was not measured"),
        ({}, {"mrr": 0.1}, measured(mrr=0.9), measured(ELSEWHERE, mrr=0.1), False, "another test split"),
        ({"mrr": 0.5}, {"mrr": 0.1}, measured(mrr=0.3), measured(mrr=0.3), False, "below the minimum"),
    ],
)
def test_each_condition(minimum, allowed, challenger, champion, accepted, reason):
    decision = decide(GateConfig(minimum=minimum, allowed_regression=allowed), challenger, champion)
    assert decision.accepted is accepted
    assert any(reason in text for text in decision.reasons)
    assert all("\n" not in text for text in decision.reasons)


def test_every_ground_of_a_refusal_is_told():
    gate = GateConfig(minimum={"a": 1.0, "b": 1.0}, allowed_regression={"a": 0.0})
    decision = decide(gate, measured(a=0.0, b=0.0), measured(a=1.0))
    assert len(decision.reasons) == 3


numbers = st.floats(-10, 10)


@given(numbers, numbers, st.floats(0, 5))
def test_the_gate_is_monotone(low, high, allowed):
    low, high = sorted((low, high))
    gate = GateConfig(minimum={"m": 0.0}, allowed_regression={"m": allowed})
    before = measured(m=1.0)
    if decide(gate, measured(m=low), before).accepted:
        assert decide(gate, measured(m=high), before).accepted
