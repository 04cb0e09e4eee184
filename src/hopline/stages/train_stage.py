"""The training stage: from a dataset to a finished run with its candidates."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from hopline.config import ResolvedConfig
from hopline.errors import DataError, HoplineError
from hopline.progress import Event, EventSink, NullSink
from hopline.stages.checkpoints import candidate_is_there
from hopline.stages.generate_stage import open_dataset
from hopline.stages.inputs import train_request
from hopline.stages.requests import read_record, write_record
from hopline.stages.results import TrainResult
from hopline.stages.roots import dataset_prefix, open_root
from hopline.stages.runs import read_run, training_log
from hopline.stages.train_group import Group, train_together
from hopline.stages.training_run import carry_out
from hopline.stages.work import exclusive
from hopline.storage import Store
from hopline.training import require_parallelism

__all__ = ["train"]


def train(
    config: ResolvedConfig, *, root: str, dataset_uri: str, dataset_hash: str, sink: EventSink | None = None
) -> TrainResult:
    """Train on a dataset, continue a run that was stopped, or find one that is finished.

    ``cluster.processes``, or torchrun's ``PET_*`` variables, say how many processes train together; this one starts them
    and waits for them.

    Raises:
        NotFoundError, IntegrityError: the dataset or a training state is missing or altered.
        TrainingDivergedError: the run diverged, now or in the attempt before.
        TerminatedError: SIGTERM arrived; the training state was saved.
        PeerLostError: a process of the group was lost more often than ``cluster.max_restarts``.
    """
    sink = sink or NullSink()
    store = open_root(root)
    if dataset_uri != store.uri(dataset_prefix(dataset_hash)):
        raise DataError(
            f"{dataset_uri}: is not dataset {dataset_hash} of the root {store.base_uri}; generate it in this root"
        )
    request = train_request(config.config, dataset_hash)
    group = Group.of(config.config.cluster)
    if group.is_several:
        require_parallelism(config.config, "several")
    # The machines of a group work on the same request at the same time.
    alone: AbstractContextManager[None] = exclusive(store, request, sink) if group.nodes == 1 else nullcontext()
    with alone:
        sink.emit(Event("train", "start", f"run {request.hash[:12]}"))
        found = read_record(store, request, TrainResult)
        if found is not None and run_is_whole(store, found):
            sink.emit(Event("train", "done", f"reused run {request.hash[:12]}"))
            return found
        if group.is_single:
            result = carry_out(config.config, store, open_dataset(root, dataset_hash, sink=sink), request.hash, sink)
            write_record(store, request, result)
        else:
            result = train_together(group, config.config, store, dataset_hash, request, sink)
        sink.emit(Event("train", "done", f"{result.stop_reason}, {len(result.candidates)} candidates"))
        return result


def run_is_whole(store: Store, run: TrainResult) -> bool:
    """Whether everything of a finished run is there. Its record and log can be written again from its last state.

    Raises:
        IntegrityError: a candidate was altered.
    """
    try:
        training_log(store, read_run(store, run.run_hash))
    except HoplineError:
        return False
    return all(candidate_is_there(store, candidate) for candidate in run.candidates)
