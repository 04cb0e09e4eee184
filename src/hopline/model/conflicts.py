"""Signs of a contradiction that a sum over neighbours cannot see: facts that exclude each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hopline.graph import GraphBatch
from hopline.model.plan import BatchPlan
from hopline.model.segments import segment_count, segment_sum

__all__ = ["ConflictDetector", "Conflicts"]

_RANK = 16


@dataclass(frozen=True, slots=True, eq=False)
class Conflicts:
    """Conflict in [0, 1] of every message ``[M]`` and node ``[N, 1]`` (at least one message into it conflicts)."""

    message: Tensor
    node: Tensor


class ConflictDetector(nn.Module):
    """How likely each message takes part in a contradiction, from two counts.

    * how many messages of its relation reach its target (a relation that is functional allows one);
    * which other relations join the same two nodes, in which direction (asymmetric and exclusive relations), through a
      learned pair score.
    """

    def __init__(self, *, num_relations: int) -> None:
        super().__init__()
        self.num_relations = num_relations
        relations = 2 * num_relations
        self.several = nn.Embedding(relations, 1)
        self.base = nn.Embedding(relations, 1)
        self.own = nn.Embedding(relations, _RANK)
        self.other = nn.Embedding(relations, _RANK)
        nn.init.zeros_(self.several.weight)
        nn.init.constant_(self.base.weight, -4.0)
        nn.init.normal_(self.own.weight, std=0.3)
        nn.init.normal_(self.other.weight, std=0.3)

    def forward(self, batch: GraphBatch, plan: BatchPlan) -> Conflicts:
        """Judge the messages of a batch."""
        N, relation = plan.nodes, batch.message_relation
        same = _size_of_group(batch.message_target * (2 * self.num_relations) + relation)  # [M]
        several = torch.log2(same.to(torch.float32))[:, None]  # 0 where alone

        pair, groups = _groups(batch.message_target * max(N, 1) + batch.message_source)
        own, other = self.own.weight.index_select(0, relation), self.other.weight.index_select(0, relation)  # [M, rank]
        beside = segment_sum(other, pair, groups).index_select(0, pair) - other
        score = self.base.weight.index_select(0, relation) + several * self.several.weight.index_select(0, relation)
        message = torch.sigmoid(score.float() + (own * beside).sum(-1, keepdim=True))  # [M, 1]
        quiet = segment_sum(torch.log1p(-message.clamp(max=0.999)), batch.message_target, N)
        return Conflicts(message=message[:, 0], node=-torch.expm1(quiet))


def _groups(keys: Tensor) -> tuple[Tensor, int]:
    """A group number for each key, equal for equal keys, and how many numbers to make room for (one for each key)."""
    ordered, order = torch.sort(keys)
    fresh = torch.ones_like(ordered)
    fresh[:1] = 0
    fresh[1:] = ordered[1:] != ordered[:-1]
    return torch.empty_like(order).index_copy_(0, order, fresh.cumsum(0)), len(keys)


def _size_of_group(keys: Tensor) -> Tensor:
    group, groups = _groups(keys)
    return segment_count(group, groups).index_select(0, group)
