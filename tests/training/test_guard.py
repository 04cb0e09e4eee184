"""Which updates are applied."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hopline.config import TrainingConfig
from hopline.errors import TrainingDivergedError
from hopline.training import TrainingState
from hopline.training.guard import judge_update, require_convergence

NAN, INF = math.nan, math.inf


def config(**training: Any) -> TrainingConfig:
    return TrainingConfig(**{"skip_grad_norm": 3.0, "skip_minimum": 4, "skip_window": 6, **training})


def feed(state: TrainingState, norms: list[float], **options: Any) -> list[str]:
    training = options.pop("training", config())
    return [judge_update(state, training, norm, 1.0, **options) for norm in norms]


def test_a_norm_far_above_the_median_is_skipped_once_enough_are_known() -> None:
    """G36: not before skip_minimum norms; counter up; the spike does not enter the history."""
    state = TrainingState()
    assert feed(state, [1.0, 50.0, 1.0, 1.0]) == ["apply"] * 4
    assert feed(state, [3.0, 3.1, 2.0]) == ["apply", "spike", "apply"]
    assert state.skipped_updates == 1
    assert 3.1 not in state.applied_norms


def test_the_median_is_taken_over_a_window() -> None:
    """G36: only the last skip_window applied norms count."""
    state = TrainingState()
    feed(state, [1.0] * 20)
    assert len(state.applied_norms) == 6
    assert feed(state, [2.9, 8.0], training=config(skip_grad_norm=9.0)) == ["apply", "apply"]
    feed(state, [8.0] * 3, training=config(skip_grad_norm=0.0))
    assert state.applied_norms == [1.0, 2.9, 8.0, 8.0, 8.0, 8.0]
    assert feed(state, [23.0, 25.0]) == ["apply", "spike"]


def test_nothing_is_a_spike_when_the_rule_is_off() -> None:
    """G36: skip_grad_norm 0 = off."""
    state = TrainingState()
    assert feed(state, [1.0] * 10 + [1e30], training=config(skip_grad_norm=0.0))[-1] == "apply"


@pytest.mark.parametrize(("norm", "loss"), [(NAN, 1.0), (INF, 1.0), (1.0, NAN), (1.0, -INF)])
def test_what_is_not_finite_is_never_applied_and_never_remembered(norm: float, loss: float) -> None:
    """D2, D3, G62."""
    state = TrainingState(applied_norms=[1.0])
    assert judge_update(state, config(), norm, loss) == "non_finite"
    assert (state.non_finite_updates, state.non_finite_in_a_row, state.skipped_updates) == (1, 1, 0)
    assert state.applied_norms == [1.0]


def test_several_in_a_row_end_the_training() -> None:
    """D2: abort after k in a row; a finite update in between starts the count anew."""
    state, training = TrainingState(), config(max_non_finite=3)
    for norm in (NAN, NAN, 1.0, NAN, INF):
        judge_update(state, training, norm, 1.0)
        require_convergence(state, training)
    judge_update(state, training, NAN, 1.0)
    with pytest.raises(TrainingDivergedError, match=r"the last 3 updates .* lower training\.learning_rate"):
        require_convergence(state, training)
    assert state.non_finite_updates == 5


def test_an_overflow_that_the_loss_scaler_answers_is_no_divergence() -> None:
    """D1: inf is handled by the scaler, not by the spike rule; a loss that is not finite still is divergence."""
    state = TrainingState()
    assert feed(state, [INF] * 20, overflow=True) == ["non_finite"] * 20
    assert (state.non_finite_updates, state.non_finite_in_a_row) == (20, 0)
    judge_update(state, config(), INF, NAN, overflow=True)
    assert state.non_finite_in_a_row == 1
