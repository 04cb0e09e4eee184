"""Filtered ranking: where the true answer stands among all candidates once the other true answers are left out.

The rank of an answer that ties with others is realistic: the mean of the best and the worst place it could get (Berrendorf
et al. 2020). A score that is not a number ranks last.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = ["HITS", "filtered_ranks", "ranking_metrics", "segment_ranks"]

HITS = (1, 3, 10)
"""The cut-offs k of Hits@k."""


def filtered_ranks(
    scores: Tensor, answer_row: Tensor, answer: Tensor, known_row: Tensor, known: Tensor, *, chunk: int = 64
) -> Tensor:
    """Realistic filtered rank of every answer among all candidates of its row.

    Args:
        scores: ``[B, V]``, higher is better.
        answer_row, answer: int64 ``[K]``; candidate ``answer[i]`` answers the query of row ``answer_row[i]``.
        known_row, known: int64 ``[F]``; further true answers, left out of the comparison. The other answers of the same row
            are left out too.
        chunk: answers compared at once; bounds memory to ``chunk * V`` scores and changes no result.

    Returns:
        float64 ``[K]``, 1 is best.
    """
    out = torch.zeros_like(scores, dtype=torch.bool)  # [B, V]: not a competitor
    out[known_row, known] = True
    out[answer_row, answer] = True
    out |= scores.isnan()
    own = scores[answer_row, answer]
    ranks = torch.empty(len(answer), dtype=torch.float64, device=scores.device)
    for start in range(0, len(answer), chunk):
        part = slice(start, start + chunk)
        rival = ~out[answer_row[part]]  # [k, V]
        theirs, mine = scores[answer_row[part]], own[part, None]
        ranks[part] = _realistic((rival & (theirs > mine)).sum(1), (rival & (theirs == mine)).sum(1))
    # An answer without a number comes after every candidate that is left, number or not.
    left = torch.full((len(scores),), scores.shape[1], dtype=torch.int64, device=scores.device)
    true = torch.zeros_like(out)
    true[known_row, known] = True
    true[answer_row, answer] = True
    left -= true.sum(1)
    return torch.where(own.isnan(), (left[answer_row] + 1).double(), ranks)


def segment_ranks(scores: Tensor, segment: Tensor, answer: Tensor) -> Tensor:
    """As :func:`filtered_ranks`, where every row has candidates of its own: the nodes of its graph.

    Args:
        scores: ``[N]``; segment: int64 ``[N]``, sorted, the row of each candidate.
        answer: int64 ``[K]``, indices of candidates that answer the query of their row.

    Returns:
        float64 ``[K]``.
    """
    if not len(answer):
        return torch.empty(0, dtype=torch.float64, device=scores.device)
    sizes = torch.bincount(segment)
    starts = sizes.cumsum(0) - sizes
    row = segment[answer]
    width = sizes[row]
    pair = torch.repeat_interleave(torch.arange(len(answer), device=scores.device), width)  # [sum of widths]
    first = width.cumsum(0) - width
    rival_node = torch.arange(len(pair), device=scores.device) - first[pair] + starts[row][pair]
    is_answer = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    is_answer[answer] = True
    theirs, mine = scores[rival_node], scores[answer][pair]
    rival = ~is_answer[rival_node]
    alive = rival & ~theirs.isnan()

    def count(mask: Tensor) -> Tensor:
        return torch.zeros(len(answer), dtype=torch.int64, device=scores.device).index_add_(0, pair, mask.long())

    ranks = _realistic(count(alive & (theirs > mine)), count(alive & (theirs == mine)))
    return torch.where(scores[answer].isnan(), (count(rival) + 1).double(), ranks)


def ranking_metrics(ranks: ArrayLike) -> Mapping[str, float]:
    """``mrr`` and ``hits@k`` of ranks ``[K]``, with ``n = K``; an empty mapping if there are none.

    A realistic rank of ``k + 1/2`` is not within the first k.
    """
    values = np.asarray(ranks, dtype=np.float64)
    if not len(values):
        return {}
    hits = {f"hits@{k}": float(np.mean(values <= k)) for k in HITS}
    return {"mrr": float(np.mean(1.0 / values)), **hits, "n": float(len(values))}


def _realistic(better: Tensor, equal: Tensor) -> Tensor:
    return 1.0 + better.double() + equal.double() / 2.0
