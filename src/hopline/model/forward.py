"""What the model says about a batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Forward"]


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """Outputs for ``G`` rows with ``N`` nodes, ``P`` paths and ``S+`` steps of supporting paths.

    All logits are float32, also under autocast. Only the fields marked *label* are read off labels; in training without
    ``on_policy_selection`` the fields marked *taught* have seen the gold supporting paths. With G = 1 the rows are those of
    one example.

    Attributes:
        entity_order: int64 ``[N]`` index of each node within its own row's graph: what ``entity_logits[i]`` speaks of.
        node_states: ``[N, H]``.
        entity_logits: ``[N]``; above 0 = the node is an answer.
        ranking_logits: ``[L, V]`` score of every vocabulary entity, for the L link queries of a transductive model: the
            bilinear score, plus the weighted structural score (entity logit) of the nodes that the row's graph holds;
            ``[0, 0]`` otherwise. The two parts are trained apart, so that neither leans on what the other has memorised.
        bilinear_logits: ``[L, V]`` the bilinear part alone.
        ranking_graph: int64 ``[L]`` their rows.
        next_hop_logits: ``[S+, 2R]`` which relation continues a supporting path from where the step starts.
        next_hop_labels: int64 ``[S+]`` *label*.
        hop_relation_logits: ``[S+, 2R]`` which relation a supporting step crosses, from the nodes at both ends.
        hop_relation_labels: int64 ``[S+]`` *label*.
        hop_graph: int64 ``[S+]`` the rows of both.
        relation_logits: ``[Q, R]`` the answer of relation queries.
        relation_graph: int64 ``[Q]`` their rows.
        selection_logits: ``[P]``; a path is selected where its logit is above its row's threshold.
        selection_threshold: ``[G]``.
        selection_labels: ``[P]`` 1 supporting, 0 competing; *label*.
        path_attention: ``[P]`` sums to 1 over the candidate paths of a row.
        pat_positive, pat_negative: ``[G]`` log-sum-exp of the scores of supporting and of competing paths; *label*.
        pat_mask: bool ``[G]`` rows that have both, elsewhere the two have no meaning; *label*.
        support_logit: ``[G]`` above 0 = the query is supported; *taught*.
        contradiction_logits: ``[G, 3]`` over STATUS_INDEX; *taught*.
        count_logits: ``[G, C + 1]`` log-probabilities of 0..max_count answers, meant for count and aggregate queries;
            *taught*.
        confidence_logit: ``[G]`` expected score of the own answer, before calibration; *taught*.
    """

    entity_order: Tensor
    node_states: Tensor
    entity_logits: Tensor
    ranking_logits: Tensor
    bilinear_logits: Tensor
    ranking_graph: Tensor
    next_hop_logits: Tensor
    next_hop_labels: Tensor
    hop_relation_logits: Tensor
    hop_relation_labels: Tensor
    hop_graph: Tensor
    relation_logits: Tensor
    relation_graph: Tensor
    selection_logits: Tensor
    selection_threshold: Tensor
    selection_labels: Tensor
    path_attention: Tensor
    pat_positive: Tensor
    pat_negative: Tensor
    pat_mask: Tensor
    support_logit: Tensor
    contradiction_logits: Tensor
    count_logits: Tensor
    confidence_logit: Tensor
