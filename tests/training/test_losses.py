"""MultiTaskLoss: components, the one divisor, and single formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hopline.config import LossConfig, LossWeights, ModelConfig
from hopline.graph import ReasoningExample
from hopline.model import GraphModel
from hopline.training.losses import COMPONENTS, PAIR_MARGIN, LossInputs, LossOutput, MultiTaskLoss
from hopline.training.supervision import build_loss_inputs
from tests.model.factory import ENTITIES, RELATIONS, make_batch, make_examples


def _inputs(rows: int = 24, *, identity: bool = False) -> LossInputs:
    torch.manual_seed(0)
    config = ModelConfig(hidden_dim=16, layers=2, max_hops=4, transductive=identity, transductive_rank=8)
    model = GraphModel(config, num_relations=RELATIONS, num_entities=ENTITIES if identity else 0)
    batch = make_batch(make_examples(rows, identity=identity))
    with torch.no_grad():
        forward = model.forward_batch(batch)
        return build_loss_inputs(model, batch, forward, seed=0, step=0, edge_queries=4 if identity else 0)


def _component(inputs: LossInputs, name: str, config: LossConfig | None = None) -> float:
    return float(MultiTaskLoss(config or LossConfig())(inputs).components[name])


@pytest.mark.parametrize("identity", [False, True])
def test_components_are_complete_ordered_and_weighted(identity: bool) -> None:
    """E: every component is there in the fixed order, and the total is their weighted sum plus N3."""
    config = LossConfig(n3=0.5)
    inputs = _inputs(identity=identity)
    out = MultiTaskLoss(config)(inputs)
    assert tuple(out.components) == COMPONENTS
    assert len(COMPONENTS) == 12
    assert out.rows == inputs.rows
    expected = sum(getattr(config.weights, name) * value for name, value in out.components.items())
    torch.testing.assert_close(out.total, expected + 0.5 * inputs.penalty.sum() / inputs.rows)
    assert all(value > 0 for value in out.components.values())
    assert bool(inputs.penalty.any()) is identity
    replace(out, total=out.total * 2)  # what a caller of the reference does


def test_weight_zero_switches_off() -> None:
    """A component with weight 0 is computed, logged and left out of the total."""
    weights = LossWeights(**dict.fromkeys(COMPONENTS, 0.0))
    out = MultiTaskLoss(LossConfig(weights=weights))(_inputs())
    assert float(out.total) == 0
    assert out.components["answer"] > 0


def test_parts_add_up_with_one_divisor() -> None:
    """D5, D15, G24: parts of a batch of any sizes, each divided by the rows of the whole, add up to the whole.

    A missing example and its twin stay together.
    """
    torch.manual_seed(0)
    model = GraphModel(ModelConfig(hidden_dim=16, layers=2, max_hops=4), num_relations=RELATIONS).eval()
    loss = MultiTaskLoss(LossConfig())
    examples = make_examples(20)

    def share(part: slice, divisor: float | None) -> Any:
        batch = make_batch(examples[part])
        inputs = build_loss_inputs(model, batch, model.forward_batch(batch), seed=0, step=3)
        return loss(inputs, divisor=divisor)

    whole = share(slice(None), None)
    parts = [share(part, whole.rows) for part in (slice(0, 1), slice(1, 8), slice(8, 20))]
    assert whole.rows == sum(part.rows for part in parts) > len(examples)
    torch.testing.assert_close(whole.total, sum(part.total for part in parts))
    for name in COMPONENTS:
        torch.testing.assert_close(whole.components[name], sum(part.components[name] for part in parts))


def test_gradients_of_parts_add_up() -> None:
    """D5: so do the gradients."""
    torch.manual_seed(0)
    model = GraphModel(ModelConfig(hidden_dim=16, layers=2, max_hops=4), num_relations=RELATIONS)
    loss, examples = MultiTaskLoss(LossConfig()), make_examples(9)
    rows = make_batch(examples).num_graphs
    grads = []
    for parts in ([slice(0, 9)], [slice(0, 2), slice(2, 9)]):
        model.zero_grad(set_to_none=True)
        for part in parts:
            batch = make_batch(examples[part])
            inputs = build_loss_inputs(model, batch, model.forward_batch(batch), seed=0, step=0)
            loss(inputs, divisor=rows).total.backward()
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(grads[0]) == len(grads[1]) == len(list(model.parameters()))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_a_row_with_weight_zero_counts_nothing() -> None:
    """D5, D19: not in a component, not in the total, not in N3; the gradient of its logits is exactly zero."""
    loss = MultiTaskLoss(LossConfig(n3=0.5))
    examples = make_examples(24, identity=True)
    torch.manual_seed(0)
    config = ModelConfig(hidden_dim=16, layers=2, max_hops=4, transductive=True, transductive_rank=8)
    model = GraphModel(config, num_relations=RELATIONS, num_entities=ENTITIES)

    def score(part: list[ReasoningExample], weight: torch.Tensor | None) -> tuple[LossOutput, LossInputs]:
        batch = make_batch(part)
        forward = model.forward_batch(batch)
        forward.entity_logits.retain_grad()
        inputs = build_loss_inputs(model, batch, forward, seed=0, step=0, edge_queries=4, row_weight=weight)
        return loss(inputs, divisor=50.0), inputs

    some, _ = score(examples[:12], None)
    rows = make_batch(examples[:12]).num_graphs
    weight = (torch.arange(make_batch(examples).num_graphs) < rows).float()
    weighted, inputs = score(examples, weight)
    torch.testing.assert_close(weighted.total, some.total)
    for name in COMPONENTS:
        torch.testing.assert_close(weighted.components[name], some.components[name])
    weighted.total.backward()
    grad, left_out = inputs.answer_logits.grad, inputs.answer_graph >= rows
    assert grad is not None
    assert not grad[left_out].any()
    assert grad[~left_out].any()
    doubled, _ = score(examples[:12], torch.full((rows,), 2.0))
    torch.testing.assert_close(doubled.total, 2 * some.total)


def test_pair_margin_is_a_component_of_its_own() -> None:
    """G27, D6: the hinge of a twin and its missing example, weighted by its own weight, outside verification."""
    twin = torch.tensor([False, False, True, False])
    support = torch.tensor([0.0, 0.5, 0.75, 9.0])
    inputs = _cut(_inputs(24), twin_mask=twin, verification_logits=support, verification_labels=torch.ones(4))
    assert _component(inputs, "pair_margin") == pytest.approx((PAIR_MARGIN - 0.25) / 4)
    assert _component(inputs, "pair_margin", LossConfig(pair_margin=3.0)) == pytest.approx(2.75 / 4)
    expected = F.binary_cross_entropy_with_logits(support, torch.ones(4))
    assert _component(inputs, "verification") == pytest.approx(float(expected))


def test_path_attention_margin() -> None:
    """PAT: the hinge counts only rows with both kinds of paths."""
    inputs = _cut(
        _inputs(24),
        pat_positive=torch.tensor([2.0, 0.5, 0.0, -9.0]),
        pat_negative=torch.tensor([0.0, 0.0, 0.5, 9.0]),
        pat_mask=torch.tensor([True, True, True, False]),
    )
    assert _component(inputs, "pat") == pytest.approx((0.0 + 0.5 + 1.5) / 4)


def test_count_looks_at_count_rows_alone() -> None:
    """G30: rows that ask for no count add nothing."""
    inputs = _inputs(12)
    none = replace(inputs, count_mask=torch.zeros_like(inputs.count_mask))
    assert _component(inputs, "count") > 0
    assert _component(none, "count") == 0


def test_ranking_sets_each_target_against_all_that_are_none() -> None:
    """Several answers of a row do not compete with each other; every other entity does."""
    targets = torch.tensor([[True, False, True, False, False]])
    logits = torch.tensor([[1.0, 0.7, 2.0, 0.5, -1.0]], requires_grad=True)
    inputs = _inputs(6, identity=True)
    inputs = replace(
        inputs,
        bilinear_logits=logits,
        ranking_targets=targets,
        ranking_graph=torch.tensor([0]),
        answer_weight=torch.zeros_like(inputs.answer_weight),
    )
    rivals = torch.logsumexp(logits[0, [1, 3, 4]], 0)
    expected = (F.softplus(rivals - logits[0, 0]) + F.softplus(rivals - logits[0, 2])) / 2
    out = MultiTaskLoss(LossConfig())(inputs).components["answer"]
    torch.testing.assert_close(out, expected / inputs.rows)


def test_ranked_nodes_leave_other_true_answers_out() -> None:
    """Among the nodes of a link query's graph, one without weight neither competes nor learns."""
    logits = torch.tensor([1.0, 7.0, 0.5, -1.0], requires_grad=True)
    inputs = _inputs(6)
    nodes = {
        "answer_logits": logits,
        "answer_labels": torch.tensor([1.0, 0, 0, 0]),
        "answer_weight": torch.tensor([1.0, 0, 1, 1]),
        "answer_graph": torch.zeros(4, dtype=torch.int64),
        "answer_listwise": torch.arange(inputs.rows) == 0,
    }
    out = MultiTaskLoss(LossConfig())(replace(inputs, **nodes)).components["answer"]
    binary = F.binary_cross_entropy_with_logits(logits[[0, 2, 3]], torch.tensor([1.0, 0, 0]), reduction="sum") / 2
    listwise = F.cross_entropy(logits[[0, 2, 3]][None], torch.tensor([0]))
    torch.testing.assert_close(out, (binary + listwise) / inputs.rows)
    out.backward()
    assert logits.grad is not None
    assert logits.grad[1] == 0


