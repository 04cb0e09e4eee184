"""Temperature fitting on data whose true temperature is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hopline.evaluation.calibration import Calibration, fit_temperature
from hopline.evaluation.metrics import expected_calibration_error, negative_log_likelihood, sigmoid


def drawn(temperature: float, bias: float, n: int = 8000) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose outcomes follow sigmoid(logit / temperature + bias)."""
    rng = np.random.Generator(np.random.Philox(11))
    logits = rng.normal(0, 3, n)
    return logits, (rng.uniform(size=n) < sigmoid(logits / temperature + bias)).astype(float)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_true_temperature_is_found_without_a_bias(temperature: float) -> None:
    calibration = fit_temperature(*drawn(temperature, 0.0))
    assert calibration.temperature == pytest.approx(temperature, rel=0.1)
    assert calibration.bias == 0
    assert "a bias did not help" in calibration.note


def test_a_true_bias_is_found_and_said() -> None:
    logits, targets = drawn(2.5, -1.2)
    calibration = fit_temperature(logits, targets)
    assert calibration.temperature == pytest.approx(2.5, rel=0.1)
    assert calibration.bias == pytest.approx(-1.2, abs=0.1)
    assert "bias -1." in calibration.note
    raw, fitted = sigmoid(logits), calibration.probabilities(logits)
    assert expected_calibration_error(fitted, targets) < 0.02 < expected_calibration_error(raw, targets)


def test_no_setting_nearby_is_better() -> None:
    logits, targets = drawn(2.5, -1.2, n=500)
    best = fit_temperature(logits, targets)
    assert best.nll_after == pytest.approx(negative_log_likelihood(best.logits(logits), targets))
    for factor, shift in itertools.product((0.97, 1.0, 1.03), (-0.05, 0.0, 0.05)):
        other = negative_log_likelihood(logits / (best.temperature * factor) + best.bias + shift, targets)
        assert other >= best.nll_after - 1e-9


@pytest.mark.parametrize("value", [0.0, 1.0, 0.5])
def test_equal_targets_leave_the_confidence_alone(value: float) -> None:
    calibration = fit_temperature([3.0, -2.0, 0.1], [value] * 3)
    assert (calibration.temperature, calibration.bias, calibration.n) == (1.0, 0.0, 0)
    assert "same outcome" in calibration.note


@pytest.mark.parametrize("logits", [[], [math.nan, math.inf, 2.0]])
def test_nothing_to_fit_leaves_the_confidence_alone(logits: list[float]) -> None:
    assert fit_temperature(logits, [1.0] * len(logits)).temperature == 1.0


@given(
    hnp.arrays(np.float64, st.integers(2, 30), elements=st.floats(-60, 60)),
    st.randoms(use_true_random=False),
)
def test_every_fit_is_finite_monotone_and_no_worse(logits, random) -> None:
    targets = [random.random() for _ in logits]
    calibration = fit_temperature(logits, targets)
    assert 1 / 20 <= calibration.temperature <= 20.000001
    assert math.isfinite(calibration.bias)
    before, after = negative_log_likelihood(logits, targets), calibration.logits(logits)
    assert negative_log_likelihood(after, targets) <= before + 1e-9
    order = np.argsort(logits)
    assert (np.diff(after[order]) >= 0).all()


def test_the_default_changes_nothing() -> None:
    assert Calibration().logits([1.5, -2.0]).tolist() == [1.5, -2.0]
