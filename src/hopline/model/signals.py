"""How sure the other heads are: what the confidence head judges the answer by."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from hopline.graph import ANSWER_MODES, STATUSES, GraphBatch
from hopline.model.plan import BatchPlan
from hopline.model.segments import segment_logsumexp, segment_sum

__all__ = ["CONFIDENCE_SIGNALS", "confidence_signals"]

CONFIDENCE_SIGNALS: Final = 1 + len(STATUSES) + 4 + 2 + 2 + 2 + 2 + len(ANSWER_MODES)
"""Width of :func:`confidence_signals`."""

_SHARPNESS: Final = 8.0  # soft maximum of margins


@torch.no_grad()
def confidence_signals(
    batch: GraphBatch,
    plan: BatchPlan,
    *,
    support: Tensor,
    status: Tensor,
    count: Tensor,
    entities: Tensor,
    margin: Tensor,
    ranking: Tensor,
    relation: Tensor,
) -> Tensor:
    """``[G, CONFIDENCE_SIGNALS]`` detached scalars of each row.

    Args:
        batch, plan: the batch.
        support: ``[G]``; status: ``[G, 3]``; count: ``[G, C + 1]``; entities: ``[N]``.
        ranking: ``[L, V]``; relation: ``[Q, R]``.
        margin: ``[P]`` selection logits above their threshold.
    """
    G = plan.graphs
    p = torch.sigmoid(entities)
    doubt = torch.minimum(p, 1 - p)
    sums = segment_sum(torch.stack([p, doubt, doubt.square()], 1), batch.node_graph, G)
    strongest = segment_logsumexp(_SHARPNESS * entities, batch.node_graph, G) / _SHARPNESS
    paths = segment_sum(torch.sigmoid(margin), batch.path_graph, G)
    best_path = segment_logsumexp(_SHARPNESS * margin, batch.path_graph, G) / _SHARPNESS
    parts = [
        support[:, None] / 4,
        F.log_softmax(status, -1).clamp(min=-8) / 4,
        sums[:, :1].log1p(),
        sums[:, 1:],
        strongest[:, None].clamp(-8, 8) / 4,
        paths[:, None].log1p(),
        best_path[:, None].clamp(-8, 8) / 4,
        _top(count),
        _spread(_top(ranking), plan.link_rows, G),
        _spread(_top(relation), plan.relation_rows, G),
        F.one_hot(batch.answer_mode, len(ANSWER_MODES)).to(torch.float32),
    ]
    return torch.cat(parts, 1)


def _top(logits: Tensor) -> Tensor:
    """``[K, 2]`` from ``[K, C]``: log-odds of the most likely class, and how far it lies above the second."""
    if not len(logits):
        return logits.new_zeros((0, 2))
    chance = F.log_softmax(logits, -1)
    best = chance.topk(min(2, logits.shape[1]), -1).values
    odds = best[:, :1] - torch.log1p(-best[:, :1].exp().clamp(max=1 - 1e-6))
    return torch.cat([odds, best[:, :1] - best[:, -1:]], 1).clamp(-10, 10) / 4


def _spread(values: Tensor, rows: Tensor, graphs: int) -> Tensor:
    """``[G, 2]``: the values at their rows, 0 elsewhere."""
    return values.new_zeros((graphs, values.shape[1])).index_copy(0, rows, values)
