"""One step over the processes of a world: DDP, FSDP2, or one process.

Every process computes its share of the sum over the global batch, divided by the rows of the whole; both wrappers divide
the sum of the shares by the number of processes, so a share is multiplied by it first. What comes out is the gradient of
the mean over all scored rows, whatever each process holds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_

from hopline.config import GraphConfig
from hopline.errors import ConfigError
from hopline.graph import GraphBatch
from hopline.model import Forward, GraphModel
from hopline.training.distributed import World, share_weights
from hopline.training.step_module import StepModule

__all__ = ["ParallelStep", "clip_gradients", "require_parallelism"]

_FEW: Final = 1 << 20
"""Numbers that are joined sooner than a norm of each tensor is taken."""


def require_parallelism(config: GraphConfig, processes: int | str) -> None:
    """Refuse a config that does not say how several processes train together.

    Args:
        config: the config.
        processes: how many there are; a word where only that is known that there are more than one.

    Raises:
        ConfigError: naming the key.
    """
    training = config.training
    if processes != 1 and training.parallelism == "none":
        raise ConfigError(
            f"training.parallelism: found none, and {processes} processes train together; expected ddp, or fsdp for a "
            "model that does not fit one device"
        )
    if training.parallelism == "fsdp" and training.precision == "fp16":
        raise ConfigError(
            "training.precision: found fp16 with training.parallelism fsdp; expected bf16, which needs no loss scale, "
            "or fp32"
        )


class ParallelStep:
    """The model, and its step over all processes.

    Args:
        model: on the CPU, where every process has made it; the main process's weights are given to all.
        config: says how the step is shared.
        world: the processes.
        device: of this process.
    """

    def __init__(self, model: GraphModel, config: GraphConfig, world: World, device: torch.device) -> None:
        require_parallelism(config, world.size)
        share_weights(model, world)
        self._world = world
        self._module = StepModule(model, config)
        self._ddp: DistributedDataParallel | None = None
        self._run: Any = self._module
        self.sharded = world.size > 1 and config.training.parallelism == "fsdp"
        if self.sharded:
            # Part by part, so that the device never holds the whole model.
            mesh = init_device_mesh(device.type, (world.size,))
            for layer in model.propagation.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(self._module, mesh=mesh)
            register_fsdp_forward_method(self._module, "infer")
        self._module.to(device)
        if world.size > 1 and not self.sharded:
            # Buffers are constants; buckets are reduced while the backward pass is still running.
            self._ddp = DistributedDataParallel(self._module, forward_sync_buffers=False, gradient_as_bucket_view=True)
            self._run = self._ddp

    def modules(self) -> Any:
        """The modules of the model; with :meth:`forward_batch` what an evaluation asks for."""
        return self._module.modules()

    def forward_batch(self, batch: GraphBatch) -> Forward:
        """The model's outputs alone; collective if the model is sharded."""
        return self._module.infer(batch)

    def backward(
        self,
        batch: GraphBatch,
        *,
        step: int,
        rows: int,
        weight: float,
        last: bool,
        scaler: Any,
        between: Callable[[], None] = lambda: None,
    ) -> Tensor:
        """Forward and backward of one chunk; gradients are added up, and exchanged with the last chunk of a step.

        A sharded model exchanges with every chunk: it never holds a whole gradient.

        Args:
            batch: the chunk.
            step, rows, weight: as :meth:`StepModule.forward` takes them; ``rows`` is its divisor.
            last: no chunk of the step follows.
            scaler: of the loss.
            between: called after the forward pass; gradients travel during the backward pass.

        Returns:
            This chunk's share of the loss and of the components, ``[1 + COMPONENTS]``.
        """
        quiet: AbstractContextManager[Any] = nullcontext()
        if self._ddp is not None and not last:
            quiet = self._ddp.no_sync()
        with quiet:
            result = self._run(batch, step=step, divisor=float(rows), weight=weight)
            between()
            scaler.scale(result.total * self._world.size).backward()
        figures: Tensor = result.figures
        return figures


def clip_gradients(parameters: list[Tensor], most: float) -> Tensor:
    """Scale gradients to a global norm of at most ``most``; the norm before, 0-d, the same on every process."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm: Any
    if gradients and sum(map(Tensor.numel, gradients)) <= _FEW and all(type(each) is Tensor for each in gradients):
        norm = torch.linalg.vector_norm(_flatten_dense_tensors(gradients))  # type: ignore[no-untyped-call]
        clip_grads_with_norm_(parameters, most, norm)
    else:
        norm = clip_grad_norm_(parameters, most)
    # Of sharded gradients torch returns a tensor that is still to be reduced.
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return whole
