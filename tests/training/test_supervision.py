"""Labels, negatives and the score of the own answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hopline.config import LossConfig, ModelConfig
from hopline.graph import AnswerMode, ExampleGraph, GraphBatch, Query, QueryKind, ReasoningExample, Status
from hopline.model import Forward, GraphModel
from hopline.training import negatives
from hopline.training.losses import LossInputs, MultiTaskLoss
from hopline.training.negatives import draw_edges, draw_negatives
from hopline.training.supervision import answer_score, build_loss_inputs
from tests.model.factory import ENTITIES, RELATIONS, make_batch, make_examples


def _model(*, identity: bool = False, max_count: int = 3) -> GraphModel:
    torch.manual_seed(0)
    config = ModelConfig(
        hidden_dim=16, layers=2, max_hops=4, max_count=max_count, transductive=identity, transductive_rank=8
    )
    return GraphModel(config, num_relations=RELATIONS, num_entities=ENTITIES if identity else 0).eval()


def _inputs(
    batch: GraphBatch, *, identity: bool = False, edge_queries: int = 0, max_count: int = 3
) -> tuple[LossInputs, Forward]:
    model = _model(identity=identity, max_count=max_count)
    with torch.no_grad():
        forward = model.forward_batch(batch)
        return build_loss_inputs(model, batch, forward, seed=0, step=0, edge_queries=edge_queries), forward


def _linked(batch: GraphBatch) -> set[tuple[int, int]]:
    pairs = {(a, b) for a, b in batch.edge_index.t().tolist()}
    return pairs | {(b, a) for a, b in pairs}


@pytest.mark.parametrize("degree", [1.0, 4.0])
def test_negatives_are_unlinked_in_both_directions(degree: float) -> None:
    """D9, D10, G32: no edge either way, no self loop, within the graph; the weight says where none was found."""
    batch = make_batch(make_examples(40, degree=degree))
    drawn = draw_negatives(batch, seed=0, step=0, each=2)
    linked = _linked(batch)
    used = drawn.weight.bool()
    assert used.float().mean() > 0.5
    for (a, b), ok in zip(drawn.pairs.tolist(), used.tolist(), strict=True):
        assert ((a, b) not in linked and a != b) is ok
        assert batch.node_graph[a] == batch.node_graph[b]
    assert torch.equal(drawn.pairs[:, 0], batch.edge_index[0].repeat_interleave(2))


def test_a_large_graph_draws_as_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """D10: where a table of all pairs of nodes is too large, a search finds the same."""
    batch = make_batch(make_examples(12, degree=3.0))
    drawn = draw_negatives(batch, seed=0, step=0, each=2)
    monkeypatch.setattr(negatives, "_LARGEST_TABLE", 1)
    searched = draw_negatives(batch, seed=0, step=0, each=2)
    assert torch.equal(drawn.pairs, searched.pairs)
    assert torch.equal(drawn.weight, searched.weight)


def test_where_no_other_node_is_there_are_positives_alone() -> None:
    """G32: a single node with an edge to itself, and two that are joined: what is linked is scored, and nothing else."""
    query = Query((0,), ((0,),), AnswerMode.ENTITIES)
    for nodes, edges in ((1, [[0], [0]]), (2, [[0], [1]])):
        graph = ExampleGraph(np.full(nodes, -1), np.array(edges), np.array([0]))
        batch = make_batch([ReasoningExample(7, graph, query, QueryKind.LINK, Status.MISSING)])
        inputs, _ = _inputs(batch)
        assert not inputs.negative_weight.any()
        assert inputs.link_labels.tolist() == [1, 0]
        components = MultiTaskLoss(LossConfig())(inputs).components
        expected = torch.nn.functional.softplus(-inputs.link_logits[0])
        torch.testing.assert_close(components["link"], expected)
        assert components["node"] == 0


def test_negatives_are_a_counter() -> None:
    """D8: a pure function of seed, step and example; other steps, seeds and examples draw others."""
    examples = make_examples(12)
    batch = make_batch(examples)
    drawn = draw_negatives(batch, seed=1, step=5).pairs
    assert torch.equal(drawn, draw_negatives(batch, seed=1, step=5).pairs)
    # A compiled step counts on the device.
    assert torch.equal(drawn, draw_negatives(batch, seed=1, step=torch.tensor(5)).pairs)
    for other in (draw_negatives(batch, seed=1, step=6), draw_negatives(batch, seed=2, step=5)):
        assert (other.pairs != drawn).any(1).float().mean() > 0.5
    moved = draw_negatives(make_batch(examples[6:] + examples[:6]), seed=1, step=5).pairs
    first = make_batch(examples[:6])
    shift = make_batch(examples[6:]).num_nodes
    assert torch.equal(drawn[: first.num_edges], moved[-first.num_edges :] - shift)


def test_equal_graphs_draw_different_negatives() -> None:
    """D8: two examples with the same graph have streams of their own, and so have a missing example and its twin."""
    example = next(e for e in make_examples(6, nodes=(30, 30)) if e.pair is None)
    drawn = draw_negatives(make_batch([example, replace(example, example_id=99)]), seed=0, step=0).pairs
    half = len(drawn) // 2
    assert (drawn[:half, 1] != drawn[half:, 1] - 30).float().mean() > 0.5


def test_negatives_cover_the_graph_evenly() -> None:
    """Over many steps every other node of a star's rim comes up about as often."""
    graph = ExampleGraph(np.full(12, -1), np.array([[0], [1]]), np.array([0]))
    example = ReasoningExample(7, graph, Query((0,), ((0,),), AnswerMode.ENTITIES), QueryKind.LINK, Status.MISSING)
    batch = make_batch([example])
    seen = torch.cat([draw_negatives(batch, seed=0, step=step, each=4).pairs[:, 1] for step in range(500)])
    counts = torch.bincount(seen, minlength=12)[2:].float()
    assert counts.min() > 0.75 * counts.mean()
    assert counts.max() < 1.25 * counts.mean()


