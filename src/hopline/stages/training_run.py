"""A run of training, as every process of it carries it out; the main one writes what is kept beside the weights."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from hopline.config import GraphConfig
from hopline.datasets import Dataset
from hopline.errors import HoplineError, TerminatedError, TrainingDivergedError
from hopline.evaluation import Reasoner, run_evaluation
from hopline.model import build_model
from hopline.progress import EventSink
from hopline.stages.checkpoints import run_candidates, run_checkpoints
from hopline.stages.inputs import run_config
from hopline.stages.parents import Parent, open_parent
from hopline.stages.results import CandidateResult, TrainResult
from hopline.stages.roots import run_prefix
from hopline.stages.runs import AttemptLog, HealthLog, RunRecord, write_run
from hopline.storage import Store, sha256_bytes
from hopline.training import (
    Candidates,
    Determinism,
    GraphTrainer,
    SplitBatches,
    World,
    build_run_manifest,
    rank_device,
    resolve_device,
    seed_everything,
    settle_threads,
    setup_distributed,
)

__all__ = ["carry_out"]


def carry_out(config: GraphConfig, store: Store, dataset: Dataset, run_hash: str, sink: EventSink) -> TrainResult:
    """Train from the newest state of the run, or from its beginning, to its end; called by all processes of the run.

    Raises:
        TrainingDivergedError: the run diverged, now or in the attempt before.
        TerminatedError: SIGTERM arrived at one of the processes; the training state was saved.
        HoplineError: as the trainer and the store.
    """
    device = resolve_device("auto")

    def seed() -> Determinism:
        return seed_everything(config.training.seed, deterministic=config.training.deterministic, device=device)

    # Before rank_device, which starts CUDA: what makes cuBLAS deterministic has to be set by then.
    seed()
    world = setup_distributed(rank_device(device))
    settle_threads(world.local_size)
    with _stop_flag() as stop:
        while True:
            # Each try draws its first weights anew.
            run = _Run(config, store, dataset, run_hash, sink, world, seed())
            if run.is_sound():
                return run.train(stop)


class _Run:
    """One try at a run: everything is made anew, so that nothing of a try before is left."""

    def __init__(
        self,
        config: GraphConfig,
        store: Store,
        dataset: Dataset,
        run_hash: str,
        sink: EventSink,
        world: World,
        determinism: Determinism,
    ) -> None:
        self._config = config
        self._store = store
        self._dataset = dataset
        self._run_hash = run_hash
        self._world = world
        self._determinism = determinism
        training = config.training
        self._parent: Parent | None = open_parent(training.init_from) if training.init_from else None
        model = build_model(config, dataset.vocabulary)
        if self._parent is not None:
            self._parent.give_weights(model)
        self._health = HealthLog(sink)
        self._trainer = GraphTrainer(model, config, distributed=world.size > 1, sink=self._health)
        self._batches = SplitBatches(
            dataset.split("train"),
            training,
            num_relations=dataset.vocabulary.num_relations,
            rank=world.rank,
            world=world.size,
            equal_chunks=training.parallelism == "fsdp",
        )
        self._candidates = run_candidates(store, run_hash, run_config(config), dataset.vocabulary)
        self._checkpoints = run_checkpoints(store, run_hash)
        world.on_main(self._checkpoints.sweep)
        self._resumed_from = self._trainer.load_checkpoint(self._checkpoints)
        if self._resumed_from is None and self._parent is not None:
            self._parent.give_state(self._trainer)

    def is_sound(self) -> bool:
        """Whether the candidates that the restored state remembers are there; if not, all states are removed."""
        trainer, checkpoints = self._trainer, self._checkpoints

        def check() -> bool:
            gone = self._candidates.gone(trainer.state.candidates)
            if gone:
                trainer.emit("warning", f"the candidate of step {gone[0]} is gone; training from the beginning")
                for step in checkpoints.committed():
                    checkpoints.delete(step)
            return not gone

        return self._world.on_main(check)

    def train(self, stop: threading.Event) -> TrainResult:
        """Train to the end."""
        trainer, world = self._trainer, self._world
        attempts = AttemptLog(
            self._store,
            self._run_hash,
            examples_per_step=self._batches.examples_per_step,
            ranks=world.size,
            parallelism=self._config.training.parallelism,
        )
        if world.is_main:
            attempts.start(trainer.step, self._resumed_from)
            self._health.begin(self._store, self._run_hash, attempts.number)
        try:
            reason = trainer.train(
                self._batches,
                evaluate=_Evaluator(self._config, self._dataset, trainer, stop),
                checkpoints=self._checkpoints,
                candidates=self._candidates,
                stop=stop.is_set,
            )
            if not trainer.state.candidates:
                raise TrainingDivergedError(
                    f"no evaluation of run {self._run_hash[:12]} gave a score that is a number; lower "
                    "training.learning_rate"
                )
        except HoplineError as error:
            if world.is_main:
                attempts.end(str(error), trainer.step)
            raise
        finally:
            if world.is_main:
                self._health.write()
        return self._finish(attempts, reason)

    def _finish(self, attempts: AttemptLog, reason: str) -> TrainResult:
        trainer, state = self._trainer, self._trainer.state
        facts = build_run_manifest(trainer, self._dataset.index, self._determinism)
        facts["parent"] = None if self._parent is None else self._parent.record()
        if self._parent is None:
            facts["reasons"]["parent"] = "training began with random weights"
        log = trainer.log.to_bytes()

        def write() -> None:
            self._candidates.keep_only({candidate.step for candidate in state.candidates})
            attempts.end(reason, trainer.step)
            record = RunRecord(
                run_hash=self._run_hash,
                dataset_hash=self._dataset.dataset_hash,
                steps=state.step,
                stop_reason=reason,
                samples_seen=state.samples_seen,
                skipped_updates=state.skipped_updates,
                non_finite_updates=state.non_finite_updates,
                step_log_sha256=sha256_bytes(log),
                attempts=attempts.attempts,
                run_manifest=facts,
            )
            write_run(self._store, record, log)

        self._world.on_main(write)
        return TrainResult(
            run_uri=self._store.uri(run_prefix(self._run_hash)),
            run_hash=self._run_hash,
            candidates=_results(self._candidates, trainer),
            steps=state.step,
            stop_reason=reason,
            reused=False,
        )


def _results(candidates: Candidates, trainer: GraphTrainer) -> tuple[CandidateResult, ...]:
    return tuple(
        CandidateResult(step=c.step, uri=candidates.uri(c.step), sha256=c.sha256, score=c.score)
        for c in sorted(trainer.state.candidates, key=lambda candidate: candidate.step)
    )


class _Evaluator:
    """Measures the model on valid, all processes together."""

    def __init__(self, config: GraphConfig, dataset: Dataset, trainer: GraphTrainer, stop: threading.Event) -> None:
        self._config = config
        self._dataset = dataset
        self._trainer = trainer
        self._stop = stop

    def __call__(self, model: Reasoner) -> Mapping[str, float]:
        return run_evaluation(
            model,
            self._dataset.split("valid"),
            batch_size=self._config.evaluation.batch_size,
            device=self._trainer.device,
            bins=self._config.evaluation.calibration_bins,
            num_entities=self._dataset.vocabulary.num_entities,
            stop=self._stop.is_set,
            peers=self._trainer.world,
        ).metrics


@contextmanager
def _stop_flag() -> Iterator[threading.Event]:
    """A flag that SIGTERM and SIGINT set; training looks at it at every step, so that it ends with its state saved.

    An interruption is told as one afterwards. A second one does not wait.
    """
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    interrupted = False

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        # Not as an exception: where the interpreter is in a callback, that would be lost.
        interrupted |= number == signal.SIGINT
        flag.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, terminate) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield flag
    except TerminatedError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
