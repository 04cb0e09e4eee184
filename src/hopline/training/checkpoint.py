"""Saving and restoring a training: weights and optimizer by parameter name, the loop's state, and the log so far.

The tensors are a ``torch.distributed.checkpoint``, whose metadata is a pickle: it is read only after the store has checked
every byte against the digests that were committed with it.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from hopline.errors import DataError, HoplineError
from hopline.model import GraphModel
from hopline.progress import Event, EventSink
from hopline.storage.local import os_errors
from hopline.training.state import TrainingState
from hopline.training.step_log import StepLog
from hopline.training.stores import CheckpointStore

__all__ = ["Restored", "restore_checkpoint", "save_checkpoint"]

_PREFIX: Final = "hopline-checkpoint-"
_TENSORS: Final = "tensors"
_STATE: Final = "state.json"
_LOG: Final = "steps.jsonl"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was read back beside the weights, and the digest of the state it came from."""

    state: TrainingState
    log: StepLog
    digest: str


def save_checkpoint(
    store: CheckpointStore,
    model: GraphModel,
    optimizer: torch.optim.Optimizer,
    state: TrainingState,
    log: StepLog,
    *,
    keep: int,
) -> None:
    """Commit the training as it stands, then drop all but the newest ``keep`` states.

    Raises:
        StoreError: the store refuses, is full or cannot be reached; the states before are untouched.
    """
    with os_errors("write", tempfile.gettempdir()), tempfile.TemporaryDirectory(prefix=_PREFIX) as temporary:
        folder = Path(temporary)
        with _plain_errors():
            save(_tensors(model, optimizer, state), checkpoint_id=folder / _TENSORS, no_dist=True)
        (folder / _STATE).write_text(state.model_dump_json(), encoding="utf-8")
        (folder / _LOG).write_bytes(log.to_bytes())
        store.save(state.step, folder)
    for step in store.committed()[:-keep]:
        store.delete(step)


def restore_checkpoint(
    store: CheckpointStore, model: GraphModel, optimizer: torch.optim.Optimizer, *, sink: EventSink
) -> Restored | None:
    """Restore the newest state that can be read; one that cannot is named in a warning, and the one before is tried.

    Returns:
        What was restored, None if there is no state at all.

    Raises:
        HoplineError: there are states, and none can be read: training from the start would lose them silently.
    """
    first: HoplineError | None = None
    for step in reversed(store.committed()):
        try:
            return _restore(store, step, model, optimizer)
        except HoplineError as error:
            first = first or error
            sink.emit(Event("train", "warning", f"the training state of step {step} cannot be used: {error}"))
    if first is not None:
        raise first
    return None


def _restore(store: CheckpointStore, step: int, model: GraphModel, optimizer: torch.optim.Optimizer) -> Restored:
    source = f"training state of step {step}"
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as temporary:
        folder = Path(temporary)
        digest = store.load(step, folder)
        try:
            state = TrainingState.parse((folder / _STATE).read_bytes(), source=source)
            if state.step != step:
                raise DataError(f"{source}: holds the state of step {state.step}; remove it")
            log = StepLog.parse((folder / _LOG).read_bytes(), source=source)
            tensors = _tensors(model, optimizer, state)
            with _plain_errors():
                load(tensors, checkpoint_id=folder / _TENSORS, no_dist=True)
            _put_back(model, optimizer, tensors)
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            what = " ".join(str(error).split())[:300]
            raise DataError(
                f"{source}: does not fit this model: {what}; remove the run's folder to train again"
            ) from None
    return Restored(state, log, digest)


def _tensors(model: GraphModel, optimizer: torch.optim.Optimizer, state: TrainingState) -> dict[str, Any]:
    """Weights, and the moments once there are any: torch would make up moments that count one update too many."""
    if not state.applied_updates:
        return {"model": get_model_state_dict(model)}
    weights, optimizer_state = get_state_dict(model, optimizer)
    return {"model": weights, "moments": optimizer_state["state"]}


def _put_back(model: GraphModel, optimizer: torch.optim.Optimizer, tensors: dict[str, Any]) -> None:
    if "moments" not in tensors:
        set_model_state_dict(model, tensors["model"])
        optimizer.state.clear()
        return
    # The groups with their settings are this optimizer's own: what the config says now counts.
    groups = get_optimizer_state_dict(model, optimizer)["param_groups"]
    moments = {"state": tensors["moments"], "param_groups": groups}
    set_state_dict(model, optimizer, model_state_dict=tensors["model"], optim_state_dict=moments)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What torch raises beside ``Exception`` (so that no handler of errors sees it) becomes a RuntimeError of one line.

    Its warning that one process saves alone is dropped: that is what is meant.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch.distributed")
        try:
            yield
        except CheckpointException as error:
            causes = [failure[0] for failure in error.failures.values()]
            for cause in causes:
                if isinstance(cause, OSError):
                    raise cause from None
            raise RuntimeError(str(causes[0]) if causes else str(error)) from error
