"""Signs of a contradiction that a sum over neighbours cannot see: facts that exclude each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from hopline.graph import GraphBatch
from hopline.model.plan import BatchPlan

__all__ = ["ConflictDetector", "Conflicts"]

_GAIN: Final = 32.0
"""Multiplies the learned scores, so that they move as fast as logits have to."""
_PRIOR: Final = -4.0
_SUSPECT: Final = 2.0
"""Added to the prior where a relation joins two nodes in both directions."""
_LARGEST: Final = 0.999


@dataclass(frozen=True, slots=True, eq=False)
class Conflicts:
    """Conflict in [0, 1] of every edge ``[E]``, and of every node ``[N, 1]``: at least one of its edges conflicts."""

    edge: Tensor
    node: Tensor


class ConflictDetector(nn.Module):
    """How likely another fact of the graph excludes an edge: a learned score for each sign that
    :func:`~hopline.graph.clashes.find_clashes` finds. An edge without any sign has no conflict.
    """

    def __init__(self, *, num_relations: int) -> None:
        super().__init__()
        self.num_relations = num_relations
        relations = 2 * num_relations
        self.several = nn.Embedding(relations, 1)  # relation r: at the target; r + R: at the source
        self.pair = nn.Embedding(
            num_relations * relations, 1
        )  # lower relation, then higher, + R in opposite directions
        nn.init.zeros_(self.several.weight)
        nn.init.zeros_(self.pair.weight)
        with torch.no_grad():  # a relation in both directions is the commonest suspect
            self.pair.weight.view(num_relations, relations).diagonal(num_relations).fill_(_SUSPECT / _GAIN)

    def forward(self, batch: GraphBatch, plan: BatchPlan) -> Conflicts:
        """Judge the edges of a batch."""
        table = torch.cat([self.several.weight, self.pair.weight])[:, 0]
        score = table.new_zeros(batch.num_edges).index_add(0, batch.clash_edge, table.index_select(0, batch.clash_cell))
        sign = torch.zeros_like(score).index_fill(0, batch.clash_edge, 1.0)
        edge = torch.sigmoid(_GAIN * score + _PRIOR) * sign
        quiet = torch.log1p(-edge.clamp(max=_LARGEST))
        at_node = quiet.new_zeros(plan.nodes).index_add(0, batch.edge_index.view(-1), quiet.repeat(2))
        return Conflicts(edge=edge, node=-torch.expm1(at_node)[:, None])
