"""What a step trains on: a pure function of the step, so that the data position of a run is one integer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hopline.config import TrainingConfig
from hopline.datasets import BatchSampler, Split, take_rows
from hopline.graph import GraphBatch, collate

__all__ = ["BatchSource", "SplitBatches"]


class BatchSource(Protocol):
    """Batches by step."""

    examples_per_step: int
    """Examples of one optimizer step; a twin counts with its example."""

    def chunks(self, step: int) -> Sequence[GraphBatch]:
        """The examples of the update that follows ``step`` finished ones, in parts that fit in memory one at a time."""


class SplitBatches:
    """Batches drawn from a split.

    Args:
        split: the training split.
        config: batch size, accumulation, seed, curriculum, and how many rows a part may have.
        num_relations: R.
    """

    def __init__(self, split: Split, config: TrainingConfig, *, num_relations: int) -> None:
        self._split = split
        self._num_relations = num_relations
        self._chunk_rows = config.backward_chunk_size
        self.examples_per_step = config.batch_size * config.gradient_accumulation
        self._sampler = BatchSampler(
            len(split), self.examples_per_step, config.seed, eligible=split.curriculum(config.curriculum)
        )

    def chunks(self, step: int) -> list[GraphBatch]:
        columns = self._split.columns(self._sampler.units(step))
        if columns.num_rows <= self._chunk_rows:
            return [collate(columns, num_relations=self._num_relations)]
        starts = chunk_starts(columns.values["is_twin"] != 0, self._chunk_rows)
        return [
            collate(take_rows(columns.values, columns.offsets, np.arange(a, b)), num_relations=self._num_relations)
            for a, b in zip(starts, [*starts[1:], columns.num_rows], strict=True)
        ]


def chunk_starts(is_twin: NDArray[np.bool_], most: int) -> list[int]:
    """Where parts of at most ``most`` rows begin, a twin never apart from its example (a pair alone may be larger)."""
    starts = [0]
    for row in np.flatnonzero(~is_twin).tolist():
        rows = 2 if row + 1 < len(is_twin) and is_twin[row + 1] else 1
        if row + rows - starts[-1] > most and row > starts[-1]:
            starts.append(row)
    return starts
