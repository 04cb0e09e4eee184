"""Candidate paths: their states, the selection among them, and path attention (PAT)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopline.graph import GraphBatch
from hopline.model.conflicts import Conflicts
from hopline.model.plan import BatchPlan
from hopline.model.query_encoder import QueryStates
from hopline.model.segments import segment_logsumexp, segment_softmax, segment_sum
from hopline.model.walk import WalkStates

__all__ = ["PathAttention", "PathEncoder", "PathScores", "PathSelector", "SelectedEvidence"]

_FEATURES = 8


class PathEncoder(nn.Module):
    """A state for each candidate path, from its relations in order, where it ends, and how it fits the query."""

    def __init__(self, *, num_relations: int, hidden_dim: int, positions: int) -> None:
        super().__init__()
        H = hidden_dim
        self.num_relations = num_relations
        self.relation = nn.Embedding(2 * num_relations, H)
        self.position = nn.Embedding(positions, H)
        self.signature = nn.Linear(H, H)
        self.asked = nn.Linear(H, H)
        self.fit = nn.Linear(H, H, bias=False)
        self.end = nn.Linear(H, H, bias=False)
        self.query = nn.Linear(H, H, bias=False)
        self.features = nn.Linear(_FEATURES, H, bias=False)
        self.norm = nn.LayerNorm(H)
        self.out = nn.Linear(H, H)

    def forward(
        self,
        batch: GraphBatch,
        plan: BatchPlan,
        query: QueryStates,
        walk: WalkStates,
        conflicts: Conflicts,
        end: Tensor,
    ) -> Tensor:
        """Path states ``[P, H]``, also from those of the nodes where the paths end, ``[P, H]``."""
        P = batch.num_paths
        place = batch.step_position.clamp(max=self.position.num_embeddings - 1)
        relation = self.relation.weight.index_select(0, plan.step_relation)  # [S, H]
        ordered = relation * (1 + self.position.weight.index_select(0, place))
        signature = segment_sum(ordered, batch.step_path, P) / batch.path_length.clamp(min=1).sqrt()[:, None]
        signature = F.gelu(self.signature(signature))

        signals = F.pad(torch.cat([walk.joint, walk.reached], 1), (0, 0, 0, 1))  # [N + 1, 3]
        doubt = torch.log1p(-conflicts.edge.clamp(max=0.999)).index_select(0, batch.step_edge)[:, None]
        second = plan.anchors[:, 1].index_select(0, batch.path_graph)
        features = torch.cat(
            [
                self._follows(batch, plan, walk),
                signals.index_select(0, plan.path_end),
                -torch.expm1(segment_sum(doubt, batch.step_path, P)),
                (plan.path_end == second).float()[:, None],
                batch.path_length.float().log1p()[:, None],
            ],
            1,
        )  # [P, 8]
        asked = torch.stack([self.asked(query.summary), self.query(query.summary)], 1).index_select(0, batch.path_graph)
        mixed = self.fit(signature * asked[:, 0]) + self.end(end) + asked[:, 1] + self.features(features)
        return F.gelu(self.out(F.gelu(self.norm(mixed + signature))))

    def _follows(self, batch: GraphBatch, plan: BatchPlan, walk: WalkStates) -> Tensor:
        """``[P, 2]`` in [0, 1]: how exactly the path follows each chain of the query."""
        branch = torch.arange(2, device=plan.step_graph.device)
        length = plan.chain_length.index_select(0, plan.step_graph)  # [S, 2]
        inside = batch.step_position[:, None] < length
        row = (batch.step_position * plan.graphs + plan.step_graph)[:, None] * 2 + branch
        cell = row * (2 * self.num_relations) + plan.step_relation[:, None]
        cell = torch.where(inside, cell, len(walk.gates))
        gates = torch.cat([walk.gates, walk.gates.new_zeros(1)]).index_select(0, cell.view(-1)).view(-1, 2)
        product = segment_sum(gates.clamp(min=1e-6).log(), batch.step_path, batch.num_paths).exp()
        whole = batch.path_length[:, None] == plan.chain_length.index_select(0, batch.path_graph)
        return product * whole


@dataclass(frozen=True, slots=True, eq=False)
class PathScores:
    """Path attention.

    Attributes:
        attention: ``[P]`` mean over heads of the softmax over all candidate paths of a row.
        evidence: ``[G, H]`` the paths as seen by attention; 0 without paths.
        positive, negative: ``[G]`` log-sum-exp of the scores of supporting and competing paths.
        mask: bool ``[G]`` rows that have both.
    """

    attention: Tensor
    evidence: Tensor
    positive: Tensor
    negative: Tensor
    mask: Tensor


class PathAttention(nn.Module):
    """All candidate paths of a row share one softmax for each head."""

    def __init__(self, *, hidden_dim: int, heads: int, temperature: float) -> None:
        super().__init__()
        self.heads, self.width, self.temperature = heads, hidden_dim // heads, temperature
        self.query = nn.Linear(hidden_dim, hidden_dim)
        self.key = nn.Linear(hidden_dim, hidden_dim)
        self.value = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, batch: GraphBatch, query: QueryStates, paths: Tensor) -> PathScores:
        """Attend to path states ``[P, H]``."""
        P, G = batch.num_paths, batch.num_graphs
        asked = self.query(query.summary).index_select(0, batch.path_graph).view(P, self.heads, self.width)
        product = (asked * self.key(paths).view(P, self.heads, self.width)).sum(-1)
        score = product.float() / (self.width**0.5 * self.temperature)  # [P, heads]
        weight = segment_softmax(score, batch.path_graph, G)
        seen = weight[..., None] * self.value(paths).view(P, self.heads, self.width)
        mean, label = score.mean(1), batch.path_label.float()
        sides = torch.stack([label, 1 - label], 1)  # [P, 2] supporting, competing
        strength = segment_logsumexp(mean[:, None].expand(P, 2), batch.path_graph, G, sides)
        return PathScores(
            attention=weight.mean(1),
            evidence=segment_sum(seen.reshape(P, paths.shape[1]), batch.path_graph, G),
            positive=strength[:, 0],
            negative=strength[:, 1],
            mask=(segment_sum(sides, batch.path_graph, G) > 0).all(1),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SelectedEvidence:
    """What the heads after path selection see.

    Attributes:
        states: ``[G, H]``.
        mass: ``[G, 1]`` the log of one more than the selected weight.
    """

    states: Tensor
    mass: Tensor


class PathSelector(nn.Module):
    """Which candidate paths are evidence: a logit for each path, against a threshold that depends on the query."""

    def __init__(self, *, hidden_dim: int, on_policy: bool) -> None:
        super().__init__()
        self.on_policy = on_policy
        self.score = nn.Linear(hidden_dim, 1)
        self.limit = _Threshold(hidden_dim)
        self.value = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, batch: GraphBatch, query: QueryStates, paths: Tensor) -> tuple[Tensor, Tensor]:
        """Selection logits ``[P]`` and thresholds ``[G]``; a path is selected where its logit is above."""
        return self.score(paths)[:, 0].float(), self.limit(query.summary).float()

    def evidence(self, batch: GraphBatch, paths: Tensor, logits: Tensor, threshold: Tensor) -> SelectedEvidence:
        """Pool the selected paths.

        In training without ``on_policy`` these are the supporting paths of the label (teacher forcing); otherwise, and
        always in evaluation, the model's own selection, each path weighted by the selection's probability.
        """
        margin = logits - threshold.index_select(0, batch.path_graph)
        taught = self.training and not self.on_policy
        weight = batch.path_label.float() if taught else torch.sigmoid(margin) * (margin > 0)
        mass = segment_sum(weight, batch.path_graph, batch.num_graphs)[:, None]
        pooled = segment_sum(weight[:, None] * self.value(paths), batch.path_graph, batch.num_graphs)
        return SelectedEvidence(states=pooled / (1 + mass), mass=mass.log1p())


class _Threshold(nn.Module):
    """A learned threshold with an offset for each query."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(1))
        self.offset = nn.Linear(hidden_dim, 1, bias=False)
        nn.init.zeros_(self.offset.weight)

    def forward(self, summary: Tensor) -> Tensor:
        value: Tensor = self.threshold + self.offset(summary)[:, 0]
        return value
