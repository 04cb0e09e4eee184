"""The differentiable part of a step as one module, which is what DistributedDataParallel and FSDP2 wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from hopline.config import GraphConfig
from hopline.graph import GraphBatch
from hopline.model import Forward, GraphModel
from hopline.training.losses import MultiTaskLoss
from hopline.training.precision import autocast, effective_precision
from hopline.training.size_classes import PADDING_ID, SizeClasses, pad_batch
from hopline.training.supervision import build_loss_inputs

__all__ = ["StepModule", "StepResult"]

_MOST_CLASSES: Final = 64


class StepResult(NamedTuple):
    """The loss of a chunk: its share of the loss of the whole step.

    Attributes:
        total: 0-d, to be differentiated.
        figures: ``[1 + COMPONENTS]`` the total and its components, detached.
    """

    total: Tensor
    figures: Tensor


class StepModule(nn.Module):
    """Forward pass, supervision and loss of one chunk. All that has parameters happens inside :meth:`forward`, so that the
    hooks of a wrapper see every use of them.

    Args:
        model: on its device.
        config: the loss, the seed of the random draws, the precision, and whether the step is compiled.
    """

    def __init__(self, model: GraphModel, config: GraphConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.loss = MultiTaskLoss(config.loss)
        self.classes = SizeClasses()
        self._compiled: Callable[..., StepResult] | None = None
        if config.training.compile:
            self.compile_step()

    def forward(self, batch: GraphBatch, *, step: int, divisor: float, weight: float = 1.0) -> StepResult:
        """The loss of a chunk.

        Args:
            batch: the chunk, on the model's device.
            step: finished steps; a counter of the random draws.
            divisor: scored rows of the whole step, over all chunks and ranks.
            weight: what the rows count for; with 0 every gradient is zero and none is None, which is how a rank without
                examples takes part in a step.
        """
        device = batch.kind.device
        if self._compiled is None:
            row_weight = None if weight == 1 else torch.full((batch.num_graphs,), weight, device=device)
            return self._step(batch, step, divisor, row_weight)
        batch = pad_batch(batch, self.classes.of(batch))
        # Numbers that change from step to step are tensors, else each would have kernels of its own.
        counter, share = torch.full((), step, device=device), torch.full((), divisor, device=device)
        return self._compiled(batch, counter, share, weight * (batch.example_id != PADDING_ID).to(torch.float32))

    def compile_step(self, backend: str = "inductor") -> None:
        """Let torch.compile make the kernels of a step from now on; batches are padded to a few sizes then."""
        # A kernel for each class of sizes; beyond the limit torch would go on without them.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MOST_CLASSES)
        self._compiled = torch.compile(self._step, backend=backend, dynamic=False)

    def _step(
        self, batch: GraphBatch, step: int | Tensor, divisor: float | Tensor, row_weight: Tensor | None
    ) -> StepResult:
        config = self.config
        inputs = build_loss_inputs(
            self.model,
            batch,
            self._forward(batch),
            seed=config.training.seed,
            step=step,
            negatives_per_edge=config.loss.negatives_per_edge,
            edge_queries=config.loss.edge_queries,
            row_weight=row_weight,
        )
        output = self.loss(inputs, divisor=divisor)
        figures = torch.cat([output.total.view(1), output.shares]).detach()
        return StepResult(output.total, figures)

    def infer(self, batch: GraphBatch) -> Forward:
        """The model's outputs alone, in the precision of the training.

        Under FSDP2 name it to ``register_fsdp_forward_method`` of the wrapped module to use it outside :meth:`forward`.
        """
        return self._forward(batch)

    def _forward(self, batch: GraphBatch) -> Forward:
        device = batch.kind.device
        with autocast(effective_precision(self.config.training.precision, device), device):
            forward: Forward = self.model(batch)
        return forward
