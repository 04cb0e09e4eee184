"""Run a model over one split: batches in, one table of results out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hopline.errors import DataError, TerminatedError
from hopline.evaluation.calibration import Calibration
from hopline.evaluation.outcomes import ModelOutput, judge
from hopline.evaluation.summary import Evaluation, summarise
from hopline.evaluation.table import TableBuilder
from hopline.graph import GraphBatch

__all__ = ["Reasoner", "Rows", "evaluation_mode", "run_evaluation"]


class Reasoner(Protocol):
    """What is asked of a model: a torch module with a forward pass over a batch."""

    def modules(self) -> Iterator[nn.Module]: ...

    def forward_batch(self, batch: GraphBatch) -> ModelOutput: ...


class Rows(Protocol):
    """What is asked of a split: its size, and any of its units as a batch."""

    def __len__(self) -> int: ...

    def batch(self, units: NDArray[np.int64]) -> GraphBatch: ...


def run_evaluation(
    model: Reasoner,
    split: Rows,
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    calibration: Calibration | None = None,
    bins: int = 15,
    num_entities: int = 0,
    limit: int | None = None,
    stop: Callable[[], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Measure a model on a split; nothing but this split is read, and the model is left as it was.

    The same model and split give the same figures every time on the same machine. Another ``batch_size`` gives the same
    up to the floating-point sums inside the model.

    Args:
        model: on ``device``.
        split: the split, and the only data there is.
        batch_size: units in one forward pass.
        calibration: what confidence logits go through; None = nothing.
        bins: equal-mass bins of the calibration error.
        num_entities: size of the vocabulary where entities have identities, else 0: what link queries are ranked
            against.
        limit: at most this many units, spread evenly over the split; None = all.
        stop: asked before each batch; True ends the evaluation.
        progress: told (units done, units to do) after each batch.

    Raises:
        DataError: the split has no examples.
        TerminatedError: ``stop`` said so; there is no figure for half a split.
    """
    units = _units(len(split), limit)
    if not len(units):
        raise DataError("the split that should be measured has no examples; give it some in dataset.examples")
    builder = TableBuilder()
    # Not inference_mode: what a model caches in here may be used by a training step afterwards.
    with evaluation_mode(model), torch.no_grad():
        for start in range(0, len(units), batch_size):
            if stop is not None and stop():
                raise TerminatedError(f"evaluation stopped after {start} of {len(units)} examples; nothing was kept")
            part = units[start : start + batch_size]
            batch = split.batch(part).to(device)
            builder.add(batch, judge(batch, model.forward_batch(batch), num_entities=num_entities), part)
            if progress is not None:
                progress(start + len(part), len(units))
        table = builder.build()
    return summarise(table, calibration=calibration, bins=bins)


@contextmanager
def evaluation_mode(model: Reasoner) -> Iterator[None]:
    """Every module in evaluation mode, and each back in its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    _set_modes((module, False) for module, _ in modes)
    try:
        yield
    finally:
        _set_modes(modes)


def _set_modes(modes: Iterable[tuple[Any, bool]]) -> None:
    for module, training in modes:
        module.training = training


def _units(length: int, limit: int | None) -> NDArray[np.int64]:
    if limit is None or limit >= length:
        return np.arange(length, dtype=np.int64)
    return np.arange(limit, dtype=np.int64) * length // limit
