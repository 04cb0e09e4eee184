"""Saving and restoring a training: weights and optimizer by parameter name, the loop's state, and the log so far.

A state is copied where training waits for it, and written beside the steps that follow. It does not depend on how many
processes wrote it: another number of them, sharded or not, can continue from it.
"""

from __future__ import annotations

import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from hopline.errors import DataError, HoplineError, StoreError
from hopline.progress import Event, EventSink
from hopline.storage.local import os_errors
from hopline.training.checkpoint_store import Checkpoints
from hopline.training.distributed import World
from hopline.training.state import TrainingState
from hopline.training.state_files import LOG_FILE, STATE_FILE, TEMPORARY_PREFIX, StateReader, StateWriter
from hopline.training.step_log import StepLog

__all__ = ["CheckpointWriter", "Restored", "full_weights", "restore_checkpoint", "restore_parent"]

_NEW_HEAD: Final = "link_mlp."
"""Parameters that a continued run may have more or fewer than its parent: ``training.link_head`` decides."""


class CheckpointWriter:
    """Saves states one after the other, each while training goes on.

    Args:
        checkpoints: where to.
        world: all its processes save together.
        keep: the newest states that are kept, beside the one of the best score.
        warn: hears what does not matter for the state itself, such as an old one that could not be removed.
    """

    def __init__(self, checkpoints: Checkpoints, world: World, *, keep: int, warn: Callable[[str], None]) -> None:
        self._checkpoints = checkpoints
        self._world = world
        self._keep = keep
        self._warn = warn
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: TrainingState,
        log: StepLog,
        *,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy the training as it stands, and begin to write it. The one before must have been waited for.

        Args:
            model, optimizer, state, log: the training.
            then: called on the main process after the commit, in another thread.
        """
        assert self._pending is None, "wait() for the state before"
        token = self._world.share(secrets.token_hex(8))
        documents = {STATE_FILE: state.model_dump_json().encode(), LOG_FILE: log.to_bytes()}
        # Nothing of it is asynchronous, so the copy is there when it returns.
        copy: Any = DefaultStager(StagingOptions(False, False, False, False)).stage(_tensors(model, optimizer, state))
        self._pending = self._thread.submit(self._write, copy, state.step, state.best_step, token, documents, then)

    def wait(self) -> HoplineError | None:
        """Wait for the state that is being written.

        Returns:
            Why it could not be committed, the same on every process; None if it was, or there was none. The states before
            are untouched either way.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        try:
            pending.result()
        except CheckpointException as error:
            return _cause(error)
        except HoplineError as error:
            return error
        return None

    def _write(
        self,
        tensors: dict[str, Any],
        step: int,
        best: int | None,
        token: str,
        documents: dict[str, bytes],
        then: Callable[[], None],
    ) -> None:
        writer = StateWriter(self._checkpoints, step, token, documents)
        try:
            with _quiet():
                save(
                    tensors,
                    storage_writer=writer,
                    process_group=self._world.background,
                    no_dist=self._world.size == 1,
                )
        finally:
            writer.close()
        if not self._world.is_main:
            return
        try:
            for old in self._checkpoints.committed()[: -self._keep]:
                if old != best:
                    self._checkpoints.delete(old)
            then()
        except HoplineError as error:
            self._warn(f"the state of step {step} is saved, but what it replaces could not be removed: {error}")


@dataclass(frozen=True, slots=True)
class Restored:
    """What was read back beside the weights, and the digest of the state it came from."""

    state: TrainingState
    log: StepLog
    digest: str


def restore_checkpoint(
    checkpoints: Checkpoints, model: nn.Module, optimizer: torch.optim.Optimizer, world: World, *, sink: EventSink
) -> Restored | None:
    """Restore the newest state that every process can read; one that cannot is named in a warning, and the one before tried.

    Returns:
        What was restored, None if there is no state at all.

    Raises:
        HoplineError: there are states, and none can be read: training from the start would lose them silently.
    """
    first: HoplineError | None = None
    for step in reversed(world.on_main(checkpoints.committed)):
        try:
            return _restore(checkpoints, step, model, optimizer, world, partial=False)
        except HoplineError as error:
            first = first or error
            if world.is_main:
                sink.emit(Event("train", "warning", f"the training state of step {step} cannot be used: {error}"))
    if first is not None:
        raise first
    return None


def restore_parent(
    checkpoints: Checkpoints,
    step: int,
    digest: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    world: World,
) -> Restored:
    """Take over weights and moments of another run's state, by name. Parameters of the link head may be new or gone; those
    that have no moments there, such as ones that were frozen, begin without.

    Raises:
        NotFoundError, IntegrityError: the state is missing, or not the one of ``digest``.
        DataError: it does not fit the model.
    """
    return _restore(checkpoints, step, model, optimizer, world, partial=True, expected=digest)


