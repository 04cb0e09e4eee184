"""The multi-task loss: twelve components, each a sum over rows with one divisor.

A component is the mean over the *scored rows* (twins included) of that row's loss, where a row without the target counts 0.
So losses of parts of a batch, each divided by the number of rows of the whole, add up to the loss of the whole, whatever the
parts are: chunks of a batch, or the shares of several ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopline.config import LossConfig
from hopline.model.segments import segment_count, segment_logsumexp, segment_sum

__all__ = ["COMPONENTS", "PAIR_MARGIN", "LossInputs", "LossOutput", "MultiTaskLoss"]

COMPONENTS: Final = (
    "node", "link", "next_hop", "relation", "path", "pat", "answer", "verification", "contradiction", "count",
    "confidence", "pair_margin",
)  # fmt: skip
"""Names of the components, in their fixed order."""

PAIR_MARGIN: Final = LossConfig().pair_margin
"""Default of ``loss.pair_margin``."""

_NODE_MARGIN: Final = 0.5


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LossInputs:
    """Logits and labels of ``G`` rows with ``N`` nodes, ``E`` edges, ``K`` unlinked pairs, ``P`` paths, ``S+`` supporting
    steps, ``L`` ranked link queries, ``Q`` relation queries, and ``X`` edges asked of the bilinear branch.

    Attributes:
        rows: G.
        pair_cosines: ``[E + K]`` cosines of the node states of E linked pairs (the edges) and K unlinked ones, K / E for
            each edge, in the edges' order.
        pair_graph: int64 ``[E]``; negative_weight: ``[K]``, 0 where no unlinked pair was found.
        link_logits, link_labels: ``[E + K]``.
        edge_scores: ``[X, V]``; edge_targets, edge_graph: int64 ``[X]``; edge_weight: ``[X]``.
        next_hop_logits, hop_relation_logits: ``[S+, 2R]``; next_hop_labels, hop_relation_labels, hop_graph: int64 ``[S+]``.
        relation_logits: ``[Q, R]``; relation_labels: int64 ``[Q]``, -1 without an answer; relation_graph: int64 ``[Q]``.
        path_scores, path_labels: ``[P]``; path_graph: int64 ``[P]``; selection_threshold: ``[G]``.
        pat_positive, pat_negative: ``[G]``; pat_mask: bool ``[G]``.
        answer_logits, answer_labels, answer_weight: ``[N]``; answer_graph: int64 ``[N]``; answer_listwise: bool ``[G]``,
            rows whose nodes are ranked rather than chosen.
        bilinear_logits: ``[L, V]``; ranking_targets: bool ``[L, V]``; ranking_graph: int64 ``[L]``.
        verification_logits, verification_labels: ``[G]``.
        contradiction_logits: ``[G, 3]``; contradiction_labels: int64 ``[G]``.
        count_logits: ``[G, C + 1]``; count_labels: int64 ``[G]``; count_mask: bool ``[G]``.
        confidence: logits ``[G]``; correctness: ``[G]`` in [0, 1].
        twin_mask: bool ``[G]``, rows that are the supported twin of the row before.
        penalty: ``[G]``, N3 of the bilinear vectors that the row uses.
        row_weight: ``[G]``, what each row counts for, or None: each counts for 1. A row with weight 0 adds nothing to any
            component, and its gradient is zero.
    """

    rows: int
    pair_cosines: Tensor
    pair_graph: Tensor
    negative_weight: Tensor
    link_logits: Tensor
    link_labels: Tensor
    edge_scores: Tensor
    edge_targets: Tensor
    edge_graph: Tensor
    edge_weight: Tensor
    next_hop_logits: Tensor
    next_hop_labels: Tensor
    hop_relation_logits: Tensor
    hop_relation_labels: Tensor
    hop_graph: Tensor
    relation_logits: Tensor
    relation_labels: Tensor
    relation_graph: Tensor
    path_scores: Tensor
    path_labels: Tensor
    path_graph: Tensor
    selection_threshold: Tensor
    pat_positive: Tensor
    pat_negative: Tensor
    pat_mask: Tensor
    answer_logits: Tensor
    answer_labels: Tensor
    answer_weight: Tensor
    answer_graph: Tensor
    answer_listwise: Tensor
    bilinear_logits: Tensor
    ranking_targets: Tensor
    ranking_graph: Tensor
    verification_logits: Tensor
    verification_labels: Tensor
    contradiction_logits: Tensor
    contradiction_labels: Tensor
    count_logits: Tensor
    count_labels: Tensor
    count_mask: Tensor
    confidence: Tensor
    correctness: Tensor
    twin_mask: Tensor
    penalty: Tensor
    row_weight: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LossOutput:
    """The loss of some rows.

    Attributes:
        total: 0-d; the weighted sum of the components, plus the N3 regularisation.
        shares: ``[COMPONENTS]`` the components, unweighted, in their order.
        rows: how many rows were scored.
    """

    total: Tensor
    shares: Tensor
    rows: int

    @property
    def components(self) -> Mapping[str, Tensor]:
        """Name -> 0-d, unweighted; every name of COMPONENTS, in that order."""
        return dict(zip(COMPONENTS, self.shares.unbind(), strict=True))


class MultiTaskLoss(nn.Module):
    """The loss of :data:`COMPONENTS`, without parameters.

    * node: hinge of the cosines of linked and unlinked pairs, mean over edges;
    * link: binary cross entropy of linked and unlinked pairs, plus, with a bilinear branch, the cross entropy over all
      entities of some edges of the graph;
    * next_hop, relation: cross entropy, mean over supporting steps; relation queries add theirs;
    * path: binary cross entropy of path logits above their row's threshold, mean over paths;
    * pat: hinge of the log-sum-exp scores of supporting and competing paths;
    * answer: binary cross entropy summed over nodes, divided by one more than the number of answers; link queries: also
      cross entropy over the nodes, and over all entities by the bilinear branch;
    * verification, confidence: binary cross entropy; contradiction, count: cross entropy;
    * pair_margin: hinge of the support logits of a twin and its missing example, which it is counted for.
    """

    weights: Tensor

    def __init__(self, config: LossConfig) -> None:
        super().__init__()
        self.config = config
        weights = [*(getattr(config.weights, name) for name in COMPONENTS), config.n3]
        self.register_buffer("weights", torch.tensor(weights), persistent=False)

    def forward(self, inputs: LossInputs, *, divisor: Tensor | float | None = None) -> LossOutput:
        """The loss.

        Args:
            inputs: at least one row, whatever its weight.
            divisor: what the rows' losses are divided by; None = their number. Give the number of rows of the whole batch,
                over all chunks and ranks, to get this part's share of it.
        """
        if inputs.rows < 1:
            raise ValueError("a loss needs at least one row")
        by_row = self._by_row(inputs)
        table = torch.stack([*(by_row[name] for name in COMPONENTS), inputs.penalty])
        sums = table.sum(1) if inputs.row_weight is None else table @ inputs.row_weight
        shares = sums / (inputs.rows if divisor is None else divisor)
        total: Tensor = shares @ self.weights
        return LossOutput(total, shares[: len(COMPONENTS)], inputs.rows)

    def _by_row(self, x: LossInputs) -> Mapping[str, Tensor]:
        """Each component for each row, ``[G]``."""
        node, link = self._pairs(x)
        next_hop, hop_relation = self._steps(x)
        return {
            "node": node,
            "link": link + self._edges(x),
            "next_hop": next_hop,
            "relation": hop_relation + self._asked_relation(x),
            "path": self._path(x),
            "pat": F.relu(self.config.pat_margin - x.pat_positive + x.pat_negative) * x.pat_mask,
            "answer": self._answer(x),
            "verification": _binary(x.verification_logits, x.verification_labels),
            "contradiction": _cross_entropy(x.contradiction_logits, x.contradiction_labels),
            "count": _cross_entropy(x.count_logits, x.count_labels) * x.count_mask,
            "confidence": _binary(x.confidence, x.correctness.detach()),
            "pair_margin": self._pair_margin(x),
        }

    def _pairs(self, x: LossInputs) -> tuple[Tensor, Tensor]:
        """Node and link, of the edges and the unlinked pairs drawn for them."""
        E = len(x.pair_graph)
        each = len(x.negative_weight) // max(E, 1)
        weight = x.negative_weight.view(E, each)
        found = weight.sum(1)
        joined, apart = x.pair_cosines[:E, None], x.pair_cosines[E:].view(E, each)
        hinge = (F.relu(_NODE_MARGIN - joined + apart) * weight).sum(1) / found.clamp(min=1)
        binary = _binary(x.link_logits, x.link_labels)
        binary = binary[:E] + (binary[E:].view(E, each) * weight).sum(1)
        ones = torch.ones_like(found)
        sums = segment_sum(torch.stack([hinge, ones, binary, ones + found], 1), x.pair_graph, x.rows)
        # The weights of a row are none or at least 1.
        means = sums[:, ::2] / sums[:, 1::2].detach().clamp(min=1)
        return means[:, 0], means[:, 1]

    def _edges(self, x: LossInputs) -> Tensor:
        return _mean_by_row(_cross_entropy(x.edge_scores, x.edge_targets), x.edge_graph, x.rows, x.edge_weight)

    def _steps(self, x: LossInputs) -> tuple[Tensor, Tensor]:
        """Next hop and relation of supporting steps."""
        next_hop = _cross_entropy(x.next_hop_logits, x.next_hop_labels)
        relation = _cross_entropy(x.hop_relation_logits, x.hop_relation_labels)
        means = _mean_by_row(torch.stack([next_hop, relation], 1), x.hop_graph, x.rows)
        return means[:, 0], means[:, 1]

    def _asked_relation(self, x: LossInputs) -> Tensor:
        known = (x.relation_labels >= 0).to(torch.float32)
        asked = _cross_entropy(x.relation_logits, x.relation_labels.clamp(min=0)) * known
        return segment_sum(asked, x.relation_graph, x.rows)

    def _path(self, x: LossInputs) -> Tensor:
        margin = x.path_scores - x.selection_threshold.index_select(0, x.path_graph)
        return _mean_by_row(_binary(margin, x.path_labels), x.path_graph, x.rows)

    def _answer(self, x: LossInputs) -> Tensor:
        labels = x.answer_labels * x.answer_weight
        binary = _binary(x.answer_logits, x.answer_labels) * x.answer_weight
        binary, answers = segment_sum(torch.stack([binary, labels], 1), x.answer_graph, x.rows).unbind(1)
        binary = binary / (1 + answers)
        # Ranked nodes: each answer against the nodes that are none, others left out.
        rivals = segment_logsumexp(x.answer_logits, x.answer_graph, x.rows, x.answer_weight * (1 - x.answer_labels))
        lead = rivals.index_select(0, x.answer_graph) - x.answer_logits
        listwise = segment_sum(F.softplus(lead) * labels, x.answer_graph, x.rows) / answers.clamp(min=1)
        nodes = binary + listwise * x.answer_listwise
        return nodes + segment_sum(_ranking(x.bilinear_logits, x.ranking_targets), x.ranking_graph, x.rows)

    def _pair_margin(self, x: LossInputs) -> Tensor:
        ahead = x.verification_logits[1:] - x.verification_logits[:-1]
        return F.pad(F.relu(self.config.pair_margin - ahead) * x.twin_mask[1:], (0, 1))


def _ranking(logits: Tensor, targets: Tensor) -> Tensor:
    """``[L]``: cross entropy of each target against all entities that are no target, mean over the targets of a row.

    Answers of other triples count as rivals, as usual for bilinear models (Lacroix et al. 2018): leaving them out costs 3
    points of valid MRR on UMLS.
    """
    if not logits.numel():
        return logits.sum(-1)
    rivals = torch.logsumexp(logits.masked_fill(targets, -1e9), -1, keepdim=True)
    loss = F.softplus(rivals - logits) * targets
    return loss.sum(-1) / targets.sum(-1).clamp(min=1)


def _binary(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """``[K]`` from ``[K, C]``; also for K = 0 and C = 0."""
    if not len(logits):
        return logits.sum(-1)
    return F.cross_entropy(logits, labels, reduction="none")


def _mean_by_row(values: Tensor, graph: Tensor, rows: int, weight: Tensor | None = None) -> Tensor:
    """``[G, ...]`` mean over each row's values ``[K, ...]``, weighted ones ``[K]``; 0 for a row without any."""
    if weight is None:
        count = segment_count(graph, rows).clamp(min=1)
        return segment_sum(values, graph, rows) / count.view(-1, *(1,) * (values.dim() - 1))
    total = segment_sum(torch.stack([values * weight, weight], 1), graph, rows)
    return total[:, 0] / total[:, 1].clamp(min=1e-6)
