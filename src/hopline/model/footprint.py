"""What a model needs: parameters by part, memory of a training rank, and the work of a step; nothing of it is allocated.

Parameters are counted on a model on the meta device. The work and the activations are counted by running the model's own
forward pass over a batch of real shapes with fake tensors, which have shapes and types and no memory; so they follow the
model wherever it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from hopline.graph import GraphBatch
from hopline.model.graph_model import GraphModel

__all__ = ["Parallelism", "Part", "RankMemory", "RowCost", "model_parts", "rank_memory", "row_cost"]

_FLOAT: Final = 4
_HALF: Final = 2
_MOMENTS: Final = 2 * _FLOAT
_BACKWARD: Final = 2
"""Matrix products of the backward pass for each of the forward pass: one for the input, one for the weight."""

Parallelism = Literal["none", "ddp", "fsdp"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a model: its parameters, and the shape of each tensor by name."""

    name: str
    parameters: int
    tensors: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes that one rank needs at the height of a step.

    Attributes:
        parallelism, world: how many ranks share the training, and how.
        weights, gradients, moments: of what the rank owns: fp32 weight, gradient and two Adam moments, 16 bytes for each
            parameter that is trained, 4 for a frozen one; divided by the ranks with ``fsdp``.
        gathered: with ``fsdp``, weights and gradients that are whole for a while.
        copies: weights in half precision that autocast keeps for the backward pass.
        activations: what the backward pass needs of one chunk.
    """

    parallelism: Parallelism
    world: int
    weights: int
    gradients: int
    moments: int
    gathered: int
    copies: int
    activations: int

    @property
    def total(self) -> int:
        """All together; fragments and the libraries' own memory come on top."""
        return self.weights + self.gradients + self.moments + self.gathered + self.copies + self.activations


@dataclass(frozen=True, slots=True)
class RowCost:
    """The mean row of a sample, and what it costs.

    Attributes:
        rows: of the sample.
        nodes, messages, paths: of a row; each edge carries two messages.
        forward_flops: of the matrix products of a forward pass.
        activation_bytes: that the forward pass keeps for the backward pass, weights not counted.
    """

    rows: int
    nodes: float
    messages: float
    paths: float
    forward_flops: float
    activation_bytes: float

    @property
    def training_flops(self) -> float:
        """Of the matrix products of a forward and a backward pass: three times those of the forward pass."""
        return (1 + _BACKWARD) * self.forward_flops


def model_parts(model: GraphModel) -> tuple[Part, ...]:
    """The parts of a model, in its own order."""
    return tuple(
        Part(
            name,
            sum(parameter.numel() for parameter in part.parameters()),
            {tensor: tuple(parameter.shape) for tensor, parameter in part.named_parameters()},
        )
        for name, part in model.named_children()
    )


def rank_memory(
    model: GraphModel, *, parallelism: Parallelism, world: int, half: bool, activation_bytes: int = 0
) -> RankMemory:
    """What a rank needs, from the model's shapes.

    With ``fsdp`` each propagation layer is gathered when its turn comes, with the next one already on its way, and let go
    again; the rest of the model is one unit, which stays whole from its first use to the end of the step (the root of
    FSDP2 is not resharded after the forward pass). Gradients are whole until their unit is reduced.

    Args:
        model: on any device; the meta device will do.
        parallelism: ``none``, ``ddp`` or ``fsdp``.
        world: ranks; ``none`` has one.
        half: autocast to half precision.
        activation_bytes: of a chunk.
    """
    world = 1 if parallelism == "none" else world
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    everything = sum(p.numel() for p in model.parameters())
    shards = world if parallelism == "fsdp" else 1
    gathered = 0
    if shards > 1:
        layers = list(model.propagation.layers)
        whole = everything - sum(_count(layer) for layer in layers)
        whole_trained = trained - sum(_count(layer, trained=True) for layer in layers)
        largest, largest_trained = max(map(_count, layers)), max(_count(layer, trained=True) for layer in layers)
        gathered = _FLOAT * (whole + 2 * largest + whole_trained + largest_trained)
    return RankMemory(
        parallelism=parallelism,
        world=world,
        weights=_FLOAT * -(-everything // shards),
        gradients=_FLOAT * -(-trained // shards),
        moments=_MOMENTS * -(-trained // shards),
        gathered=gathered,
        copies=_linear_weights(model) * _HALF if half else 0,
        activations=activation_bytes,
    )


def row_cost(build: Callable[[], GraphModel], batch: GraphBatch, *, half: bool) -> RowCost:
    """The cost of the mean row of a batch, counted by a forward pass without memory.

    Args:
        build: makes the model; it is called where tensors have no memory.
        batch: rows as the dataset gives them; a dozen are enough.
        half: autocast to bfloat16, as a GPU does it; fp16 keeps the same bytes. Without, what a processor keeps in fp32: it
            updates nodes in pieces, and a GPU in fp32 keeps a few rows of width H more for each node and layer.
    """
    kept: dict[int, tuple[int, Any]] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes(), storage  # held, so that its identity is not used again
        return tensor

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: _addmm_flops})
    with FakeTensorMode() as fake:
        model = build().train()
        rows = replace(batch, **{f.name: _faked(fake, getattr(batch, f.name)) for f in fields(batch)})
        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with counter, torch.autocast("cpu", dtype=torch.bfloat16, enabled=half), hooks:
            model.forward_batch(rows)
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        copies = _linear_weights(model) * _HALF if half else 0
    total = sum(size for identity, (size, _) in kept.items() if identity not in weights)
    G = batch.num_graphs
    return RowCost(
        rows=G,
        nodes=batch.num_nodes / G,
        messages=len(batch.message_source) / G,
        paths=batch.num_paths / G,
        forward_flops=counter.get_total_flops() / G,
        activation_bytes=(total - copies) / G,
    )


def _addmm_flops(into: Any, left: Any, right: Any, **_: Any) -> int:
    """Of the product in place, which torch's counter leaves out; arguments are shapes."""
    return 2 * int(left[0]) * int(left[1]) * int(right[1])


def _count(module: nn.Module, *, trained: bool = False) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad or not trained)


def _linear_weights(model: nn.Module) -> int:
    return sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear))


def _faked(fake: FakeTensorMode, value: Any) -> Any:
    return fake.from_tensor(value) if isinstance(value, Tensor) else value