def test_edge_draws_stay_within_their_row() -> None:
    """Edges asked of the bilinear branch are the row's own; rows without edges are marked."""
    lonely = ExampleGraph(np.array([1]), np.zeros((2, 0), np.int64), np.zeros(0, np.int64))
    query = Query((0,), ((0,),), AnswerMode.ENTITIES)
    examples = [*make_examples(8), ReasoningExample(9, lonely, query, QueryKind.LINK, Status.MISSING)]
    batch = make_batch(examples)
    edge, back, has = draw_edges(batch, seed=0, step=0, each=16)
    row = torch.arange(batch.num_graphs).repeat_interleave(16)
    assert torch.equal(batch.edge_graph[edge[has]], row[has])
    assert not has[row == batch.num_graphs - 1].any()
    assert 0.3 < back[has].float().mean() < 0.7
    assert len(torch.unique(edge[row == 0])) > 3


def test_labels() -> None:
    """G29, G30, G31, D11: multi-hot answers, clipped counts, the relation asked for, status."""
    batch = make_batch(make_examples(60))
    inputs, forward = _inputs(batch, max_count=2)
    gold = torch.zeros(batch.num_nodes)
    gold[batch.answer_node] = 1
    assert torch.equal(inputs.answer_labels, gold)
    assert batch.answer_count.max() > 2
    assert torch.equal(inputs.count_labels, batch.answer_count.clamp(max=2))
    assert torch.equal(inputs.count_mask, (batch.kind == 2) | (batch.kind == 3))
    assert torch.equal(inputs.relation_labels, batch.answer_relation[batch.kind == 5])
    assert torch.equal(inputs.verification_labels, (batch.status == 0).float())
    steps = batch.path_label[batch.step_path] == 1
    expected = batch.edge_type_ids[batch.step_edge] + batch.step_reversed * RELATIONS
    assert torch.equal(forward.hop_relation_labels, expected[steps])


