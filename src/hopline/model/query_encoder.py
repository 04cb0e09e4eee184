"""The query as vectors: one state for each hop of each chain, and a summary."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopline.graph import ANSWER_MODES
from hopline.model.plan import BRANCHES, BatchPlan

__all__ = ["QueryEncoder", "QueryStates"]


@dataclass(frozen=True, slots=True, eq=False)
class QueryStates:
    """What the query encoder says.

    Attributes:
        hops: ``[U, J, H]`` state of hop j of each chain; beyond a chain's end still a state, of the whole query.
        chain: int64 ``[G, 2]`` which chain each branch follows.
        summary: ``[G, H]``.
        anchors: ``[G, 2, H]`` what marks the node of anchor slot 0 and 1.
    """

    hops: Tensor
    chain: Tensor
    summary: Tensor
    anchors: Tensor

    def mean(self) -> Tensor:
        """``[G, J, H]`` of both branches."""
        first, second = self.hops.index_select(0, self.chain[:, 0]), self.hops.index_select(0, self.chain[:, 1])
        return (first + second) / 2


class QueryEncoder(nn.Module):
    """Chains of relations, the answer mode and the anchors' roles, to states of width H.

    A chain is read with order: its hops' embeddings times the embeddings of their positions are summed into a context
    that every hop sees, so that the one-relation query of a link still has states for the hops that may prove it.
    """

    def __init__(self, *, num_relations: int, hidden_dim: int, positions: int) -> None:
        super().__init__()
        H = hidden_dim
        self.relation = nn.Embedding(2 * num_relations + 1, H)  # the last: beyond the chain's end
        self.position = nn.Embedding(positions, H)
        self.mode = nn.Embedding(len(ANSWER_MODES), H)
        self.context = nn.Linear(H, H)
        self.hop = nn.Sequential(nn.LayerNorm(H), nn.Linear(H, H), nn.GELU(), nn.Linear(H, H))
        self.whole = nn.Sequential(nn.LayerNorm(2 * H), nn.Linear(2 * H, H), nn.GELU(), nn.Linear(H, H))
        self.anchor = nn.Linear(H, BRANCHES * H)

    def forward(self, plan: BatchPlan, answer_mode: Tensor) -> QueryStates:
        """Encode the queries of a batch.

        Args:
            plan: chains ``[G, 2, J]`` and their lengths ``[G, 2]``.
            answer_mode: ``[G]``.
        """
        graph, chains = plan.own_chains // BRANCHES, plan.chains.flatten(0, 1).index_select(0, plan.own_chains)
        length = plan.chain_length.view(-1).index_select(0, plan.own_chains)
        relation = F.embedding(chains, self.relation.weight)  # [U, J, H]
        J = chains.shape[1]
        position = self.position.weight[:J]
        inside = torch.arange(J, device=chains.device) < length[:, None]  # [U, J]
        order = 1 + position
        context = (relation * order * inside[..., None]).sum(1) / length.clamp(min=1)[:, None].sqrt()
        mode = F.embedding(answer_mode, self.mode.weight)  # [G, H]
        context = self.context(context)  # [U, H]
        hops = relation + position + (context + mode.index_select(0, graph))[:, None]
        first, second = context.index_select(0, plan.chain[:, 0]), context.index_select(0, plan.chain[:, 1])
        summary = self.whole(torch.cat([first + second + mode, first * second + mode], -1))
        return QueryStates(
            hops=self.hop(hops),
            chain=plan.chain,
            summary=summary,
            anchors=self.anchor(summary).unflatten(1, (BRANCHES, position.shape[1])),
        )
