"""From a batch and the model's outputs to what the loss compares: labels, negatives, and the score of the own answer."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from hopline.graph import ANSWER_MODES, KINDS, STATUS_INDEX, AnswerMode, GraphBatch, QueryKind
from hopline.model import Forward, GraphModel
from hopline.model.messages import pair_cosines
from hopline.model.segments import segment_count, segment_sum
from hopline.training.losses import LossInputs
from hopline.training.negatives import draw_edges, draw_negatives

__all__ = ["answer_score", "build_loss_inputs"]

_SUPPORTED: Final = STATUS_INDEX["supported"]
_CONTRADICTED: Final = STATUS_INDEX["contradicted"]
_LINK: Final = KINDS.index(QueryKind.LINK)
_MODE: Final = {mode: index for index, mode in enumerate(ANSWER_MODES)}


def build_loss_inputs(
    model: GraphModel,
    batch: GraphBatch,
    forward: Forward,
    *,
    seed: int,
    step: int | Tensor,
    negatives_per_edge: int = 1,
    edge_queries: int = 0,
    row_weight: Tensor | None = None,
) -> LossInputs:
    """Everything that :class:`~hopline.training.losses.MultiTaskLoss` needs, without a loop over rows or a read-back.

    Args:
        model: scores pairs of nodes, and edges by its bilinear branch.
        batch: the batch that ``forward`` came from, on its device.
        seed, step: with each row's example id the counter of its random draws, which so depend on nothing else in the batch;
            the step may be a 0-d int64 tensor.
        negatives_per_edge: unlinked pairs drawn for each edge.
        edge_queries: edges of each row that the bilinear branch is asked about; 0 = none.
        row_weight: float ``[G]`` what each row counts for; None = each counts for 1.
    """
    G = batch.num_graphs
    negatives = draw_negatives(batch, seed=seed, step=step, each=negatives_per_edge)
    positive = batch.edge_index.t()
    pairs = torch.cat([positive, negatives.pairs])
    cosines = pair_cosines(forward.node_states, pairs)
    linked = torch.zeros(len(pairs), device=pairs.device)
    linked[: len(positive)] = 1.0

    gold = _answer_nodes(batch)
    targets, _ = _ranking_labels(batch, forward)
    edge_scores, edge_targets, edge_graph, edge_weight, edge_penalty = _ask_edges(
        model, batch, seed=seed, step=step, each=edge_queries
    )
    counted = (batch.answer_mode == _MODE[AnswerMode.COUNT]) | (batch.answer_mode == _MODE[AnswerMode.AGGREGATE])
    return LossInputs(
        rows=G,
        pair_cosines=cosines,
        pair_graph=batch.edge_graph,
        negative_weight=negatives.weight,
        link_logits=model.link_logits(forward.node_states, pairs, cosines),
        link_labels=linked,
        edge_scores=edge_scores,
        edge_targets=edge_targets,
        edge_graph=edge_graph,
        edge_weight=edge_weight,
        next_hop_logits=forward.next_hop_logits,
        next_hop_labels=forward.next_hop_labels,
        hop_relation_logits=forward.hop_relation_logits,
        hop_relation_labels=forward.hop_relation_labels,
        hop_graph=forward.hop_graph,
        relation_logits=forward.relation_logits,
        relation_labels=batch.answer_relation.index_select(0, forward.relation_graph),
        relation_graph=forward.relation_graph,
        path_scores=forward.selection_logits,
        path_labels=forward.selection_labels,
        path_graph=batch.path_graph,
        selection_threshold=forward.selection_threshold,
        pat_positive=forward.pat_positive,
        pat_negative=forward.pat_negative,
        pat_mask=forward.pat_mask,
        answer_logits=forward.entity_logits,
        answer_labels=gold,
        answer_weight=_answer_weight(batch),
        answer_graph=batch.node_graph,
        answer_listwise=batch.kind == _LINK,
        bilinear_logits=forward.bilinear_logits,
        ranking_targets=targets,
        ranking_graph=forward.ranking_graph,
        verification_logits=forward.support_logit,
        verification_labels=(batch.status == _SUPPORTED).to(torch.float32),
        contradiction_logits=forward.contradiction_logits,
        contradiction_labels=batch.status,
        count_logits=forward.count_logits,
        count_labels=batch.answer_count.clamp(max=forward.count_logits.shape[1] - 1),
        count_mask=counted,
        confidence=forward.confidence_logit,
        correctness=answer_score(batch, forward),
        twin_mask=batch.is_twin,
        penalty=_link_penalty(model, batch, forward) + edge_penalty,
        row_weight=row_weight,
    )


@torch.no_grad()
def answer_score(batch: GraphBatch, forward: Forward) -> Tensor:
    """``[G]`` in [0, 1], detached: how good the model's own answer is, by the rules that evaluation goes by.

    The answer of a row whose likeliest status is not ``supported`` is the empty set. Multi-hop: F1 of the nodes with logits
    above 0 and the answers, 1 if both are empty; answers outside the graph count as missed. Link with an answer: whether no
    other candidate scores as high as the best answer. Count, aggregate, relation, boolean: whether the answer is right. A
    link or relation query without an answer: whether the status is not ``supported``.
    """
    G = batch.num_graphs
    supported = forward.contradiction_logits.argmax(1) == _SUPPORTED
    gold = _answer_nodes(batch)
    chosen = ((forward.entity_logits > 0) & supported.index_select(0, batch.node_graph)).to(torch.float32)
    hits, predicted, true = segment_sum(torch.stack([gold * chosen, chosen, gold], 1), batch.node_graph, G).unbind(1)
    true = torch.maximum(true, segment_count(batch.answer_entity_graph, G))
    f1 = torch.where(predicted + true == 0, 1.0, 2 * hits / (predicted + true).clamp(min=1))

    labels = batch.answer_count.clamp(max=forward.count_logits.shape[1] - 1)
    count = (forward.count_logits.argmax(1) == labels).to(torch.float32)
    abstained = (~supported).to(torch.float32)

    second = (batch.anchor_slot == 1).to(torch.float32)
    right = (gold == chosen).to(torch.float32).index_select(0, batch.anchor_node)
    boolean = segment_sum(second * right, batch.anchor_graph, G)

    asked = batch.answer_relation.index_select(0, forward.relation_graph)
    right_relation = (forward.relation_logits.argmax(1) == asked).to(torch.float32) if len(asked) else asked.float()
    relation = torch.zeros(G, device=count.device).index_copy(0, forward.relation_graph, right_relation)
    relation = torch.where(batch.answer_relation >= 0, relation, abstained)

    score = torch.where(batch.kind == _LINK, _link_score(batch, forward, gold, abstained), f1)
    for mode, value in (
        (AnswerMode.COUNT, count),
        (AnswerMode.AGGREGATE, count),
        (AnswerMode.BOOLEAN, boolean),
        (AnswerMode.RELATION, relation),
    ):
        score = torch.where(batch.answer_mode == _MODE[mode], value, score)
    return score


def _link_score(batch: GraphBatch, forward: Forward, gold: Tensor, abstained: Tensor) -> Tensor:
    """``[G]`` whether the best answer of a link query leads all candidates that are no true answer."""
    G = batch.num_graphs
    lowest = torch.finfo(torch.float32).min
    best, rival = (torch.full((G,), lowest, device=gold.device) for _ in range(2))
    if forward.ranking_logits.numel():
        targets, excluded = _ranking_labels(batch, forward)
        scores = forward.ranking_logits
        rows = forward.ranking_graph
        best = best.index_copy(0, rows, scores.masked_fill(~targets, lowest).amax(1))
        rival = rival.index_copy(0, rows, scores.masked_fill(targets | excluded, lowest).amax(1))
        answered = segment_count(batch.answer_entity_graph, G) > 0
    else:
        scores = forward.entity_logits
        best.scatter_reduce_(0, batch.node_graph, scores.masked_fill(gold == 0, lowest), "amax")
        rival.scatter_reduce_(0, batch.node_graph, scores.masked_fill((gold > 0) | _known_nodes(batch), lowest), "amax")
        answered = segment_count(batch.answer_graph, G) > 0
    return torch.where(answered, (best > rival).to(torch.float32), abstained)


def _answer_nodes(batch: GraphBatch) -> Tensor:
    """float ``[N]``: 1 where the node is an answer."""
    return torch.zeros(batch.num_nodes, device=batch.node_graph.device).index_fill(0, batch.answer_node, 1.0)


def _answer_weight(batch: GraphBatch) -> Tensor:
    """Which nodes the answer loss looks at, float ``[N]``.

    Set and count queries: all nodes. Boolean: the second anchor, the only node the question is about. Relation: none. Link:
    all but other true answers. Contradicted rows: none; it is their status, not their nodes, that leaves them unanswered.
    """
    mode = batch.answer_mode
    answerable = batch.status != _CONTRADICTED
    boolean, relation, link = mode == _MODE[AnswerMode.BOOLEAN], mode == _MODE[AnswerMode.RELATION], batch.kind == _LINK
    # By row: whether every node counts, the second anchor, all but known answers.
    rows = torch.stack([answerable & ~(boolean | relation), answerable & boolean, link], 1)
    everywhere, second, filtered = rows.index_select(0, batch.node_graph).unbind(1)
    is_second = torch.zeros_like(second).index_put((batch.anchor_node,), batch.anchor_slot == 1)
    return ((everywhere | (second & is_second)) & ~(_known_nodes(batch) & filtered)).to(torch.float32)


def _known_nodes(batch: GraphBatch) -> Tensor:
    """bool ``[N]``: the node is a true answer that filtered ranking leaves out."""
    wide = 1 << 32
    known = torch.sort(batch.known_entity_graph * wide + batch.known_entity).values
    return _contains(known, batch.node_graph * wide + batch.node_entity)


def _contains(ordered: Tensor, keys: Tensor) -> Tensor:
    """Whether each key is among sorted ones."""
    if not len(ordered):
        return torch.zeros_like(keys, dtype=torch.bool)
    place = torch.searchsorted(ordered, keys).clamp(max=len(ordered) - 1)
    return ordered.index_select(0, place.view(-1)).view_as(keys) == keys


def _ranking_labels(batch: GraphBatch, forward: Forward) -> tuple[Tensor, Tensor]:
    """bool ``[L, V]`` each: the answers, and the other true answers."""
    L, V = forward.ranking_logits.shape
    place = torch.full((batch.num_graphs,), L, dtype=torch.int64, device=batch.kind.device)
    place = place.index_copy(0, forward.ranking_graph, torch.arange(L, device=place.device))

    def marked(graph: Tensor, entity: Tensor) -> Tensor:
        table = torch.zeros((L + 1) * V, dtype=torch.bool, device=place.device)
        if V:
            table.index_fill_(0, place.index_select(0, graph) * V + entity, True)
        return table.view(L + 1, V)[:-1]

    targets = marked(batch.answer_entity_graph, batch.answer_entity)
    return targets, marked(batch.known_entity_graph, batch.known_entity) & ~targets


def _ask_edges(
    model: GraphModel, batch: GraphBatch, *, seed: int, step: int | Tensor, each: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Some edges of every row as link queries to the bilinear branch: scores, targets, rows, weights, and N3 for each row.

    Facts of a contradicted row are not taken for true.
    """
    branch, G = model.transductive, batch.num_graphs
    if branch is None or not each or not batch.num_edges:
        none = batch.kind.new_zeros(0)
        zero = torch.zeros(0, device=none.device)
        return zero.view(0, 1), none, none, zero, torch.zeros(G, device=none.device)
    edge, back, has = draw_edges(batch, seed=seed, step=step, each=each)
    ends = batch.node_entity.index_select(0, batch.edge_index.index_select(1, edge).view(-1)).view(2, -1)
    head, tail = torch.where(back, ends[1], ends[0]), torch.where(back, ends[0], ends[1])
    relation = batch.edge_type_ids.index_select(0, edge) + back * model.num_relations
    graph = torch.arange(G, device=edge.device).repeat_interleave(each)
    usable = has & (head >= 0) & (tail >= 0) & (batch.status.index_select(0, graph) != _CONTRADICTED)
    weight = usable.to(torch.float32)
    penalty = segment_sum(branch.penalty(head, relation, tail) * weight, graph, G) / each
    return branch.scores(head, relation), tail.clamp(min=0), graph, weight, penalty


def _link_penalty(model: GraphModel, batch: GraphBatch, forward: Forward) -> Tensor:
    """``[G]`` N3 of the triples that link queries ask for."""
    branch, G = model.transductive, batch.num_graphs
    if branch is None:
        return torch.zeros(G, device=batch.kind.device)
    # Everything but first anchors and first hops goes to a place of its own at the end.
    row = torch.where(batch.anchor_slot == 0, batch.anchor_graph, G)
    head = torch.full((G + 1,), -1, dtype=torch.int64, device=row.device)
    head = head.index_copy(0, row, batch.node_entity.index_select(0, batch.anchor_node))
    row = torch.where((batch.token_position == 0) & (batch.token_branch == 0), batch.token_graph, G)
    relation = torch.zeros(G + 1, dtype=torch.int64, device=row.device).index_copy(0, row, batch.token_relation)
    graph = batch.answer_entity_graph
    penalty = branch.penalty(head.index_select(0, graph), relation.index_select(0, graph), batch.answer_entity)
    link = (batch.kind == _LINK).index_select(0, graph)
    return segment_sum(penalty * link, graph, G) / segment_count(graph, G).clamp(min=1)