def test_answer_weight_follows_the_question() -> None:
    """Boolean queries are about their second anchor, relation queries about no node, sets about all; contradicted none."""
    batch = make_batch(make_examples(24))
    inputs, _ = _inputs(batch)
    kind = torch.where(batch.status == 2, -1, batch.kind)[batch.node_graph]
    assert inputs.answer_weight[(kind >= 0) & (kind != 4) & (kind != 5)].all()
    assert not inputs.answer_weight[(kind == 5) | (kind == -1)].any()
    looked_at = inputs.answer_weight.nonzero().view(-1)
    asked = (batch.kind == 4) & (batch.status != 2)
    expected = batch.anchor_node[(batch.anchor_slot == 1) & asked[batch.anchor_graph]]
    assert torch.equal(looked_at[kind[looked_at] == 4], expected)


def test_known_answers_are_not_pushed_down() -> None:
    """Other true answers of a link query do not count as wrong nodes; of other queries they do."""
    batch = make_batch(make_examples(24, identity=True))
    inputs, forward = _inputs(batch, identity=True)
    rows = {int(row): place for place, row in enumerate(forward.ranking_graph)}
    for graph, entity in zip(batch.known_entity_graph.tolist(), batch.known_entity.tolist(), strict=True):
        node = ((batch.node_graph == graph) & (batch.node_entity == entity)).nonzero().view(-1)
        if graph in rows:
            assert not inputs.ranking_targets[rows[graph], entity]
            assert not inputs.answer_weight[node].any()
        elif batch.kind[graph] == 1 and batch.status[graph] != 2:
            assert inputs.answer_weight[node].all()
    total = sum(int((batch.answer_entity_graph == row).sum()) for row in rows)
    assert int(inputs.ranking_targets.sum()) == total > 0


def test_edges_of_contradicted_rows_are_not_taken_for_true() -> None:
    """The bilinear branch learns no planted fact."""
    batch = make_batch(make_examples(24, identity=True))
    inputs, _ = _inputs(batch, identity=True, edge_queries=4)
    planted = batch.status[inputs.edge_graph] == 2
    assert planted.any()
    assert not inputs.edge_weight[planted].any()
    assert inputs.edge_weight[~planted].any()
    assert inputs.edge_scores.shape == (4 * batch.num_graphs, ENTITIES)


def _scored(
    example: ReasoningExample, *, status: int, entity: torch.Tensor, count: int = 0, relation: int = 0
) -> float:
    """The score of an answer that is decided by the given outputs."""
    batch = make_batch([replace(example, pair=None)])
    _, forward = _inputs(batch)
    forward = replace(
        forward,
        contradiction_logits=torch.eye(3)[status][None],
        entity_logits=entity,
        count_logits=torch.eye(4)[count][None],
        relation_logits=torch.eye(RELATIONS)[relation][None][: len(forward.relation_graph)],
    )
    return float(answer_score(batch, forward)[0])


def _chain_example(kind: QueryKind, mode: AnswerMode, **changes: object) -> ReasoningExample:
    graph = ExampleGraph(np.full(4, -1), np.array([[0, 0], [1, 2]]), np.array([0, 0]))
    anchors = (0, 1) if kind in (QueryKind.BOOLEAN, QueryKind.RELATION) else (0,)
    chains = () if kind is QueryKind.RELATION else ((0, 0),)
    example = ReasoningExample(0, graph, Query(anchors, chains, mode), kind, Status.SUPPORTED, answers=(1, 2))
    return replace(example, **changes)  # type: ignore[arg-type]


def test_set_f1() -> None:
    """G28, D12: F1 of the own set, 1 where both are empty, 0 where one is; an answer outside the graph is missed."""
    example = _chain_example(QueryKind.MULTI_HOP, AnswerMode.ENTITIES)
    missing = replace(example, answers=(), status=Status.MISSING)
    one, none = torch.tensor([-1.0, 1, -1, -1]), torch.full((4,), -1.0)
    assert _scored(example, status=0, entity=one) == pytest.approx(2 / 3)
    assert _scored(example, status=0, entity=torch.tensor([1.0, 1, 1, -1])) == pytest.approx(4 / 5)
    assert _scored(example, status=0, entity=none) == 0
    assert _scored(example, status=1, entity=one) == 0
    assert _scored(missing, status=0, entity=none) == 1
    assert _scored(missing, status=1, entity=one) == 1
    assert _scored(missing, status=0, entity=one) == 0
    outside = replace(example, answers=(), answer_entities=(5, 6))
    assert _scored(outside, status=0, entity=none) == _scored(outside, status=1, entity=none) == 0
    beside = replace(example, answers=(1,), answer_entities=(5, 6, 7))
    assert _scored(beside, status=0, entity=one) == pytest.approx(2 / 4)


