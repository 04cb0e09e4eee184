"""Query-conditioned message passing (after NBFNet, Zhu et al. 2021), with gates instead of one relation for all hops."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn

from hopline.graph import GraphBatch
from hopline.model.messages import plan_routes
from hopline.model.node_update import NodePlan, UpdateWeights, update_nodes
from hopline.model.plan import BRANCHES, BatchPlan
from hopline.model.query_encoder import QueryStates
from hopline.model.walk import WalkStates

__all__ = ["Propagation"]

_MOST_BLOCKS: Final = 4
"""Blocks of a node state that one branch of the query steers, at most; twice as many in all."""


class Propagation(nn.Module):
    """``layers`` rounds of messages over the union graph; layer l reads the state of hop l of each chain.

    Half of a node state follows the first chain of the query and half the second (both the same one where there is only
    one); each half is cut into blocks. Message m of relation r adds ``c[graph, r, block] * h[source]`` to its target, where
    the coefficient is a gate, ``sigmoid(hop state · key of r)``, times a value of r; so every relation has a vector of as
    many values as there are blocks, and costs a gather that narrow instead of one of width H.
    """

    def __init__(self, *, num_relations: int, hidden_dim: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.blocks = math.gcd(hidden_dim // BRANCHES, _MOST_BLOCKS)
        self.blank = nn.Parameter(torch.randn(hidden_dim) * 0.1)
        self.layers = nn.ModuleList(
            PropagationLayer(num_relations=num_relations, hidden_dim=hidden_dim, dropout=dropout) for _ in range(layers)
        )

    def forward(
        self, batch: GraphBatch, plan: BatchPlan, query: QueryStates, walk: WalkStates, marks: Tensor
    ) -> Tensor:
        """Node states ``[N, H]``.

        Args:
            batch, plan: the batch.
            query: its hop states and anchor marks.
            walk: frontiers of the soft walk; layer l also sees frontier l + 1.
            marks: ``[N, 1]`` conflict at each node.
        """
        cell = batch.anchor_graph * BRANCHES + batch.anchor_slot
        mark = query.anchors.flatten(0, 1).index_select(0, cell).float()  # [A, H]
        states = self.blank.float().expand(plan.nodes, -1).index_add(0, batch.anchor_node, mark)
        routes = plan_routes(
            batch.message_source,
            batch.message_target,
            plan.message_cell,
            batch.edge_message,
            nodes=plan.nodes,
            blocks=BRANCHES * self.blocks,
        )
        nodes = NodePlan(routes=routes, graph=batch.node_graph, inverse_degree=plan.inverse_degree)
        mean = query.mean()
        for index, layer in enumerate(self.layers):
            frontier = walk.frontiers[min(index + 1, plan.hops)]
            signal = torch.cat([frontier, marks], 1)
            states = layer(states, nodes, query.hops[:, index], query.chain, mean[:, index] + query.summary, signal)
        return states


class PropagationLayer(nn.Module):
    """One round: gated sum of messages, degree-normalised; update modulated by the query at each node; residual."""

    def __init__(self, *, num_relations: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        H, relations = hidden_dim, 2 * num_relations
        self.blocks = math.gcd(H // BRANCHES, _MOST_BLOCKS)
        self.key = nn.Linear(H, relations * self.blocks)
        self.value = nn.Parameter(1 + 0.5 * torch.randn(relations, BRANCHES * self.blocks))
        self.own = nn.Linear(H, H)
        self.incoming = nn.Linear(H, H, bias=False)
        self.signal = nn.Linear(BRANCHES + 1, H, bias=False)
        self.modulation = nn.Linear(H, 2 * H)
        self.norm = nn.LayerNorm(H)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, states: Tensor, nodes: NodePlan, hop: Tensor, chain: Tensor, query: Tensor, signal: Tensor
    ) -> Tensor:
        """Node states ``[N, H]`` after the round.

        Args:
            states: ``[N, H]`` before it.
            nodes: the batch.
            hop: ``[U, H]`` state of this round's hop of each chain; chain: ``[G, 2]`` which one each branch follows.
            query: ``[G, H]`` what modulates the update.
            signal: ``[N, 3]``.
        """
        G, relations = len(query), self.value.shape[0]
        gate = torch.sigmoid(self.key(hop)).index_select(0, chain.view(-1)).view(G, BRANCHES, relations, self.blocks)
        table = gate.transpose(1, 2).reshape(G, relations, BRANCHES * self.blocks) * self.value
        gain, shift = self.modulation(query).chunk(2, -1)
        gain = 1 + gain
        mask = None
        if self.training and self.dropout.p:
            mask = self.dropout(torch.ones_like(states))
        weights = UpdateWeights(self.own.weight, self.own.bias, self.incoming.weight, self.signal.weight)
        return update_nodes(
            states,
            table.float().flatten(0, 1),
            signal,
            self.norm.weight * gain,
            self.norm.bias * gain + shift,
            weights,
            nodes,
            mask,
        )
