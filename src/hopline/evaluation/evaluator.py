"""Run a model over one split: batches in, one table of results out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hopline.errors import DataError, TerminatedError
from hopline.evaluation.calibration import Calibration
from hopline.evaluation.outcomes import ModelOutput, judge
from hopline.evaluation.summary import Evaluation, summarise
from hopline.evaluation.table import TablePiece, build_table, table_piece
from hopline.graph import GraphBatch

__all__ = ["Peers", "Reasoner", "Rows", "evaluation_mode", "run_evaluation"]


class Reasoner(Protocol):
    """What is asked of a model: a torch module with a forward pass over a batch."""

    def modules(self) -> Iterator[nn.Module]: ...

    def forward_batch(self, batch: GraphBatch) -> ModelOutput: ...


class Rows(Protocol):
    """What is asked of a split: its size, and any of its units as a batch."""

    def __len__(self) -> int: ...

    def batch(self, units: NDArray[np.int64]) -> GraphBatch: ...


class Peers(Protocol):
    """The processes that measure together; every method is called by all of them."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def any(self, flag: bool) -> bool: ...

    def gather(self, item: Any) -> list[Any]: ...


class _Alone:
    """One process."""

    rank, size = 0, 1

    def any(self, flag: bool) -> bool:
        return flag

    def gather(self, item: Any) -> list[Any]:
        return [item]


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
    peers: Peers | None = None,
) -> Evaluation:
    """Measure a model on a split; nothing but this split is read, and the model is left as it was.

    The same model and split give the same figures every time on the same machine. Another ``batch_size`` gives the same
    up to the floating-point sums inside the model. Peers share the batches, each batch being the one that a process alone
    would make, so that their number changes nothing.

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
        peers: the processes that have the same model, or each a part of it; all get the whole result. None = this one alone.

    Raises:
        DataError: the split has no examples.
        TerminatedError: ``stop`` said so; there is no figure for half a split.
    """
    units = _units(len(split), limit)
    if not len(units):
        raise DataError("the split that should be measured has no examples; give it some in dataset.examples")
    peers = _Alone() if peers is None else peers
    starts = range(0, len(units), batch_size)
    pieces: list[tuple[int, TablePiece]] = []
    # Not inference_mode: what a model caches in here may be used by a training step afterwards.
    with evaluation_mode(model), torch.no_grad():
        # A process that has no batch left in the last round takes the first again: a sharded model runs on all or on none.
        for first in range(0, len(starts), peers.size):
            if stop is not None and peers.any(stop()):
                done = min(first * batch_size, len(units))
                raise TerminatedError(f"evaluation stopped after {done} of {len(units)} examples; nothing was kept")
            number = first + peers.rank
            start = starts[number] if number < len(starts) else 0
            part = units[start : start + batch_size]
            batch = split.batch(part).to(device)
            judged = judge(batch, model.forward_batch(batch), num_entities=num_entities)
            if number < len(starts):
                pieces.append((number, table_piece(batch, judged, part)))
            if progress is not None:
                progress(min((first + peers.size) * batch_size, len(units)), len(units))
    everything = sorted(
        (piece for share in peers.gather([(n, p.to_host()) for n, p in pieces]) for piece in share), key=itemgetter(0)
    )
    return summarise(build_table([piece for _, piece in everything]), calibration=calibration, bins=bins)


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
