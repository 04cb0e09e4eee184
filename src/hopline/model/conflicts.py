"""Signs of a contradiction that a sum over neighbours cannot see: facts that exclude each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopline.graph import GraphBatch
from hopline.model.plan import BatchPlan
from hopline.model.segments import segment_count

__all__ = ["ConflictDetector", "Conflicts"]

_NEIGHBOURS: Final = 3
"""With how many relations between the same two nodes, next in order, an edge's is compared on either side."""
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
    """How likely another fact of the graph excludes an edge. Three signs, with learned scores:

    * the source has several edges of the relation (a functional relation allows one); so for the target;
    * another edge joins the same two nodes: one score for each pair of relations in the same and in opposite directions
      (asymmetric relations with themselves, inverse and exclusive ones with others).

    An edge without any sign has no conflict.
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
        R, N = self.num_relations, plan.nodes
        source, target = batch.edge_index
        relation = batch.edge_type_ids
        several, sign = self._several(torch.stack([target * 2 * R + relation, source * 2 * R + relation + R]))

        parallel, beside = self._parallel(source, target, relation, max(N, 1))
        sign = sign | beside
        edge = torch.sigmoid(_GAIN * (several + parallel) + _PRIOR) * sign
        quiet = torch.log1p(-edge.clamp(max=_LARGEST))
        at_node = torch.zeros(N, device=edge.device).index_add(0, source, quiet).index_add(0, target, quiet)
        return Conflicts(edge=edge, node=-torch.expm1(at_node)[:, None])

    def _several(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """``[E]`` score and whether there is one, from keys ``[2, E]`` of (node, signed relation)."""
        flat = keys.view(-1)
        ordered, order = torch.sort(flat)
        fresh = torch.ones_like(ordered)
        fresh[:1] = 0
        fresh[1:] = ordered[1:] != ordered[:-1]
        group = torch.empty_like(order).index_copy_(0, order, fresh.cumsum(0))
        many = segment_count(group, len(flat)).index_select(0, group) > 1
        score = self.several.weight[:, 0].index_select(0, flat % (2 * self.num_relations)) * many
        return score.view_as(keys).sum(0), many.view_as(keys).any(0)

    def _parallel(self, source: Tensor, target: Tensor, relation: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
        """``[E]`` summed scores of the edges beside each, and whether there are any.

        Edges are sorted by their two nodes and by relation, and each is compared with those whose relation is among the next
        few: which these are does not depend on the order of nodes or edges.
        """
        R, E = self.num_relations, len(relation)
        low, high = torch.minimum(source, target), torch.maximum(source, target)
        ordered, order = torch.sort(((low * nodes + high) * R + relation) * 2 + (source > target))
        pair, kind, backwards = ordered // (2 * R), ordered // 2 % R, ordered % 2
        fresh = torch.ones_like(ordered)
        fresh[1:] = ordered[1:] // 2 != ordered[:-1] // 2
        place = fresh.cumsum(0)  # edges of one relation between two nodes share a place
        loop = (low == high).index_select(0, order)
        score, found = torch.zeros(E, device=order.device), torch.zeros(E, dtype=torch.bool, device=order.device)
        for distance in range(1, 2 * _NEIGHBOURS + 2):
            shift = min(distance, E)
            near = (pair[shift:] == pair[: E - shift]) & (place[shift:] - place[: E - shift] <= _NEIGHBOURS)
            near = near & (ordered[shift:] != ordered[: E - shift]) & ~loop[shift:]
            opposite = backwards[shift:] != backwards[: E - shift]
            cell = kind[: E - shift] * (2 * R) + kind[shift:] + R * opposite
            value = self.pair.weight[:, 0].index_select(0, cell) * near
            score = score + F.pad(value, (0, shift)) + F.pad(value, (shift, 0))
            found = found | F.pad(near, (0, shift)) | F.pad(near, (shift, 0))
        return torch.zeros_like(score).index_copy(0, order, score), torch.zeros_like(found).index_copy(0, order, found)
