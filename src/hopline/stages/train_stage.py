"""The training stage: from a dataset to a finished run with its candidates."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from hopline.config import GraphConfig, ResolvedConfig
from hopline.datasets import Dataset
from hopline.errors import DataError, HoplineError, TrainingDivergedError
from hopline.evaluation import run_evaluation
from hopline.model import GraphModel, build_model
from hopline.progress import Event, EventSink, NullSink
from hopline.stages.checkpoints import StoreCandidates, StoreCheckpoints, candidate_is_there
from hopline.stages.generate_stage import open_dataset
from hopline.stages.inputs import run_config, train_request
from hopline.stages.requests import read_record, write_record
from hopline.stages.results import CandidateResult, TrainResult
from hopline.stages.roots import dataset_prefix, open_root, run_prefix
from hopline.stages.runs import AttemptLog, RunRecord, write_run
from hopline.stages.work import exclusive
from hopline.storage import Store, sha256_bytes
from hopline.training import (
    Determinism,
    GraphTrainer,
    SplitBatches,
    build_run_manifest,
    resolve_device,
    seed_everything,
    settle_threads,
)

__all__ = ["train"]


def train(
    config: ResolvedConfig, *, root: str, dataset_uri: str, dataset_hash: str, sink: EventSink | None = None
) -> TrainResult:
    """Train on a dataset, continue a run that was stopped, or find one that is finished.

    Raises:
        NotFoundError, IntegrityError: the dataset or a training state is missing or altered.
        TrainingDivergedError: the run diverged, now or in the attempt before.
        TerminatedError: SIGTERM arrived; the training state was saved.
    """
    sink = sink or NullSink()
    store = open_root(root)
    if dataset_uri != store.uri(dataset_prefix(dataset_hash)):
        raise DataError(
            f"{dataset_uri}: is not dataset {dataset_hash} of the root {store.base_uri}; generate it in this root"
        )
    request = train_request(config.config, dataset_hash)
    with exclusive(store, request, sink):
        sink.emit(Event("train", "start", f"run {request.hash[:12]}"))
        found = read_record(store, request, TrainResult)
        if found is not None and all(candidate_is_there(store, candidate) for candidate in found.candidates):
            sink.emit(Event("train", "done", f"reused run {request.hash[:12]}"))
            return found
        result = _train(config.config, store, open_dataset(root, dataset_hash), request.hash, sink)
        write_record(store, request, result)
        sink.emit(Event("train", "done", f"{result.stop_reason}, {len(result.candidates)} candidates"))
        return result


def _train(config: GraphConfig, store: Store, dataset: Dataset, run_hash: str, sink: EventSink) -> TrainResult:
    settle_threads()
    determinism = seed_everything(
        config.training.seed, deterministic=config.training.deterministic, device=resolve_device("auto")
    )
    batches = SplitBatches(dataset.split("train"), config.training, num_relations=dataset.vocabulary.num_relations)
    trainer = GraphTrainer(build_model(config, dataset.vocabulary), config, sink=sink)
    candidates = StoreCandidates(store, run_hash, run_config(config), dataset.vocabulary)
    checkpoints = StoreCheckpoints(store, run_hash, candidates)
    resumed_from = trainer.load_checkpoint(checkpoints)
    if gone := candidates.gone(trainer.state.candidates):
        sink.emit(Event("train", "warning", f"the candidate of step {gone[0]} is gone; training from the beginning"))
        for step in checkpoints.committed():
            checkpoints.delete(step)
        return _train(config, store, dataset, run_hash, sink)
    attempts = AttemptLog(store, run_hash, examples_per_step=batches.examples_per_step)
    attempts.start(trainer.step, resumed_from)
    try:
        with _stop_flag() as stop:
            reason = trainer.train(
                batches,
                evaluate=_Evaluator(config, dataset, trainer, stop),
                checkpoints=checkpoints,
                candidates=candidates,
                stop=stop.is_set,
            )
    except HoplineError as error:
        attempts.end(str(error), trainer.step)
        raise
    if not trainer.state.candidates:
        message = f"no evaluation of run {run_hash[:12]} gave a score that is a number; lower training.learning_rate"
        attempts.end(message, trainer.step)
        raise TrainingDivergedError(message)
    candidates.keep_only({candidate.step for candidate in trainer.state.candidates})
    attempts.end(reason, trainer.step)
    return _finish(store, trainer, dataset, run_hash, attempts, determinism, candidates)


def _finish(
    store: Store,
    trainer: GraphTrainer,
    dataset: Dataset,
    run_hash: str,
    attempts: AttemptLog,
    determinism: Determinism,
    candidates: StoreCandidates,
) -> TrainResult:
    state, log = trainer.state, trainer.log.to_bytes()
    assert state.stop_reason is not None
    record = RunRecord(
        run_hash=run_hash,
        dataset_hash=dataset.dataset_hash,
        steps=state.step,
        stop_reason=state.stop_reason,
        samples_seen=state.samples_seen,
        skipped_updates=state.skipped_updates,
        non_finite_updates=state.non_finite_updates,
        step_log_sha256=sha256_bytes(log),
        attempts=attempts.attempts,
        run_manifest=build_run_manifest(trainer, dataset.index, determinism),
    )
    write_run(store, record, log)
    return TrainResult(
        run_uri=store.uri(run_prefix(run_hash)),
        run_hash=run_hash,
        candidates=tuple(
            # Not the URI of the training state: that tells where the root was then.
            CandidateResult(step=c.step, uri=candidates.uri(c.step), sha256=c.sha256, score=c.score)
            for c in sorted(state.candidates, key=lambda candidate: candidate.step)
        ),
        steps=state.step,
        stop_reason=state.stop_reason,
        reused=False,
    )


class _Evaluator:
    """Measures the model on valid."""

    def __init__(self, config: GraphConfig, dataset: Dataset, trainer: GraphTrainer, stop: threading.Event) -> None:
        self._config = config
        self._dataset = dataset
        self._device = trainer.device
        self._stop = stop

    def __call__(self, model: GraphModel) -> Mapping[str, float]:
        return run_evaluation(
            model,
            self._dataset.split("valid"),
            batch_size=self._config.evaluation.batch_size,
            device=self._device,
            bins=self._config.evaluation.calibration_bins,
            num_entities=self._dataset.vocabulary.num_entities,
            stop=self._stop.is_set,
        ).metrics


@contextmanager
def _stop_flag() -> Iterator[threading.Event]:
    """A flag that SIGTERM sets; training looks at it at every step, so that it ends with its state saved."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        flag.set()

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGTERM, before)