def full_weights(model: nn.Module, world: World) -> dict[str, Any]:
    """Whole tensors of a model that may be sharded, on the CPU of the main process; collective."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True) if world.size > 1 else None
    weights: dict[str, Any] = get_model_state_dict(model, options=options)
    return weights


def _restore(
    checkpoints: Checkpoints,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    world: World,
    *,
    partial: bool,
    expected: str | None = None,
) -> Restored:
    source = f"training state of step {step}"
    with _together(world, _temporary_folder) as temporary:
        reader = _together(world, lambda: StateReader(checkpoints, step, Path(temporary)))
        if expected is not None and reader.digest != expected:
            raise DataError(f"{checkpoints.uri(step)}: found sha256 {reader.digest}, expected {expected}")

        def documents() -> tuple[TrainingState, StepLog, set[str]]:
            try:
                state = TrainingState.parse(reader.document(STATE_FILE), source=source)
                log = StepLog.parse(reader.document(LOG_FILE), source=source)
                saved = set(reader.read_metadata().state_dict_metadata)
            except KeyError as error:
                raise DataError(f"{source}: has no file {error}; remove it") from None
            if state.step != step:
                raise DataError(f"{source}: holds the state of step {state.step}; remove it")
            return state, log, saved

        state, log, saved = _together(world, documents)
        tensors = _tensors(model, optimizer, state)
        if partial:
            tensors = _common(tensors, saved, source)

        try:
            with _quiet():
                load(tensors, storage_reader=reader, process_group=world.background, no_dist=world.size == 1)
            _put_back(model, optimizer, tensors, strict=not partial)
        except CheckpointException as error:
            raise _cause(error, source) from None
        except (RuntimeError, ValueError, KeyError) as error:
            raise _unfit(source, error) from None
    return Restored(state, log, reader.digest)


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    with os_errors("write", tempfile.gettempdir()):
        return tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX)


def _together(world: World, work: Callable[[], Any]) -> Any:
    """What ``work`` returns on this process, once it succeeded on all. Raises the first HoplineError of any."""
    result, failed = None, None
    try:
        result = work()
    except HoplineError as error:
        failed = error
    for each in world.gather(failed):
        if each is not None:
            raise each
    return result


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> dict[str, Any]:
    """Weights, and the moments once there are any: torch would make up moments that count one update too many."""
    if not state.applied_updates:
        return {"model": get_model_state_dict(model)}
    weights, optimizer_state = get_state_dict(model, optimizer)
    return {"model": weights, "moments": optimizer_state["state"]}


def _common(tensors: dict[str, Any], saved: set[str], source: str) -> dict[str, Any]:
    """What both have. Raises DataError where more differs than may."""
    here = {f"model.{name}" for name in tensors["model"]}
    there = {name for name in saved if name.startswith("model.")}
    strange = sorted(name for name in here ^ there if not name.startswith(f"model.{_NEW_HEAD}"))
    if strange:
        where = "this model alone" if strange[0] in here else "that state alone"
        raise DataError(
            f"{source}: parameter {strange[0].removeprefix('model.')} is in {where} (and {len(strange) - 1} more); "
            "training.init_from needs a state of the same architecture"
        )
    weights = {name: tensor for name, tensor in tensors["model"].items() if f"model.{name}" in saved}
    moments = {
        name: {key: value for key, value in entry.items() if f"moments.{name}.{key}" in saved}
        for name, entry in tensors.get("moments", {}).items()
    }
    return {"model": weights, "moments": {name: entry for name, entry in moments.items() if entry}}


def _put_back(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Any], *, strict: bool) -> None:
    options = StateDictOptions(strict=strict)
    if not tensors.get("moments"):
        set_model_state_dict(model, tensors["model"], options=options)
        optimizer.state.clear()
        return
    # The groups with their settings are this optimizer's own: what the config says now counts.
    full: dict[str, Any] = get_optimizer_state_dict(model, optimizer)
    moments = {"state": {**full["state"], **tensors["moments"]}, "param_groups": full["param_groups"]}
    set_state_dict(model, optimizer, model_state_dict=tensors["model"], optim_state_dict=moments, options=options)
    for name, parameter in model.named_parameters():
        if name not in tensors["moments"]:
            optimizer.state.pop(parameter, None)


def _cause(error: CheckpointException, source: str | None = None) -> HoplineError:
    """The first failure of any process, as an error for people."""
    causes = [failure[0] for failure in error.failures.values()]
    for cause in causes:
        if isinstance(cause, HoplineError):
            return cause
        if isinstance(cause, OSError):
            try:
                with os_errors("write", cause.filename or tempfile.gettempdir()):
                    raise cause
            except StoreError as plain:
                return plain
    return _unfit(source or "training state", causes[0] if causes else error)


def _unfit(source: str, error: BaseException) -> DataError:
    what = " ".join(str(error).split())[:300]
    return DataError(f"{source}: does not fit this model: {what}; remove the run's folder to train again")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings that one process saves alone, which is what is meant, and that its writer may overwrite."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch.distributed")
        yield
