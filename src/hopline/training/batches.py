"""What a step trains on: a pure function of the step, so that the data position of a run is one integer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hopline.config import TrainingConfig
from hopline.datasets import BatchSampler, Split
from hopline.graph import GraphBatch, collate
from hopline.training.step_plan import PlannedChunk, plan_step

__all__ = ["BatchSource", "Chunk", "SplitBatches", "StepBatches"]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The rows of one forward and backward pass.

    Attributes:
        batch: the rows.
        weight: 1.0, or 0.0 for a filler, which runs only because other ranks run; its loss counts for nothing.
    """

    batch: GraphBatch
    weight: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class StepBatches:
    """What one rank trains on in one step.

    Attributes:
        chunks: this rank's share, in parts that fit in memory one at a time; at least one.
        rows: scored rows of the whole step, over all ranks, twins included: the divisor of its mean loss.
        units: int64 ``[B]``, the units of the whole step in their order, by position in the split.
    """

    chunks: tuple[Chunk, ...]
    rows: int
    units: NDArray[np.int64]


class BatchSource(Protocol):
    """Batches by step."""

    examples_per_step: int
    """Examples of one optimizer step, over all ranks; a twin counts with its example."""

    def step(self, step: int) -> StepBatches:
        """What this rank trains on in the update that follows ``step`` finished ones."""


class SplitBatches:
    """Batches drawn from a split.

    Args:
        split: the training split.
        config: batch size, accumulation, seed, curriculum, and how much a chunk may hold.
        num_relations: R.
        rank, world: whose share of a step is wanted, and among how many ranks it is divided.
        equal_chunks: give all ranks the same number of chunks, by fillers; see
            :func:`~hopline.training.step_plan.plan_step`.
    """

    def __init__(
        self,
        split: Split,
        config: TrainingConfig,
        *,
        num_relations: int,
        rank: int = 0,
        world: int = 1,
        equal_chunks: bool = False,
    ) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world}")
        self._split = split
        self._config = config
        self._num_relations = num_relations
        self._rank = rank
        self._world = world
        self._equal_chunks = equal_chunks
        self.examples_per_step = config.batch_size * config.gradient_accumulation
        self._sampler = BatchSampler(
            len(split), self.examples_per_step, config.seed, eligible=split.curriculum(config.curriculum)
        )

    def step(self, step: int) -> StepBatches:
        units = self._sampler.units(step)
        sizes = self._split.sizes(units)
        plan = plan_step(
            units,
            sizes.rows,
            sizes.nodes,
            sizes.edges,
            world=self._world,
            max_rows=self._config.backward_chunk_size,
            max_nodes=self._config.backward_chunk_nodes,
            max_edges=self._config.backward_chunk_edges,
            equal_chunks=self._equal_chunks,
        )
        chunks = tuple(self._chunk(planned) for planned in plan.ranks[self._rank])
        return StepBatches(chunks, plan.rows, units)

    def _chunk(self, planned: PlannedChunk) -> Chunk:
        columns = self._split.columns(planned.units)
        return Chunk(collate(columns, num_relations=self._num_relations), 0.0 if planned.filler else 1.0)
