"""StepModule: the loss and gradients of a chunk, alone and under the wrappers of distributed training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from hopline.config import DatasetConfig, GraphConfig, LossConfig, ModelConfig, TrainingConfig
from hopline.graph import QueryKind, ReasoningExample
from hopline.model import GraphModel
from hopline.training import COMPONENTS
from hopline.training.step_module import StepModule
from tests.model.factory import ENTITIES, RELATIONS, make_batch, make_examples


def _config(*, identity: bool = True, link_head: str = "mlp") -> GraphConfig:
    return GraphConfig(
        name="test",
        dataset=DatasetConfig(source="triples", entities="identity" if identity else "anonymous"),
        model=ModelConfig(hidden_dim=16, layers=2, max_hops=4, transductive=identity, transductive_rank=8),
        loss=LossConfig(n3=0.1, negatives_per_edge=2, edge_queries=3),
        training=TrainingConfig(link_head=link_head),
    )


def _module(config: GraphConfig | None = None) -> StepModule:
    torch.manual_seed(0)
    config = config or _config()
    entities = ENTITIES if config.model.transductive else 0
    head = config.training.link_head
    model = GraphModel(config.model, num_relations=RELATIONS, num_entities=entities, link_head=head)
    module = StepModule(model, config)
    with torch.no_grad():  # also what starts at 0 shall matter
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return module


def _gradients(module: torch.nn.Module) -> dict[str, Tensor]:
    def whole(grad: Tensor | None) -> Tensor:
        assert grad is not None
        return (grad.full_tensor() if isinstance(grad, DTensor) else grad).clone()

    return {name.removeprefix("module."): whole(p.grad) for name, p in module.named_parameters()}


def _step(module: torch.nn.Module, examples: list[ReasoningExample], **options: float) -> Tensor:
    module.zero_grad(set_to_none=True)
    result = module(make_batch(examples), step=3, divisor=30.0, **options)
    result.total.backward()
    return result.figures


def test_figures_are_the_total_and_every_component() -> None:
    """G37, E: one tensor that holds all that is read back."""
    module = _module()
    result = module(make_batch(make_examples(24, identity=True)), step=3, divisor=30.0)
    assert result.figures.shape == (1 + len(COMPONENTS),)
    assert not result.figures.requires_grad
    assert result.figures[0] == result.total.detach()
    assert (result.figures > 0).all()


@pytest.mark.parametrize("identity", [False, True])
def test_every_parameter_gets_a_gradient_whatever_the_batch_holds(identity: bool) -> None:
    """D4, G32: batches of one kind, without paths, without edges; zeros then, never None (D19: DDP would hang)."""
    module = _module(_config(identity=identity))
    examples = [replace(e, pair=None) for e in make_examples(36, identity=identity)]
    batches = {kind.value: [e for e in examples if e.kind is kind] for kind in QueryKind}
    batches["no paths"] = [replace(e, supporting_paths=(), competing_paths=()) for e in examples]
    batches["no edges"] = [
        replace(
            e,
            graph=replace(e.graph, edge_index=e.graph.edge_index[:, :0], edge_type_ids=e.graph.edge_type_ids[:0]),
            supporting_paths=(),
            competing_paths=(),
        )
        for e in examples
    ]
    batches["one, without answers"] = [replace(examples[0], answers=(), answer_entities=(), known_entities=())]
    for name, batch in batches.items():
        assert batch, name
        _step(module, batch)
        for parameter, grad in _gradients(module).items():
            assert torch.isfinite(grad).all(), (name, parameter)


def test_a_chunk_with_weight_zero_counts_nothing() -> None:
    """D19: a rank that has no examples of its own takes part with others' and weight 0: exact zeros, never None."""
    module = _module()
    examples = make_examples(24, identity=True)
    figures = _step(module, examples, weight=0.0)
    assert not figures.any()
    for name, grad in _gradients(module).items():
        assert not grad.any(), name


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp"])
def test_wrappers_see_every_use_of_a_parameter(alone: None, wrapper: str) -> None:
    """G59, G60: with only the root and the propagation layers wrapped, what the step asks of other parts by name (bilinear
    branch, N3, link head) has its weights and its gradients."""
    plain, wrapped = _module(), _module()
    examples = make_examples(24, identity=True)
    if wrapper == "ddp":
        wrapped = DistributedDataParallel(wrapped)
    else:
        for layer in wrapped.model.propagation.layers:
            fully_shard(layer)
        fully_shard(wrapped)
        assert all(isinstance(parameter, DTensor) for parameter in wrapped.parameters())
    for _ in range(2):
        figures, expected = _step(wrapped, examples), _step(plain, examples)
        torch.testing.assert_close(figures, expected)
        for (name, grad), want in zip(_gradients(wrapped).items(), _gradients(plain).values(), strict=True):
            torch.testing.assert_close(grad, want, msg=name)


def test_a_sharded_model_can_be_asked(alone: None) -> None:
    """G58, G59: outside the step too, as evaluation does."""
    plain, sharded = _module().eval(), _module().eval()
    for layer in sharded.model.propagation.layers:
        fully_shard(layer)
    fully_shard(sharded)
    register_fsdp_forward_method(sharded, "infer")
    batch = make_batch(make_examples(12, identity=True))
    with torch.no_grad():
        torch.testing.assert_close(sharded.infer(batch).ranking_logits, plain.infer(batch).ranking_logits)