def test_perfect_logits_cost_nothing() -> None:
    """Each classification component goes to 0 where the logits agree with the labels."""
    inputs = _inputs(24)

    def sure(labels: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return 50.0 * F.one_hot(labels.clamp(min=0), like.shape[1]).float()

    perfect = replace(
        inputs,
        next_hop_logits=sure(inputs.next_hop_labels, inputs.next_hop_logits),
        hop_relation_logits=sure(inputs.hop_relation_labels, inputs.hop_relation_logits),
        relation_logits=sure(inputs.relation_labels, inputs.relation_logits),
        path_scores=100.0 * inputs.path_labels - 50.0,
        selection_threshold=torch.zeros_like(inputs.selection_threshold),
        answer_logits=100.0 * inputs.answer_labels - 50.0,
        verification_logits=100.0 * inputs.verification_labels - 50.0,
        contradiction_logits=sure(inputs.contradiction_labels, inputs.contradiction_logits),
        count_logits=sure(inputs.count_labels, inputs.count_logits),
        confidence=100.0 * inputs.correctness - 50.0,
    )
    out = MultiTaskLoss(LossConfig())(perfect).components
    for name in ("next_hop", "relation", "path", "answer", "verification", "contradiction", "count"):
        assert float(out[name]) < 1e-6, name


def test_a_loss_needs_rows() -> None:
    """G23: nothing to score is an error of the caller."""
    with pytest.raises(ValueError, match="at least one row"):
        MultiTaskLoss(LossConfig())(replace(_inputs(2), rows=0))


def _cut(inputs: LossInputs, **changes: torch.Tensor) -> LossInputs:
    """The ``[G]`` tensors of the first four rows, with some replaced; only components made of these make sense."""
    names = (
        "contradiction_logits", "contradiction_labels", "count_logits", "count_labels", "count_mask", "confidence",
        "correctness", "penalty", "verification_logits", "verification_labels", "twin_mask", "pat_positive",
        "pat_negative", "pat_mask", "answer_listwise", "selection_threshold",
    )  # fmt: skip
    none = {
        name: getattr(inputs, name)[:0]
        for name in (
            "pair_cosines", "pair_graph", "negative_weight", "link_logits", "link_labels", "next_hop_logits",
            "next_hop_labels", "hop_relation_logits", "hop_relation_labels", "hop_graph", "relation_logits",
            "relation_labels", "relation_graph", "path_scores", "path_labels", "path_graph", "answer_logits",
            "answer_labels", "answer_weight", "answer_graph",
        )
    }  # fmt: skip
    return replace(inputs, rows=4, **none, **{name: getattr(inputs, name)[:4] for name in names} | changes)
