"""Padding: it changes nothing, and few classes of sizes do for many batches."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from hopline.config import DatasetConfig, GraphConfig, LossConfig, ModelConfig
from hopline.graph import GraphBatch, ReasoningExample
from hopline.model import GraphModel
from hopline.training.size_classes import PADDING_ID, BatchSizes, SizeClasses, pad_batch
from hopline.training.step_module import StepModule
from tests.model.factory import ENTITIES, RELATIONS, make_batch, make_examples


def _module(*, identity: bool = True) -> StepModule:
    torch.manual_seed(0)
    config = GraphConfig(
        name="test",
        dataset=DatasetConfig(source="triples", entities="identity" if identity else "anonymous"),
        model=ModelConfig(hidden_dim=8, layers=1, max_hops=3, transductive=identity, transductive_rank=4),
        loss=LossConfig(n3=0.1, edge_queries=2),
    )
    entities = ENTITIES if identity else 0
    return StepModule(GraphModel(config.model, num_relations=RELATIONS, num_entities=entities), config)


def _step(module: StepModule, batch: GraphBatch) -> tuple[Tensor, list[Tensor]]:
    """Figures and gradients."""
    module.zero_grad(set_to_none=True)
    result = module(batch, step=2, divisor=40.0)
    result.total.backward()
    grads = [parameter.grad for parameter in module.parameters()]
    return result.figures, [grad.clone() for grad in grads if grad is not None]


def _close(one: tuple[Tensor, list[Tensor]], other: tuple[Tensor, list[Tensor]]) -> None:
    torch.testing.assert_close(one[0], other[0], atol=1e-5, rtol=1e-5)
    assert len(one[1]) == len(other[1])
    for a, b in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def _bare(examples: list[ReasoningExample]) -> list[ReasoningExample]:
    """The examples without edges, paths and answers."""
    return [
        replace(
            e,
            graph=replace(e.graph, edge_index=e.graph.edge_index[:, :0], edge_type_ids=e.graph.edge_type_ids[:0]),
            supporting_paths=(),
            competing_paths=(),
            answers=(),
            answer_entities=(),
            pair=None,
        )
        for e in examples
    ]


@pytest.mark.parametrize("identity", [False, True])
@pytest.mark.parametrize("bare", [False, True])
def test_padding_changes_nothing(identity: bool, bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures and gradients of a padded batch are those of the batch itself, also where it has no edges and no paths."""
    module = _module(identity=identity)
    examples = make_examples(20, identity=identity)
    batch = make_batch(_bare(examples) if bare else examples)
    expected = _step(module, batch)
    padded = pad_batch(batch, SizeClasses().of(batch))
    assert padded.num_graphs > batch.num_graphs
    # As compiled, without a compiler.
    monkeypatch.setattr(module, "_compiled", module._step)
    _close(_step(module, batch), expected)


def test_padding_reaches_the_class_and_keeps_the_rows() -> None:
    """Every tensor begins with the batch's own values, and has the size of the class."""
    batch = make_batch(make_examples(15, identity=True))
    sizes = SizeClasses().of(batch)
    padded = pad_batch(batch, sizes)
    for field in fields(GraphBatch):
        own, filled = getattr(batch, field.name), getattr(padded, field.name)
        if not isinstance(own, Tensor):
            assert filled == getattr(sizes, field.name)
            continue
        assert torch.equal(filled[..., : own.shape[-1]], own), field.name
        assert filled.dtype == own.dtype
    rows, nodes, edges = BatchSizes.of(padded).graphs, BatchSizes.of(padded).nodes, BatchSizes.of(padded).edges
    assert (rows, nodes, edges) == (sizes.graphs + 1, sizes.nodes + 1, sizes.edges + 1)
    assert padded.num_paths == sizes.paths
    assert len(padded.step_path) == sizes.steps == int(padded.path_length.sum())
    assert (padded.example_id[batch.num_graphs :] == PADDING_ID).all()
    assert torch.equal(padded.message_source[padded.edge_message[0]], padded.edge_index[0])
    assert torch.equal(padded.message_target[padded.edge_message[0]], padded.edge_index[1])
    assert all((padded.node_graph[1:] >= padded.node_graph[:-1]).tolist())


def test_few_classes_do_for_batches_that_are_alike() -> None:
    """Every batch fits its class; a much smaller one has a class of its own."""
    classes = SizeClasses()
    for seed in range(40):
        batch = make_batch(make_examples(40, seed=seed, identity=True))
        sizes = classes.of(batch)
        assert sizes.fits(BatchSizes.of(batch))
        assert sizes.num_node_pairs >= batch.num_node_pairs + (sizes.nodes - batch.num_nodes) ** 2
    assert len(classes.known) <= 6
    known = len(classes.known)
    classes.of(make_batch(make_examples(3, identity=True)))
    assert len(classes.known) == known + 1


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_a_compiled_step_is_the_step(backend: str) -> None:
    """Equal to 1e-5; one compilation for each class, whatever the step, the divisor and the weight are."""
    plain, compiled = _module(), _module()
    compiled.compile_step(backend)
    before = counters["stats"]["unique_graphs"]
    for seed in range(2 if backend == "eager" else 1):
        batch = make_batch(make_examples(12, seed=seed, identity=True))
        _close(_step(compiled, batch), _step(plain, batch))
    assert counters["stats"]["unique_graphs"] - before == len(compiled.classes.known) <= 2
    assert not compiled(batch, step=9, divisor=7.0, weight=0.0).figures.any()
    assert compiled(batch, step=9, divisor=7.0).figures.all()
    assert counters["stats"]["unique_graphs"] - before == len(compiled.classes.known)


@pytest.mark.parametrize("asked", [False, True])
def test_the_config_asks_for_compilation(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``training.compile``."""
    backends: list[str] = []
    monkeypatch.setattr(StepModule, "compile_step", lambda self, backend="inductor": backends.append(backend))
    config = GraphConfig(name="test", training={"compile": asked})  # type: ignore[arg-type]
    StepModule(GraphModel(config.model, num_relations=RELATIONS), config)
    assert backends == ["inductor"] * asked
