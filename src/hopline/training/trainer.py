"""GraphTrainer: one optimizer step, and the training around it from a fresh model or a saved state to its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import torch

from hopline.config import GraphConfig
from hopline.errors import ConfigError
from hopline.evaluation import Reasoner
from hopline.model import GraphModel
from hopline.progress import Event, EventKind, EventSink, NullSink
from hopline.training.batches import BatchSource, Chunk, StepBatches
from hopline.training.candidates import Candidates
from hopline.training.checkpoint import CheckpointWriter, full_weights, restore_checkpoint, restore_parent
from hopline.training.checkpoint_store import Checkpoints
from hopline.training.device import rank_device, require_device_memory, resolve_device
from hopline.training.distributed import ALONE, World, current_world
from hopline.training.guard import Verdict, judge_update, require_convergence
from hopline.training.health import Stopwatch
from hopline.training.loop import Evaluate, TrainingLoop
from hopline.training.losses import COMPONENTS
from hopline.training.optimizer import build_optimizer, set_learning_rate
from hopline.training.outputs import EvaluationEvent, TrainStepOutput
from hopline.training.parallel import ParallelStep, clip_gradients, require_parallelism
from hopline.training.precision import Precision, effective_precision, make_scaler
from hopline.training.reproducibility import seed_step
from hopline.training.schedule import learning_rate_factor
from hopline.training.state import TrainingState
from hopline.training.step_log import StepLog

__all__ = ["GraphTrainer"]

_SHOWN_IDS: Final = 16


class GraphTrainer:
    """Trains a model, alone or together with the other processes of a world, which all call the same methods.

    Args:
        model: on the CPU; it is moved to the device, after a check that it fits.
        config: the whole config.
        device: ``auto``, or a device.
        total_steps: horizon of the schedule; None = ``training.max_steps``.
        distributed: train with the processes that :func:`~hopline.training.setup_distributed` has joined.
        sink: takes progress; that of the main process alone is told.

    Raises:
        RuntimeError: ``distributed``, and no processes were joined.
        ConfigError: the config does not say how processes share the training, or the model does not fit the device.

    Attributes:
        world: the processes.
        reasoner: the model as an evaluation takes it.
        state: where the training stands.
        log: what happened.
        stop_reason: set it in ``on_step`` to end after that step.
    """

    def __init__(
        self,
        model: GraphModel,
        config: GraphConfig,
        device: torch.device | str = "auto",
        *,
        total_steps: int | None = None,
        distributed: bool = False,
        sink: EventSink | None = None,
    ) -> None:
        self.world: World = current_world() if distributed else ALONE
        self.config = config
        self.total_steps = config.training.max_steps if total_steps is None else total_steps
        self.device = rank_device(resolve_device(device))
        require_parallelism(config, self.world.size)
        if config.training.freeze_query_encoder:
            model.query_encoder.requires_grad_(False)
        require_device_memory(
            model, self.device, shards=self.world.size if config.training.parallelism == "fsdp" else 1
        )
        self._step = ParallelStep(model, config, self.world, self.device)
        self.model = model
        self.reasoner: Reasoner = self._step
        self.optimizer = build_optimizer(self.model, config.training)
        self.effective_precision: Precision = effective_precision(config.training.precision, self.device)
        self.state = TrainingState()
        self.log = StepLog()
        self.stop_reason: str | None = None
        self._scaler = make_scaler(self.effective_precision, self.device)
        self._own_time = Stopwatch(self.device)
        self._sink = sink or NullSink()
        self._restored = False
        if self.effective_precision != config.training.precision:
            asked, used = config.training.precision, self.effective_precision
            self.emit("note", f"training.precision {asked} works on CUDA alone; {self.device} trains in {used}")

    @property
    def step(self) -> int:
        """Finished optimizer steps."""
        return self.state.step

    @property
    def best_score(self) -> float | None:
        return self.state.best_score

    @property
    def best_step(self) -> int | None:
        return self.state.best_step

    @property
    def skipped_updates(self) -> int:
        return self.state.skipped_updates

    @property
    def stopped_early(self) -> bool:
        """Training ended before its limit, because the score did not improve any more."""
        return self.state.stopped_early

    @property
    def evaluations(self) -> list[EvaluationEvent]:
        """The evaluations of the run so far, those of earlier attempts among them."""
        return [
            EvaluationEvent(record["step"], record["metrics"], record["score"])
            for record in self.log.records()
            if "metrics" in record
        ]

    def load_checkpoint(self, checkpoints: Checkpoints) -> str | None:
        """Continue from the newest committed state that can be read, and return its digest; None if there is no state.

        Settings such as the learning rate and the horizon are those of this trainer's config, not of the saved state.

        Raises:
            HoplineError: there are states, and none can be read.
        """
        restored = restore_checkpoint(checkpoints, self.model, self.optimizer, self.world, sink=self._sink)
        if restored is None:
            return None
        self.state, self.log = restored.state, restored.log
        if self.state.scaler and self._scaler.is_enabled():
            self._scaler.load_state_dict(self.state.scaler)
        self._restored = True
        self.emit("note", f"continues from step {self.state.step}")
        return restored.digest

    def load_parent(self, checkpoints: Checkpoints, step: int, digest: str) -> None:
        """Begin where the state of another run stands: its weights, moments, step and data position.

        Everything else begins anew: scores, candidates, patience, the log. What is frozen, how an edge is scored, the
        learning rate and the horizon are what this trainer's config says.

        Raises:
            NotFoundError, IntegrityError: there is no such state, or it is another one.
            DataError: it does not fit the model.
            ConfigError: it is at or beyond the end of this training.
        """
        parent = restore_parent(checkpoints, step, digest, self.model, self.optimizer, self.world).state
        most = self.config.training.max_steps
        if parent.step >= most:
            raise ConfigError(
                f"training.init_from: that state is at step {parent.step}, and training.max_steps is {most}; raise it"
            )
        self.state = TrainingState(
            step=parent.step, samples_seen=parent.samples_seen, applied_updates=parent.applied_updates
        )
        self.emit("note", f"continues another run from its step {parent.step}")

    def weights(self) -> dict[str, torch.Tensor]:
        """All weights, whole, on the main process; collective. They may be the model's own memory."""
        return full_weights(self.model, self.world)

    def save_checkpoint(self, checkpoints: Checkpoints) -> None:
        """Commit the training as it stands, and wait for it. Raises StoreError; the states before are untouched then."""
        self.write_state()
        keep = self.config.training.keep_checkpoints
        writer = CheckpointWriter(checkpoints, self.world, keep=keep, warn=lambda text: self.emit("warning", text))
        writer.save(self.model, self.optimizer, self.state, self.log)
        if failed := writer.wait():
            raise failed

    def write_state(self) -> None:
        """Bring into ``state`` what other objects know."""
        self.state.scaler = self._scaler.state_dict() if self._scaler.is_enabled() else {}

    def emit(
        self,
        kind: EventKind,
        message: str,
        *,
        step: int | None = None,
        total: int | None = None,
        **values: float | int | str | None,
    ) -> None:
        """Tell the sink of the main process. A broken terminal or pipe stops no training."""
        if not self.world.is_main:
            return
        with suppress(OSError):
            self._sink.emit(Event("train", kind, message, step, total, values))

    def train(
        self,
        batches: BatchSource,
        *,
        evaluate: Evaluate | None = None,
        checkpoints: Checkpoints | None = None,
        candidates: Candidates | None = None,
        on_step: Callable[[TrainStepOutput], None] | None = None,
        limit: int | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> str:
        """Train until the limit, or until patience or ``on_step`` ends it, and return why it ended.

        Args:
            batches: the data, by step.
            evaluate: measures the model on valid; None = never.
            checkpoints: keeps training states; None = none is kept.
            candidates: keeps the best models; needs ``evaluate``.
            on_step: called after each step; it may set ``stop_reason``.
            limit: step to stop at, counted from the run's start; None = ``training.max_steps``.
            stop: asked at every step and during evaluation; True saves the state and ends the training.

        Raises:
            TerminatedError: ``stop`` said so; the state was saved.
            TrainingDivergedError: too many updates in a row were not finite.
        """
        limit = self.config.training.max_steps if limit is None else limit
        if candidates is not None and evaluate is None:
            raise ConfigError("candidates are kept by their score; give an evaluation too")
        state, self.stop_reason = self.state, None
        ended = self._restored and state.stop_reason is not None and (state.stopped_early or state.step >= limit)
        if not ended:
            if not self._restored:
                state.without_improvement = 0
            state.stop_reason, state.stopped_early = None, False
            TrainingLoop(self, evaluate, checkpoints, candidates, on_step, limit, stop, batches).run()
        self._restored = False
        assert state.stop_reason is not None
        return state.stop_reason

    def train_step(self, batches: StepBatches, *, stop: Callable[[], bool] | None = None) -> TrainStepOutput:
        """One optimizer step over all examples of ``batches``, and those of the other processes.

        The gradient is that of the mean loss over all scored rows, twins included, whatever the chunks and shares are.

        Args:
            batches: this process's share.
            stop: asked once; the output tells whether it was True on any process.

        Raises:
            ValueError: there is no example.
            TrainingDivergedError: too many updates in a row were not finite.
        """
        self._own_time.start()
        chunks, rows = batches.chunks, batches.rows
        if not rows:
            raise ValueError("a step needs at least one example")
        training = self.config.training
        if not self.model.training:
            self.model.train()
        if training.freeze_query_encoder and self.model.query_encoder.training:
            self.model.query_encoder.eval()
        seed_step(training.seed, self.state.step, self.world.rank)
        learning_rate = training.learning_rate * learning_rate_factor(
            self.state.step,
            total_steps=self.total_steps,
            warmup_ratio=training.warmup_ratio,
            floor=training.final_learning_rate_ratio,
        )
        set_learning_rate(self.optimizer, learning_rate)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for parameter in parameters:
            parameter.grad = None
        figures = torch.zeros(2 + len(COMPONENTS), device=self.device)
        for chunk in chunks[:-1]:
            figures[:-1] += self._backward(chunk, rows, last=False)
        figures[:-1] += self._backward(chunks[-1], rows, last=True)
        self._scaler.unscale_(self.optimizer)
        norm = clip_gradients(parameters, training.grad_clip)
        figures[-1] = float(stop is not None and stop())
        # The one read-back of the step.
        loss, *components, stopping, grad_norm = torch.cat(
            [self.world.sum(figures), norm.reshape(1).to(figures)]
        ).tolist()
        verdict = self._update(grad_norm, loss)
        self.state.step += 1
        if verdict != "apply":
            self._report_skip(verdict, chunks, loss, grad_norm)
            require_convergence(self.state, training)
        return TrainStepOutput(
            step=self.state.step,
            loss=loss,
            components=dict(zip(COMPONENTS, components, strict=True)),
            grad_norm=grad_norm,
            learning_rate=learning_rate,
            examples=rows,
            verdict=verdict,
            stopping=stopping > 0,
            own_seconds=self._own_time.seconds(),
        )

    def _backward(self, chunk: Chunk, rows: int, *, last: bool) -> torch.Tensor:
        """Forward and backward of one chunk; its share of the loss and of the components, ``[1 + COMPONENTS]``."""
        return self._step.backward(
            chunk.batch.to(self.device, non_blocking=True),
            step=self.state.step,
            rows=rows,
            weight=chunk.weight,
            last=last,
            scaler=self._scaler,
            between=self._own_time.stop,
        )

    def _update(self, grad_norm: float, loss: float) -> Verdict:
        overflow = self._scaler.is_enabled() and not math.isfinite(grad_norm) and self._scaler.get_scale() > 1
        verdict = judge_update(self.state, self.config.training, grad_norm, loss, overflow=overflow)
        if verdict == "apply":
            self._scaler.step(self.optimizer)
        # On every path: else the next unscale_ raises, and the scale never backs off after an overflow.
        self._scaler.update()
        return verdict

    def _report_skip(self, verdict: Verdict, chunks: Sequence[Chunk], loss: float, grad_norm: float) -> None:
        """Name the examples of an update that was not applied, those of all processes."""
        mine = [chunk.batch.example_id[~chunk.batch.is_twin] for chunk in chunks if chunk.weight]
        ids = [each for share in self.world.gather([i for part in mine for i in part.tolist()]) for each in share]
        shown = ", ".join(map(str, ids[:_SHOWN_IDS])) + (", ..." if len(ids) > _SHOWN_IDS else "")
        why = "its gradient norm is a spike" if verdict == "spike" else "it is not finite"
        self.emit(
            "warning",
            f"update {self.state.step} was skipped, because {why}: loss {loss:g}, gradient norm {grad_norm:g}, "
            f"examples {shown}",
        )