def test_other_answers_are_right_or_wrong() -> None:
    """The target of the confidence head for counts, booleans, relations and link queries."""
    none = torch.full((4,), -1.0)
    count = _chain_example(QueryKind.COUNT, AnswerMode.COUNT)
    assert _scored(count, status=0, entity=none, count=2) == 1
    assert _scored(count, status=0, entity=none, count=3) == 0
    boolean = _chain_example(QueryKind.BOOLEAN, AnswerMode.BOOLEAN, answers=(1,))
    assert _scored(boolean, status=0, entity=torch.tensor([-1.0, 1, 1, 1])) == 1
    assert _scored(boolean, status=2, entity=torch.tensor([-1.0, 1, 1, 1])) == 0
    assert _scored(replace(boolean, answers=()), status=2, entity=none) == 1
    relation = _chain_example(QueryKind.RELATION, AnswerMode.RELATION, answers=(), answer_relation=3)
    assert _scored(relation, status=0, entity=none, relation=3) == 1
    assert _scored(relation, status=0, entity=none, relation=2) == 0
    link = _chain_example(QueryKind.LINK, AnswerMode.ENTITIES)
    link = replace(link, query=Query((0,), ((0,),), AnswerMode.ENTITIES))
    assert _scored(link, status=0, entity=torch.tensor([0.0, 2.0, -5.0, 1.0])) == 1
    assert _scored(link, status=0, entity=torch.tensor([3.0, 2.0, -5.0, 1.0])) == 0


@pytest.mark.parametrize("identity", [False, True])
def test_answer_score_agrees_with_the_evaluation(identity: bool) -> None:
    """Confidence is trained on what it is measured by."""
    from hopline.evaluation.outcomes import judge
    from hopline.evaluation.table import build_table, table_piece

    batch = make_batch(make_examples(60, identity=identity))
    model = _model(identity=identity)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        forward = model.forward_batch(batch)
        score = answer_score(batch, forward)
    judged = judge(batch, forward, num_entities=ENTITIES if identity else 0)
    table = build_table([table_piece(batch, judged, np.arange(int((~batch.is_twin).sum())))])
    np.testing.assert_allclose(score.numpy(), table.correct, atol=1e-6)
    assert 0.05 < float(score.mean()) < 0.95


def test_the_score_is_detached() -> None:
    """G28: the confidence target sends no gradient into the heads it judges."""
    batch = make_batch(make_examples(12))
    model = _model().train()
    inputs = build_loss_inputs(model, batch, model.forward_batch(batch), seed=0, step=0)
    assert not inputs.correctness.requires_grad
    inputs.confidence.sum().backward()
    assert {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None} == {"confidence"}


def test_a_step_is_bitwise_repeatable_under_deterministic_algorithms() -> None:
    """G53: no kernel of forward, loss or backward refuses deterministic mode, and two passes give the same bits."""
    batch = make_batch(make_examples(24, identity=True))
    model = _model(identity=True).train()
    grads = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            model.zero_grad(set_to_none=True)
            inputs = build_loss_inputs(model, batch, model.forward_batch(batch), seed=0, step=0, edge_queries=4)
            MultiTaskLoss(LossConfig(n3=0.1))(inputs).total.backward()
            grads.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    finally:
        torch.use_deterministic_algorithms(False)
    assert grads[0].keys() == grads[1].keys() == {name for name, _ in model.named_parameters()}
    for name, grad in grads[0].items():
        assert torch.equal(grad, grads[1][name]), name
