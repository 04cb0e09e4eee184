"""The selection score and the choice among candidates."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.errors import ConfigError, TrainingDivergedError
from hopline.evaluation.selection import Candidate, choose, selection_score

WEIGHTS = {"link.mrr": 1.0}


def test_the_score_is_the_weighted_mean() -> None:
    assert selection_score({"a": 0.2, "b": 0.8, "c": 9.0}, {"a": 1, "b": 3}) == pytest.approx(0.65)


def test_an_unknown_metric_names_the_nearest_and_all_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        selection_score({"link.mrr": 0.5, "link.n": 3}, {"link.mmr": 1})
    message = str(caught.value)
    assert "'link.mmr'" in message
    assert "did you mean link.mrr?" in message
    assert "available: link.mrr, link.n" in message
    assert "\n" not in message


def test_no_number_is_never_best() -> None:
    """G41: NaN never wins."""
    assert selection_score({"link.mrr": math.nan}, WEIGHTS) == -math.inf
    assert selection_score({"link.mrr": 0.5, "x": math.nan}, {"link.mrr": 1, "x": 0}) == 0.5
    choice = choose([Candidate(1, math.nan), Candidate(2, -math.inf), Candidate(3, -5.0)], WEIGHTS)
    assert choice.step == 3
    assert "2 left out, because their score was not a number" in choice.rule


def test_equal_scores_go_to_the_earlier_step() -> None:
    choice = choose([Candidate(300, 0.7, "c"), Candidate(100, 0.7, "a"), Candidate(200, 0.6, "b")], WEIGHTS)
    assert (choice.step, choice.sha256) == (100, "a")
    assert [candidate.step for candidate in choice.table] == [100, 200, 300]
    assert "Highest link.mrr on the valid split" in choice.rule
    assert "level with step 300, which is later" in choice.rule


def test_the_rule_names_weights_and_the_lead() -> None:
    choice = choose([Candidate(1, 0.5), Candidate(2, 0.75)], {"b": 1, "a": 3, "c": 0})
    assert "the mean of a (weight 0.75), b (weight 0.25)" in choice.rule
    assert "best of 2 candidates, ahead of step 1 by 0.2500" in choice.rule


@pytest.mark.parametrize("candidates", [[], [Candidate(4, math.nan)]])
def test_no_usable_candidate_is_a_clear_error(candidates: list[Candidate]) -> None:
    with pytest.raises(TrainingDivergedError, match="no candidate has a selection score"):
        choose(candidates, WEIGHTS)


scores = st.one_of(st.floats(allow_nan=True, allow_infinity=False), st.just(-math.inf))


@given(st.lists(scores, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order(values, random) -> None:
    candidates = [Candidate(step, score) for step, score in enumerate(values)]
    if not any(math.isfinite(value) for value in values):
        return
    shuffled = random.sample(candidates, len(candidates))
    chosen = choose(shuffled, WEIGHTS)
    assert chosen.step == choose(candidates, WEIGHTS).step
    assert all(not candidate.score > chosen.score for candidate in candidates)
