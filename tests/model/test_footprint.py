"""What a model needs, counted without allocating it."""

from __future__ import annotations

import gc
import resource
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hopline.config import ModelConfig, PathAttentionConfig
from hopline.model import GraphModel
from hopline.model.footprint import model_parts, rank_memory, row_cost
from hopline.training.device import TRAINING_BYTES_PER_PARAMETER, training_bytes
from tests.model.factory import RELATIONS, make_batch, make_examples


def build(hidden: int = 64, layers: int = 3, **options: Any) -> GraphModel:
    torch.manual_seed(0)
    return GraphModel(ModelConfig(hidden_dim=hidden, layers=layers), num_relations=RELATIONS, **options)


def meta(hidden: int = 64, layers: int = 3, **options: Any) -> GraphModel:
    with torch.device("meta"):
        return build(hidden, layers, **options)


def test_parts_are_the_buckets_with_the_shapes_of_every_tensor() -> None:
    """G48: parameter buckets."""
    model, real = meta(link_head="mlp"), build(link_head="mlp")
    parts = {part.name: part for part in model_parts(model)}
    buckets = dict(real.parameter_buckets())
    assert sum(part.parameters for part in parts.values()) == buckets.pop("total")
    assert {name: part.parameters for name, part in parts.items()} == buckets
    shapes = {f"{part.name}.{name}": shape for part in parts.values() for name, shape in part.tensors.items()}
    assert shapes == {name: tuple(parameter.shape) for name, parameter in real.named_parameters()}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("parallelism", ["none", "ddp"])
def test_a_whole_model_needs_sixteen_bytes_a_parameter(parallelism: Any, frozen: bool) -> None:
    """G3, D48: as the memory check counts; a frozen parameter has its weight alone."""
    model = meta()
    model.query_encoder.requires_grad_(not frozen)
    memory = rank_memory(model, parallelism=parallelism, world=8, half=False)
    assert memory.total == training_bytes(model)
    assert (memory.total < TRAINING_BYTES_PER_PARAMETER * sum(p.numel() for p in model.parameters())) is frozen
    assert memory.world == (1 if parallelism == "none" else 8)


def test_shards_divide_what_is_owned_and_gather_a_unit_at_a_time() -> None:
    """G59: weights, gradients and moments by the number of ranks; what is whole for a while does not shrink with it."""
    model = meta()
    total = sum(p.numel() for p in model.parameters())
    eight, sixteen = (rank_memory(model, parallelism="fsdp", world=n, half=False) for n in (8, 16))
    for memory, world in ((eight, 8), (sixteen, 16)):
        owned = memory.weights + memory.gradients + memory.moments
        assert 0 <= owned - TRAINING_BYTES_PER_PARAMETER * total / world < TRAINING_BYTES_PER_PARAMETER
    assert eight.gathered == sixteen.gathered
    layer = sum(p.numel() for p in model.propagation.layers[0].parameters())
    rest = total - 3 * layer
    assert eight.gathered == 4 * (rest + 2 * layer) + 4 * (rest + layer)
    assert rank_memory(model, parallelism="fsdp", world=1, half=False).gathered == 0


def test_activations_and_copies_are_added() -> None:
    model = meta()
    plain = rank_memory(model, parallelism="ddp", world=2, half=False)
    more = rank_memory(model, parallelism="ddp", world=2, half=True, activation_bytes=1000)
    weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    assert more.total - plain.total == 1000 + 2 * weights


@pytest.mark.parametrize("half", [False, True])
def test_the_cost_is_that_of_a_real_forward_and_backward_pass(half: bool) -> None:
    """Products and kept bytes are those of the same model on the processor, and training does three times the products."""
    batch = make_batch(make_examples(24))
    cost = row_cost(build, batch, half=half)
    model, kept = build().train(), {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = (storage.nbytes(), storage)
        return tensor

    in_place = {torch.ops.aten.addmm_: lambda into, left, right, **_: 2 * left[0] * left[1] * right[1]}
    forward, backward = (FlopCounterMode(display=False, custom_mapping=in_place) for _ in range(2))
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with forward, hooks, torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        out = model.forward_batch(batch)
    logits = [value for name in out.__slots__ if (value := getattr(out, name)).requires_grad]
    with backward:
        torch.stack([value.float().sum() for value in logits]).sum().backward()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    copies = rank_memory(model, parallelism="none", world=1, half=half).copies
    measured = sum(size for place, (size, _) in kept.items() if place not in own) - copies
    assert cost.rows == batch.num_graphs
    assert cost.nodes * cost.rows == pytest.approx(batch.num_nodes)
    assert cost.messages * cost.rows == pytest.approx(2 * batch.num_edges)
    assert cost.forward_flops * cost.rows == pytest.approx(forward.get_total_flops())
    assert cost.activation_bytes * cost.rows == pytest.approx(measured, rel=0.02)
    total = forward.get_total_flops() + backward.get_total_flops()
    assert cost.training_flops * cost.rows == pytest.approx(total, rel=0.05)


def test_autocast_keeps_a_copy_of_the_linear_weights() -> None:
    """What the forward pass keeps in half precision in the shape of a weight, against the count."""
    model, kept = build(256).train(), {}
    weights = [tuple(module.weight.shape) for module in model.modules() if isinstance(module, torch.nn.Linear)]

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.bfloat16 and {tuple(tensor.shape), tuple(tensor.shape[::-1])} & set(weights):
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = (storage.nbytes(), storage)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", dtype=torch.bfloat16):
        out = model.forward_batch(make_batch(make_examples(7)))
    measured = sum(size for size, _ in kept.values())
    assert out.support_logit.requires_grad
    assert rank_memory(model, parallelism="none", world=1, half=True).copies == pytest.approx(measured, rel=0.05)


def test_the_work_does_not_depend_on_the_form_of_the_update() -> None:
    """In fp32 nodes are updated in pieces and in place, under autocast as a whole; the products are the same."""
    batch = make_batch(make_examples(12))
    whole, half = (row_cost(lambda: build(256, 4), batch, half=half) for half in (False, True))
    assert half.forward_flops == pytest.approx(whole.forward_flops)
    assert half.activation_bytes != whole.activation_bytes


def test_a_model_larger_than_this_machine_is_counted_in_no_memory() -> None:
    """Three hundred billion parameters, more than a terabyte."""
    config = ModelConfig(hidden_dim=40_960, layers=32, pat=PathAttentionConfig(heads=32))
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.device("meta"):
        model = GraphModel(config, num_relations=100)
    memory = rank_memory(model, parallelism="fsdp", world=1024, half=True)
    assert sum(p.numel() for p in model.parameters()) > 2.5e11
    assert memory.gathered > 1e11
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 200e6
