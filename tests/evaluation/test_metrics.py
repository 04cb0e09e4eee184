"""Metrics against hand-worked values and slow definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hopline.evaluation.metrics import (
    accuracy,
    balanced_accuracy,
    brier_score,
    exact_match,
    expected_calibration_error,
    negative_log_likelihood,
    reliability_bins,
    set_scores,
    sigmoid,
)

subsets = st.lists(st.tuples(st.sets(st.integers(0, 6)), st.sets(st.integers(0, 6))), min_size=1, max_size=20)


@given(subsets)
def test_set_scores_follow_their_definition(pairs: list[tuple[set[int], set[int]]]) -> None:
    hits, predicted, gold = ([len(p & g) for p, g in pairs], [len(p) for p, _ in pairs], [len(g) for _, g in pairs])
    precision, recall, f1 = set_scores(hits, predicted, gold)
    exact = exact_match(hits, predicted, gold)
    for i, (p, g) in enumerate(pairs):
        if not p and not g:
            assert (precision[i], recall[i], f1[i]) == (1, 1, 1)
        elif not p or not g:
            assert (precision[i], recall[i], f1[i]) == (0, 0, 0)
        else:
            assert precision[i] == pytest.approx(len(p & g) / len(p))
            assert recall[i] == pytest.approx(len(p & g) / len(g))
            both = precision[i] + recall[i]
            assert f1[i] == pytest.approx(2 * precision[i] * recall[i] / both if both else 0)
        assert exact[i] == (p == g)


def test_right_abstention_counts_as_right() -> None:
    """D12: an empty answer to a query without answers is right."""
    assert set_scores([0], [0], [0])[2][0] == 1


def test_impossible_intersections_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot share more"):
        set_scores([2], [1], [3])


def test_accuracies() -> None:
    gold, predicted = [0, 0, 0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 0, 2]
    assert accuracy(predicted, gold) == pytest.approx(5 / 7)
    assert balanced_accuracy(predicted, gold) == pytest.approx((3 / 4 + 1 / 2 + 1) / 3)
    assert math.isnan(accuracy([], []))
    assert math.isnan(balanced_accuracy([], []))


def test_a_constant_guess_has_chance_balanced_accuracy() -> None:
    assert balanced_accuracy(np.zeros(100), [0] * 90 + [1] * 5 + [2] * 5) == pytest.approx(1 / 3)


def test_brier_and_likelihood_by_hand() -> None:
    assert brier_score([0.8, 0.4], [1, 0]) == pytest.approx((0.04 + 0.16) / 2)
    expected = -(math.log(0.8) + math.log(0.6)) / 2
    logits = [math.log(0.8 / 0.2), math.log(0.4 / 0.6)]
    assert negative_log_likelihood(logits, [1, 0]) == pytest.approx(expected)
    assert negative_log_likelihood([1000.0, -1000.0], [1, 0]) == pytest.approx(0)
    assert np.isfinite(sigmoid([-1e4, 1e4])).all()
    assert np.isnan(sigmoid([math.nan])).all()


@given(hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1)), st.integers(1, 20), st.randoms())
def test_bins_have_equal_mass_and_do_not_depend_on_order(confidence, bins, random) -> None:
    target = np.array([random.randint(0, 1) for _ in confidence], dtype=float)
    parts = reliability_bins(confidence, target, bins)
    sizes = [part.n for part in parts]
    assert sum(sizes) == len(confidence)
    assert len(parts) == min(bins, len(confidence))
    assert max(sizes) - min(sizes) <= 1
    assert sum(part.n * part.target for part in parts) == pytest.approx(target.sum())
    order = np.array(random.sample(range(len(confidence)), len(confidence)))
    again = reliability_bins(confidence[order], target[order], bins)
    assert [p.target for p in again] == pytest.approx([p.target for p in parts])


def test_calibration_error_by_hand() -> None:
    # Two bins: confidences .2 .4 with outcomes 0 1, and .8 .9 with outcomes 1 1.
    error = expected_calibration_error([0.9, 0.2, 0.8, 0.4], [1, 0, 1, 1], bins=2)
    assert error == pytest.approx((abs(0.3 - 0.5) + abs(0.85 - 1)) / 2)
    assert math.isnan(expected_calibration_error([], []))


def test_a_calibrated_forecaster_has_a_small_error_and_an_overconfident_one_a_large() -> None:
    rng = np.random.Generator(np.random.Philox(5))
    truth = rng.uniform(0.05, 0.95, 20_000)
    outcome = rng.uniform(size=20_000) < truth
    assert expected_calibration_error(truth, outcome) < 0.02
    assert expected_calibration_error(truth**0.25, outcome) > 0.15


@pytest.mark.parametrize("bins", [0, -1])
def test_bins_need_to_be_positive(bins: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        reliability_bins([0.5], [1], bins)
