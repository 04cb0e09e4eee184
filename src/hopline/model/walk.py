"""The walk: where the query's chains lead from their anchors, hop by hop, as soft sets of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopline.graph import GraphBatch
from hopline.model.plan import BatchPlan
from hopline.model.segments import segment_sum

__all__ = ["ChainWalk", "WalkStates"]

_RANK = 16
_LARGEST_STEP = 0.999  # keeps log(1 - step) finite


@dataclass(frozen=True, slots=True, eq=False)
class WalkStates:
    """Soft membership in [0, 1] of every node, for both branches.

    Attributes:
        frontiers: hops + 1 tensors ``[N, 2]``; frontier 0 is the anchors. Past its end a chain stays where it is.
        reached: ``[N, 2]`` the last frontier.
        joint: ``[N, 1]`` reached by every chain of the query.
        crossed: ``[E]`` how far some hop of some chain crosses the edge.
        gates: ``[hops * G * 2 * 2R]`` how well each relation fits each hop, in [0, 1].
    """

    frontiers: tuple[Tensor, ...]
    reached: Tensor
    joint: Tensor
    crossed: Tensor
    gates: Tensor


class ChainWalk(nn.Module):
    """Soft execution of relation chains.

    An edge of relation s lets hop relation r pass with ``sigmoid(match.scale * [r == s] - match.threshold + u_r · v_s)``,
    and a node belongs to the next frontier with the probability that at least one edge lets it through (noisy or). It starts
    as a nearly exact walk (u = 0) and learns through u and v which other relations may stand in for one.
    """

    def __init__(self, *, num_relations: int) -> None:
        super().__init__()
        self.num_relations = num_relations
        self.match = _Match()
        self.query = nn.Embedding(2 * num_relations + 1, _RANK)
        self.edge = nn.Embedding(2 * num_relations, _RANK)
        nn.init.zeros_(self.query.weight)
        nn.init.normal_(self.edge.weight, std=_RANK**-0.5)

    def forward(self, batch: GraphBatch, plan: BatchPlan) -> WalkStates:
        """Walk all chains of a batch."""
        D, N, relations = plan.hops, plan.nodes, 2 * self.num_relations
        chains = plan.chains[:, :, :D].permute(2, 0, 1)  # [D, G, 2]
        likeness = F.embedding(chains, self.query.weight) @ self.edge.weight.t()  # [D, G, 2, 2R]
        same = (chains[..., None] == torch.arange(relations, device=chains.device)).to(likeness.dtype)
        gates = torch.sigmoid((likeness + self.match(same)).float())  # [D, G, 2, 2R]
        by_cell = gates.transpose(2, 3).reshape(D, plan.graphs * relations, 2)

        source, target = batch.edge_index
        ends, starts = torch.cat([target, source]), torch.cat([source, target])  # each edge both ways, [2E]
        cell = batch.edge_graph * relations + batch.edge_type_ids
        cell = torch.cat([cell, cell + self.num_relations])
        here = _at_nodes(plan.anchors, plan.two_chains, N)  # [N, 2]
        frontiers = [here]
        length = plan.chain_length.index_select(0, batch.node_graph)  # [N, 2]
        crossings = [torch.zeros((len(ends), 2), device=here.device)]
        for hop in range(D):
            walking = torch.where(hop < length, here, 0.0)
            step = by_cell[hop].index_select(0, cell) * walking.index_select(0, starts)  # [2E, 2]
            arrived = -torch.expm1(segment_sum(torch.log1p(-step.clamp(max=_LARGEST_STEP)), ends, N))
            here = torch.where(hop < length, arrived, here)
            frontiers.append(here)
            crossings.append(step)
        two = plan.two_chains.index_select(0, batch.node_graph)[:, None]
        return WalkStates(
            frontiers=tuple(frontiers),
            reached=here,
            joint=torch.where(two, here[:, :1] * here[:, 1:], here[:, :1]),
            crossed=torch.stack(crossings).view(D + 1, 2, batch.num_edges, 2).amax((0, 1, 3)),
            gates=gates.reshape(-1),
        )


class _Match(nn.Module):
    """``scale * same - threshold``; a module of its own so that its parameters are known by name as undecayed."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([10.0]))
        self.threshold = nn.Parameter(torch.tensor([6.0]))

    def forward(self, same: Tensor) -> Tensor:
        value: Tensor = self.scale * same - self.threshold
        return value


def _at_nodes(anchors: Tensor, two_chains: Tensor, nodes: int) -> Tensor:
    """``[N, 2]`` 1 where a branch starts. Both branches of a query with one chain start at its first anchor."""
    start = torch.where(two_chains[:, None], anchors, anchors[:, :1])  # [G, 2]
    branch = torch.arange(2, device=anchors.device)
    flat = torch.zeros((nodes + 1) * 2, device=anchors.device)
    return flat.index_fill(0, (start * 2 + branch).view(-1), 1.0).view(nodes + 1, 2)[:nodes]
