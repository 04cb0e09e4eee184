"""``on_policy_selection``: the heads after path selection see what the model itself selected, in training too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hopline.config import ModelConfig
from hopline.graph import GraphBatch
from hopline.model import Forward, GraphModel
from tests.model.factory import RELATIONS, make_batch, make_examples

AFTER_SELECTION = ("support_logit", "contradiction_logits", "count_logits", "confidence_logit")
ALL, NONE = 50.0, -50.0
"""Added to the logit of every path: all are selected, or none."""


def model(*, on_policy: bool, select: float = 0.0) -> GraphModel:
    """The same weights each time, in training mode."""
    torch.manual_seed(0)
    config = ModelConfig(hidden_dim=16, layers=2, on_policy_selection=on_policy)
    made = GraphModel(config, num_relations=RELATIONS).train()
    with torch.no_grad():
        made.selector.score.bias += select
    return made


@pytest.fixture(scope="module")
def batch() -> GraphBatch:
    made = make_batch(make_examples(24, seed=3))
    assert made.num_graphs > 24, "there are twins"
    assert 0 < int(made.path_label.sum()) < made.num_paths
    return made


def heads(forward: Forward) -> Tensor:
    """``[G, ...]`` what the heads after selection say, side by side."""
    return torch.cat([getattr(forward, name).reshape(len(forward.support_logit), -1) for name in AFTER_SELECTION], 1)


def evidence(made: GraphModel, batch: GraphBatch, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """``[G, H + 1]`` what these heads are given of the selected paths."""
    given: list[Any] = []
    pool = made.selector.evidence
    monkeypatch.setattr(made.selector, "evidence", lambda *inputs: given.append(pool(*inputs)) or given[0])
    made.forward_batch(batch)
    return torch.cat([given[0].states, given[0].mass], 1)


def test_what_is_selected_decides_what_the_heads_say(batch: GraphBatch) -> None:
    """G25: in every row that has candidate paths."""
    none, every = (heads(model(on_policy=True, select=shift).forward_batch(batch)) for shift in (NONE, ALL))
    has_paths = torch.zeros(batch.num_graphs, dtype=torch.bool).index_fill(0, batch.path_graph, True)
    assert torch.equal((none - every).abs().amax(1) > 1e-5, has_paths)


def test_the_evidence_is_the_own_selection_or_the_gold_paths(
    batch: GraphBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G25: with the flag, selecting other paths gives other evidence, and none where none is selected; without it, the gold
    supporting paths are evidence whatever is selected."""
    shown = {
        (on_policy, shift): evidence(model(on_policy=on_policy, select=shift), batch, monkeypatch)
        for on_policy in (True, False)
        for shift in (NONE, ALL)
    }
    assert not shown[True, NONE].any()
    assert shown[True, ALL].any()
    assert torch.equal(shown[False, NONE], shown[False, ALL])
    assert shown[False, NONE].any()
    assert not torch.allclose(shown[False, ALL], shown[True, ALL]), "competing paths are selected, too"


def test_the_gold_paths_are_not_seen(batch: GraphBatch) -> None:
    """G25, C: which paths are said to support changes nothing that the heads say; without the flag it does."""
    label = 1 - batch.path_label
    swapped = replace(batch, path_label=label, num_supporting_steps=int(label.index_select(0, batch.step_path).sum()))
    for on_policy in (True, False):
        one, other = (heads(model(on_policy=on_policy).forward_batch(rows)) for rows in (batch, swapped))
        assert torch.equal(one, other) is on_policy


def test_training_sees_what_evaluation_sees(batch: GraphBatch) -> None:
    """G25: without dropout the two modes say the same with the flag, and not without it."""
    for on_policy in (True, False):
        made = model(on_policy=on_policy)
        training, evaluating = heads(made.forward_batch(batch)), heads(made.eval().forward_batch(batch))
        assert torch.allclose(training, evaluating, atol=1e-6) is on_policy


@pytest.mark.parametrize("select", [0.0, ALL])
def test_a_row_of_a_union_batch_is_the_row_alone(batch: GraphBatch, select: float) -> None:
    """G25: it works in the union batch: no path of another row is taken for an own one."""
    made = model(on_policy=True, select=select)
    alone = [heads(made.forward_batch(make_batch([example]))) for example in make_examples(24, seed=3)]
    assert torch.allclose(heads(made.forward_batch(batch)), torch.cat(alone), atol=1e-5)


def test_the_heads_teach_the_selection(batch: GraphBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """G25: with the flag what the heads make of the evidence moves the selector; of gold paths it cannot."""
    for on_policy in (True, False):
        made = model(on_policy=on_policy, select=1.0)
        evidence(made, batch, monkeypatch).sum().backward()
        moved = made.selector.score.weight.grad
        assert (moved is not None and bool(moved.any())) is on_policy
        assert made.selector.value.weight.grad is not None
