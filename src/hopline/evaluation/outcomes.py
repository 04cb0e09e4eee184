"""How a model's outputs become answers, and how the answers of one batch are held against the truth; no loop over rows.

An answer is decided as a user of the model gets it:

* status: the likeliest of the three;
* a set of entities, or a boolean: the nodes whose logit is above 0, and none where the status is not ``supported``;
* a link query: all candidates, ranked;
* a count: the likeliest class; a relation: the likeliest one;
* evidence: the candidate paths whose logit is above the query's threshold.

A row for which the model gave something that is not a number has no status and no answer, and is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from hopline.evaluation.ranking import filtered_ranks, segment_ranks
from hopline.graph import KINDS, STATUS_INDEX, GraphBatch, QueryKind

__all__ = ["Judged", "ModelOutput", "judge"]

_SUPPORTED: Final = STATUS_INDEX["supported"]
_LINK: Final = KINDS.index(QueryKind.LINK)


class ModelOutput(Protocol):
    """What is read of a forward pass over ``G`` rows with ``N`` nodes and ``P`` paths.

    ``ranking_logits`` scores all V entities of the vocabulary for the ``L`` rows in ``ranking_graph``; L = 0 where entities
    have no identity. ``relation_logits`` scores the R relations for the ``Q`` relation queries in ``relation_graph``.
    """

    @property
    def entity_logits(self) -> Tensor: ...  # [N]
    @property
    def ranking_logits(self) -> Tensor: ...  # [L, V]
    @property
    def ranking_graph(self) -> Tensor: ...  # [L]
    @property
    def contradiction_logits(self) -> Tensor: ...  # [G, 3]
    @property
    def count_logits(self) -> Tensor: ...  # [G, C + 1]
    @property
    def confidence_logit(self) -> Tensor: ...  # [G]
    @property
    def selection_logits(self) -> Tensor: ...  # [P]
    @property
    def selection_threshold(self) -> Tensor: ...  # [G]
    @property
    def relation_logits(self) -> Tensor: ...  # [Q, R]
    @property
    def relation_graph(self) -> Tensor: ...  # [Q]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Answers and truth of the ``G`` rows of a batch, as tensors on the model's device; int64 unless said otherwise.

    Attributes:
        finite: bool ``[G]``; the model gave only numbers.
        predicted_status: ``[G]``, -1 where not finite.
        set_hits, set_predicted, set_gold: ``[G]`` sizes of the common, predicted and true answer sets.
        predicted_count, predicted_relation: ``[G]``; a relation is -1 where the row is no relation query.
        count_classes: number of count classes; larger counts share the last.
        boolean, predicted_boolean: ``[G]`` 0 or 1, whether the second anchor answers; -1 where there is none.
        path_hits, path_predicted, path_gold, path_candidates: ``[G]`` numbers of paths.
        confidence_logit: float ``[G]``.
        rank_row, rank: ``[K]`` and float64 ``[K]``; the rank of each answer of each link query.
    """

    finite: Tensor
    predicted_status: Tensor
    set_hits: Tensor
    set_predicted: Tensor
    set_gold: Tensor
    predicted_count: Tensor
    predicted_relation: Tensor
    count_classes: int
    boolean: Tensor
    predicted_boolean: Tensor
    path_hits: Tensor
    path_predicted: Tensor
    path_gold: Tensor
    path_candidates: Tensor
    confidence_logit: Tensor
    rank_row: Tensor
    rank: Tensor


