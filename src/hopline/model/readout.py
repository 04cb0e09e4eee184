"""The graph as one vector for each row: what the walk found, and whether it is sound."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopline.graph import GraphBatch
from hopline.model.conflicts import Conflicts
from hopline.model.plan import BatchPlan
from hopline.model.query_encoder import QueryStates
from hopline.model.segments import segment_mean, segment_sum
from hopline.model.walk import WalkStates

__all__ = ["WALK_FEATURES", "GraphReadout", "walk_features"]

WALK_FEATURES = 12
"""Width of :func:`walk_features`."""


def walk_features(batch: GraphBatch, plan: BatchPlan, walk: WalkStates, conflicts: Conflicts) -> Tensor:
    """``[G, 12]`` scalars of each row: how many nodes the chains reach, how far they get, whether the second anchor is
    among them, whether an edge that they cross is in conflict, and how large the graph is."""
    G = plan.graphs
    frontiers = torch.cat([*walk.frontiers[1:], walk.joint], 1)  # [N, 2 * hops + 1]
    alive = _any(frontiers, batch.node_graph, G)
    hop = torch.arange(plan.hops, device=alive.device)[:, None]
    inside = hop < plan.chain_length[:, None]  # [G, hops, 2]
    progress = (alive[:, :-1].view(G, plan.hops, 2) * inside).sum(1) / plan.chain_length.clamp(min=1)  # [G, 2]
    conflict = torch.stack([walk.crossed * conflicts.edge, conflicts.edge], 1)  # [E, 2]
    sums = segment_sum(torch.cat([walk.joint, walk.reached], 1), batch.node_graph, G)
    second = F.pad(walk.joint, (0, 0, 0, 1)).index_select(0, plan.anchors[:, 1])
    return torch.cat(
        [
            _any(conflict[:, :1], batch.edge_graph, G),
            progress,
            alive[:, -1:],
            sums.log1p(),
            segment_sum(conflict, batch.edge_graph, G).log1p(),
            second,
            plan.node_count.float().log1p()[:, None] / 5,
            plan.two_chains.float()[:, None],
        ],
        1,
    )


def _any(chances: Tensor, index: Tensor, segments: int) -> Tensor:
    """Noisy or over the rows of each segment."""
    return -torch.expm1(segment_sum(torch.log1p(-chances.clamp(max=0.999)), index, segments))


class GraphReadout(nn.Module):
    """Query, anchors, reached nodes and :func:`walk_features`, to a summary ``[G, H]`` of the row."""

    def __init__(self, *, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        H = hidden_dim
        self.nodes = nn.Linear(4 * H, H)
        self.query = nn.Linear(H, H, bias=False)
        self.features = nn.Linear(WALK_FEATURES, H, bias=False)
        self.norm = nn.LayerNorm(H)
        self.out = nn.Linear(H, H)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        batch: GraphBatch,
        plan: BatchPlan,
        query: QueryStates,
        walk: WalkStates,
        features: Tensor,
        states: Tensor,
        anchors: Tensor,
    ) -> Tensor:
        """Summary ``[G, H]`` from node states ``[N, H]``, and those of the anchors ``[G, 2 * H]``."""
        G = plan.graphs
        reached = segment_sum(torch.cat([walk.joint * states, walk.joint], 1), batch.node_graph, G)
        reached = reached[:, :-1] / (reached[:, -1:] + 0.1)
        pooled = torch.cat([anchors, reached, segment_mean(states, batch.node_graph, G)], 1)
        mixed = self.nodes(pooled) + self.query(query.summary) + self.features(features)
        summary: Tensor = self.dropout(F.gelu(self.out(F.gelu(self.norm(mixed)))))
        return summary
