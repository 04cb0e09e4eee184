"""Ranks against a slow, plain definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hopline.evaluation.ranking import filtered_ranks, ranking_metrics, segment_ranks

grid = st.sampled_from([-1.0, 0.0, 0.5, 2.0, math.nan, math.inf, -math.inf])


def slow_rank(scores: list[float], answer: int, left_out: set[int]) -> float:
    """Mean of the best and the worst place of ``answer``."""
    rivals = [s for i, s in enumerate(scores) if i not in left_out and i != answer]
    mine = scores[answer]
    if math.isnan(mine):
        return len(rivals) + 1
    optimistic = 1 + sum(s > mine for s in rivals)
    pessimistic = 1 + sum(s >= mine for s in rivals)
    return (optimistic + pessimistic) / 2


@st.composite
def batches(draw):
    width = draw(st.integers(1, 7))
    rows = draw(st.lists(st.lists(grid, min_size=width, max_size=width), min_size=1, max_size=5))
    ids = st.integers(0, width - 1)
    answers = [draw(st.sets(ids, max_size=3)) for _ in rows]
    known = [draw(st.sets(ids, max_size=3)) - answer for answer in answers]
    return rows, answers, known


def pairs(sets: list[set[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    flat = [(row, x) for row, members in enumerate(sets) for x in sorted(members)]
    table = torch.tensor(flat, dtype=torch.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@given(batches(), st.integers(1, 4))
def test_filtered_ranks_follow_their_definition(batch, chunk) -> None:
    rows, answers, known = batch
    ranks = filtered_ranks(torch.tensor(rows), *pairs(answers), *pairs(known), chunk=chunk)
    expected = [
        slow_rank(rows[row], x, answers[row] | known[row])
        for row, members in enumerate(answers)
        for x in sorted(members)
    ]
    assert ranks.tolist() == expected


@given(st.lists(st.tuples(st.lists(grid, min_size=1, max_size=6), st.sets(st.integers(0, 5))), min_size=1, max_size=5))
def test_segment_ranks_follow_their_definition(rows) -> None:
    answers = [{x for x in members if x < len(scores)} for scores, members in rows]
    starts = np.cumsum([0] + [len(scores) for scores, _ in rows])
    ranks = segment_ranks(
        torch.tensor([s for scores, _ in rows for s in scores]),
        torch.tensor([row for row, (scores, _) in enumerate(rows) for _ in scores]),
        torch.tensor(
            [starts[row] + x for row, members in enumerate(answers) for x in sorted(members)], dtype=torch.int64
        ),
    )
    expected = [
        slow_rank(scores, x, members)
        for (scores, _), members in zip(rows, answers, strict=True)
        for x in sorted(members)
    ]
    assert ranks.tolist() == expected


def test_ties_do_not_inflate_the_rank() -> None:
    """A model that scores everything alike ranks in the middle (pyg-team/pytorch_geometric#4688)."""
    empty = torch.empty(0, dtype=torch.int64)
    ranks = filtered_ranks(torch.zeros(1, 101), torch.tensor([0]), torch.tensor([17]), empty, empty)
    assert ranks.tolist() == [51.0]


def test_scores_that_are_no_numbers_rank_last() -> None:
    empty = torch.empty(0, dtype=torch.int64)
    scores = torch.tensor([[math.nan, 1.0, 2.0], [1.0, math.nan, math.nan]])
    ranks = filtered_ranks(scores, torch.tensor([0, 1]), torch.tensor([0, 0]), empty, empty)
    assert ranks.tolist() == [3.0, 1.0]


def test_ranking_metrics_by_hand() -> None:
    metrics = ranking_metrics([1, 2, 4, 10.5])
    assert metrics["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 10.5) / 4)
    assert (metrics["hits@1"], metrics["hits@3"], metrics["hits@10"], metrics["n"]) == (0.25, 0.5, 0.75, 4)
    assert ranking_metrics([]) == {}
