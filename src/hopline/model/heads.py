"""The heads: each turns states into the logits of one question."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopline.graph import STATUS_INDEX, STATUSES, Status

__all__ = ["ConfidenceHead", "CountHead", "EdgeHead", "EntityHead", "EvidenceTrunk", "LinkHead", "StepHead", "mlp"]

_NODE_SIGNALS = 5
_CONFLICT_SPEAKS_FOR = {Status.SUPPORTED: -1.0, Status.MISSING: 0.0, Status.CONTRADICTED: 1.0}
_GAIN = 4.0
"""Multiplies weights that lead straight to logits, so that they move as fast as logits have to."""


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """One hidden layer with GELU."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))


class EntityHead(nn.Module):
    """Whether a node is an answer, from its state, the row's summary and the node's signals."""

    def __init__(self, *, hidden_dim: int) -> None:
        super().__init__()
        self.node = nn.Linear(hidden_dim, hidden_dim)
        self.row = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.signals = nn.Linear(_NODE_SIGNALS, hidden_dim, bias=False)
        self.out = nn.Linear(hidden_dim, 1)
        self.joint = _Scale(8.0)
        nn.init.normal_(self.out.weight, std=0.02)
        nn.init.constant_(self.out.bias, -4.0)

    def forward(self, states: Tensor, summary: Tensor, node_graph: Tensor, signals: Tensor) -> Tensor:
        """``[N]`` from states ``[N, H]``, summaries ``[G, H]`` and signals ``[N, 5]``, whose first is the joint walk."""
        row = self.row(summary).index_select(0, node_graph)
        hidden = F.gelu(self.node(states) + row + self.signals(signals))
        logit: Tensor = self.out(hidden)[:, 0] + self.joint(signals[:, 0])
        return logit.float()


class StepHead(nn.Module):
    """Relation logits for steps of paths, from node states at the step and the query's state for the hop."""

    def __init__(self, *, nodes: int, hidden_dim: int, relations: int) -> None:
        super().__init__()
        self.nodes = nn.Linear(nodes * hidden_dim, hidden_dim)
        self.hop = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.out = nn.Linear(hidden_dim, relations)

    def forward(self, nodes: Tensor, hops: Tensor) -> Tensor:
        """``[S, relations]`` from nodes ``[S, nodes * H]`` and hop states ``[S, H]``."""
        logits: Tensor = self.out(F.gelu(self.nodes(nodes) + self.hop(hops)))
        return logits.float()


class EdgeHead(nn.Module):
    """Which relation holds between two anchors, from their states and the paths between them."""

    def __init__(self, *, hidden_dim: int, relations: int, bilinear: bool) -> None:
        super().__init__()
        self.states = mlp(4 * hidden_dim, hidden_dim, relations)
        self.bilinear = _Scale(1.0) if bilinear else None

    def forward(self, first: Tensor, second: Tensor, evidence: Tensor, bilinear: Tensor | None) -> Tensor:
        """``[Q, R]`` from ``[Q, H]`` each, and scores ``[Q, R]`` of the bilinear branch where there is one."""
        logits: Tensor = self.states(torch.cat([first, second, first * second, evidence], 1)).float()
        return logits if self.bilinear is None or bilinear is None else logits + self.bilinear(bilinear)


class EvidenceTrunk(nn.Module):
    """Summary and path evidence, to the state that verification, status and count read."""

    def __init__(self, *, hidden_dim: int, features: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(3 * hidden_dim + features, hidden_dim)
        self.norm = nn.LayerNorm(hidden_dim)
        self.dropout = nn.Dropout(dropout)
        self.support = mlp(hidden_dim, hidden_dim, 1)
        self.status = mlp(hidden_dim, hidden_dim, len(STATUSES))
        self.direct = nn.Linear(features, 1 + len(STATUSES), bias=False)
        nn.init.zeros_(self.direct.weight)
        with torch.no_grad():  # the first feature is the conflict on the query's way
            self.direct.weight[:, 0] = torch.tensor([-1.0, *(_CONFLICT_SPEAKS_FOR[status] for status in STATUSES)])

    def forward(self, states: list[Tensor], features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """State ``[G, H]``, support logit ``[G]`` and status logits ``[G, 3]``.

        Args:
            states: three of ``[G, H]``.
            features: ``[G, features]``; they also reach the logits directly. The first is the conflict on the query's way.
        """
        state: Tensor = self.dropout(F.gelu(self.norm(self.inner(torch.cat([*states, features], 1)))))
        direct = _GAIN * self.direct(features)
        support = self.support(state)[:, 0] + direct[:, 0]
        return state, support.float(), (self.status(state) + direct[:, 1:]).float()


class CountHead(nn.Module):
    """How many answers there are, as classes 0..max_count: none if the query is not supported, else drawn to the expected
    number of answering nodes."""

    def __init__(self, *, hidden_dim: int, max_count: int) -> None:
        super().__init__()
        self.inner = mlp(hidden_dim + 2, hidden_dim, max_count + 1)
        self.pull = _Scale(1.0)
        self.pull_walked = _Scale(1.0)
        self.max_count = max_count

    def forward(self, state: Tensor, expected: Tensor, walked: Tensor, status: Tensor) -> Tensor:
        """Log-probabilities ``[G, C + 1]``.

        Args:
            state: ``[G, H]``.
            expected, walked: ``[G, 1]`` how many nodes the entity head and the walk expect.
            status: logits ``[G, 3]``.
        """
        logits: Tensor = self.inner(torch.cat([state, expected.log1p(), walked.log1p()], 1)).float()
        pulled = logits - self.pull(self._distance(expected)) - self.pull_walked(self._distance(walked))
        chance = F.log_softmax(status, -1)
        supported = chance[:, STATUS_INDEX["supported"], None]
        others = [index for name, index in STATUS_INDEX.items() if name != "supported"]
        nothing = chance[:, others].logsumexp(-1)
        counted = F.log_softmax(pulled, -1) + supported
        return torch.cat([torch.logaddexp(counted[:, :1], nothing[:, None]), counted[:, 1:]], 1)

    def _distance(self, count: Tensor) -> Tensor:
        """``[G, C + 1]`` squared distance of every class from a count, up to 9."""
        classes = torch.arange(self.max_count + 1, device=count.device)
        return (classes - count.clamp(max=float(self.max_count))).square().clamp(max=9.0)


class ConfidenceHead(nn.Module):
    """How good the model's own answer will be, from detached signals: it judges the answer and never shapes it."""

    def __init__(self, *, hidden_dim: int, signals: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_dim)
        self.inner = mlp(hidden_dim + signals, hidden_dim, 1)

    def forward(self, state: Tensor, signals: Tensor) -> Tensor:
        """``[G]`` from states ``[G, H]`` and signals ``[G, signals]``."""
        logit: Tensor = self.inner(torch.cat([self.norm(state.detach()), signals.detach()], 1))
        return logit[:, 0].float()


class LinkHead(nn.Module):
    """Whether two nodes are joined, from their normalised states: a small network of ``l * r`` and ``|l - r|``."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.inner = mlp(2 * hidden_dim, hidden_dim, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """``[K]`` from two ``[K, H]``."""
        logit: Tensor = self.inner(torch.cat([left * right, (left - right).abs()], 1))
        return logit[:, 0].float()


class _Scale(nn.Module):
    """A learned factor."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([value]))  # one element, not none: FSDP cannot shard a scalar

    def forward(self, values: Tensor) -> Tensor:
        product: Tensor = self.scale * values
        return product