def judge(batch: GraphBatch, output: ModelOutput, *, num_entities: int = 0) -> Judged:
    """Decide the answers of a batch and compare them with its truth.

    Args:
        batch: on the device of ``output``.
        num_entities: size of the vocabulary where entities have identities. Link queries are then ranked against all of
            them, also by a model that scores only the nodes of a query's graph.
    """
    rows = batch.num_graphs
    finite = _finite_rows(batch, output)
    status = torch.where(finite, output.contradiction_logits.argmax(1), -1)
    supported = status == _SUPPORTED

    chosen = (output.entity_logits > 0) & supported[batch.node_graph]
    gold = torch.zeros(batch.num_nodes, dtype=torch.bool, device=chosen.device)
    gold[batch.answer_node] = True
    # Answers outside the graph are lost to a set query, and count against it.
    listed = _count(batch.answer_entity_graph, torch.ones_like(batch.answer_entity), rows)
    set_gold = torch.maximum(_count(batch.node_graph, gold, rows), listed)

    boolean, predicted_boolean = (torch.full((rows,), -1, dtype=torch.int64, device=chosen.device) for _ in range(2))
    second = batch.anchor_slot == 1
    target_row, target_node = batch.anchor_graph[second], batch.anchor_node[second]
    boolean[target_row] = gold[target_node].long()
    predicted_boolean[target_row] = chosen[target_node].long()

    relation = torch.full((rows,), -1, dtype=torch.int64, device=chosen.device)
    relation[output.relation_graph] = output.relation_logits.argmax(1)

    selected = (output.selection_logits > output.selection_threshold[batch.path_graph]) & finite[batch.path_graph]
    supporting = batch.path_label > 0
    rank_row, rank = _link_ranks(batch, output, num_entities)
    return Judged(
        finite=finite,
        predicted_status=status,
        set_hits=_count(batch.node_graph, chosen & gold, rows),
        set_predicted=_count(batch.node_graph, chosen, rows),
        set_gold=set_gold,
        predicted_count=output.count_logits.argmax(1),
        predicted_relation=relation,
        count_classes=output.count_logits.shape[1],
        boolean=boolean,
        predicted_boolean=predicted_boolean,
        path_hits=_count(batch.path_graph, selected & supporting, rows),
        path_predicted=_count(batch.path_graph, selected, rows),
        path_gold=_count(batch.path_graph, supporting, rows),
        path_candidates=_count(batch.path_graph, torch.ones_like(batch.path_label), rows),
        confidence_logit=output.confidence_logit,
        rank_row=rank_row,
        rank=rank,
    )


def _count(owner: Tensor, flags: Tensor, rows: int) -> Tensor:
    """How many flags of each row are set; int64 sums, so the order of atomics changes nothing."""
    return torch.zeros(rows, dtype=torch.int64, device=owner.device).index_add_(0, owner, flags.long())


def _finite_rows(batch: GraphBatch, output: ModelOutput) -> Tensor:
    """Rows without a NaN in any output that decides an answer; infinities are ordered, and allowed."""
    bad = output.contradiction_logits.isnan().any(1) | output.count_logits.isnan().any(1)
    bad = bad | output.confidence_logit.isnan() | output.selection_threshold.isnan()
    number = _count(batch.node_graph, output.entity_logits.isnan(), batch.num_graphs)
    number += _count(batch.path_graph, output.selection_logits.isnan(), batch.num_graphs)
    number += _count(output.relation_graph, output.relation_logits.isnan().any(1), batch.num_graphs)
    number += _count(output.ranking_graph, output.ranking_logits.isnan().any(1), batch.num_graphs)
    return ~bad & (number == 0)


def _link_ranks(batch: GraphBatch, output: ModelOutput, num_entities: int) -> tuple[Tensor, Tensor]:
    """Row and rank of each answer of each link query."""
    link = batch.kind == _LINK
    scores, scored = output.ranking_logits, output.ranking_graph
    if not len(scored) and num_entities:
        scores, scored = _scatter_nodes(batch, output.entity_logits, link, num_entities)
    if not len(scored):
        node = batch.answer_node[link[batch.answer_graph]]
        return batch.node_graph[node], segment_ranks(output.entity_logits, batch.node_graph, node)
    place = torch.full((batch.num_graphs,), -1, dtype=torch.int64, device=scores.device)
    place[scored] = torch.arange(len(scored), device=scores.device)
    place = torch.where(link, place, -1)
    answer, known = place[batch.answer_entity_graph] >= 0, place[batch.known_entity_graph] >= 0
    row = batch.answer_entity_graph[answer]
    ranks = filtered_ranks(
        scores,
        place[row],
        batch.answer_entity[answer],
        place[batch.known_entity_graph[known]],
        batch.known_entity[known],
    )
    return row, ranks


def _scatter_nodes(batch: GraphBatch, logits: Tensor, link: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    """Scores of all entities from the scores of nodes; entities outside a graph share the lowest place."""
    scored = link.nonzero().squeeze(1)
    place = torch.full((batch.num_graphs,), -1, dtype=torch.int64, device=logits.device)
    place[scored] = torch.arange(len(scored), device=logits.device)
    scores = torch.full((len(scored), num_entities), -torch.inf, dtype=logits.dtype, device=logits.device)
    inside = (place[batch.node_graph] >= 0) & (batch.node_entity >= 0)
    scores[place[batch.node_graph[inside]], batch.node_entity[inside]] = logits[inside]
    return scores, scored
