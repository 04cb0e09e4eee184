"""Optimisation, evaluation cadence and checkpoints."""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from hopline.config.base import Count, Positive, Section, Share, Weight

__all__ = ["CurriculumStage", "TrainingConfig"]


_PARENT: Final = re.compile(r"\S+@sha256:[0-9a-f]{64}")


class CurriculumStage(Section):
    """Until a step, only some examples are drawn."""

    until_step: Positive
    """The stage ends before this optimizer step."""
    max_hops: Annotated[int, Field(ge=1, le=10)] | None = None
    """Longest chain that is drawn; null = any."""
    kinds: tuple[Literal["link", "multi_hop", "count", "aggregate", "boolean", "relation"], ...] | None = None
    """Kinds that are drawn; null = all."""


class TrainingConfig(Section):
    """Optimisation, evaluation cadence and checkpoints."""

    seed: int = 0
    """Seed of initial weights, batch order and dropout."""
    max_steps: Positive = 1000
    """Optimizer steps."""
    batch_size: Positive = 128
    """Examples in one micro step, over all ranks."""
    gradient_accumulation: Positive = 1
    """Micro steps in one optimizer step."""
    backward_chunk_size: Positive = 128
    """Examples, twins included, whose activations live at once on a rank. Changes no result beyond rounding."""
    backward_chunk_nodes: Positive = 32768
    """Nodes that live at once on a rank; a larger example makes a part of its own. Changes no result beyond rounding."""
    backward_chunk_edges: Positive = 131072
    """Edges that live at once on a rank; a larger example makes a part of its own. Changes no result beyond rounding."""
    parallelism: Literal["none", "ddp", "fsdp"] = "none"
    """How several processes share a training: `ddp`, each has the whole model; `fsdp`, each has a part of the weights and
    of the optimizer. Changes no result beyond rounding."""
    compile: bool = False
    """Let torch.compile make the kernels; batches are padded to a few sizes then. Changes no result beyond rounding."""
    prefetch: Positive = 2
    """Batches that are made ahead. Changes no result."""
    init_from: str | None = None
    """`<URI>@sha256:<digest>` of a candidate (its weights; the run starts at step 0) or of a training state (also its
    optimizer state and step). The run then has it as its parent."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    """Peak learning rate."""
    weight_decay: Weight = 0.01
    """Decoupled decay of matrices; vectors, thresholds and scales have none."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Moment decays of AdamW."""
    warmup_ratio: Share = 0.05
    """Share of max_steps that warms up linearly; at least one step."""
    final_learning_rate_ratio: Share = 0.1
    """Floor of the cosine, as a share of the peak."""
    grad_clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest global gradient norm."""
    skip_grad_norm: Weight = 0.0
    """Skip an update whose norm exceeds this many medians of the last updates; 0 = never."""
    skip_window: Positive = 200
    """Applied norms that the median is taken over."""
    skip_minimum: Positive = 50
    """Applied norms that have to be known before anything is skipped."""
    max_non_finite: Positive = 5
    """Non-finite updates in a row after which training counts as diverged."""
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Autocast on CUDA; elsewhere fp32."""
    deterministic: bool = True
    """Bitwise equal runs where kernels allow; the record says what was achieved."""
    evaluation_every: Count = 250
    """Steps between evaluations on valid; 0 = only at the end."""
    checkpoint_every: Count = 250
    """Steps between checkpoints of the training state; 0 = only at the end."""
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    """Newest training states that are kept."""
    keep_candidates: Positive = 3
    """Best candidates that are kept for the evaluation stage."""
    patience: Positive | None = None
    """Evaluations without a better score after which training stops; null = never."""
    freeze_query_encoder: bool = False
    """Keep the query encoder as it is."""
    query_encoder_lr_scale: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate of the query encoder, as a multiple."""
    transductive_lr_scale: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate of the bilinear branch, as a multiple."""
    link_head: Literal["cosine", "mlp"] = "cosine"
    """How an edge is scored from two node states."""
    link_logit_scale: Annotated[float, Field(gt=0)] = 2.0
    """Multiplies the cosine of the link head."""
    curriculum: tuple[CurriculumStage, ...] = ()
    """Stages in order of until_step; after the last, everything is drawn."""
    log_every: Positive = 10
    """Steps between log lines."""

    @field_validator("init_from")
    @classmethod
    def _parent(cls, value: str | None) -> str | None:
        if value is not None and not _PARENT.fullmatch(value):
            raise ValueError(f"found {value!r}, expected <URI of a candidate or training state>@sha256:<64 hex digits>")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        steps = [stage.until_step for stage in self.curriculum]
        if any(b <= a for a, b in itertools.pairwise(steps)):
            raise ValueError(f"curriculum: until_step must rise from stage to stage, found {steps}")
        return self
