"""The training loop: steps, evaluations, candidates and checkpoints around one explicit state."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import torch

from hopline.config import GraphConfig
from hopline.errors import ConfigError, TerminatedError
from hopline.evaluation import selection_score
from hopline.graph import GraphBatch
from hopline.model import GraphModel
from hopline.progress import Event, EventSink, NullSink
from hopline.training.batches import BatchSource
from hopline.training.checkpoint import restore_checkpoint, save_checkpoint
from hopline.training.device import rank_device, require_device_memory, resolve_device
from hopline.training.guard import judge_update
from hopline.training.losses import COMPONENTS, MultiTaskLoss
from hopline.training.optimizer import build_optimizer, set_learning_rate
from hopline.training.precision import Precision, autocast, effective_precision, make_scaler
from hopline.training.prefetch import prefetch
from hopline.training.reproducibility import seed_step
from hopline.training.schedule import learning_rate_factor
from hopline.training.state import TrainingState
from hopline.training.step_log import StepLog
from hopline.training.stores import CandidateStore, CheckpointStore
from hopline.training.supervision import build_loss_inputs

__all__ = ["EvaluationEvent", "GraphTrainer", "TrainStepOutput"]

Evaluate = Callable[[GraphModel], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class TrainStepOutput:
    """One optimizer step.

    Attributes:
        step: finished steps, this one included.
        loss: mean over the scored rows.
        components: unweighted means over the scored rows.
        grad_norm: global norm before clipping.
        learning_rate: peak group's rate that this update used.
        examples: scored rows, twins included.
        applied: the update was applied; False if it was a spike or not finite.
    """

    step: int
    loss: float
    components: Mapping[str, float]
    grad_norm: float
    learning_rate: float
    examples: int
    applied: bool = True


@dataclass(frozen=True, slots=True)
class EvaluationEvent:
    """One evaluation on valid during training."""

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    score: float = math.nan


class GraphTrainer:
    """Trains a model in this process.

    Args:
        model: on the CPU; it is moved to the device, after a check that it fits.
        config: the whole config.
        device: ``auto``, or a device.
        total_steps: horizon of the schedule; None = ``training.max_steps``.
        sink: takes progress.

    Attributes:
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
        sink: EventSink | None = None,
    ) -> None:
        self.config = config
        self.total_steps = config.training.max_steps if total_steps is None else total_steps
        self.device = rank_device(resolve_device(device))
        if config.training.freeze_query_encoder:
            model.query_encoder.requires_grad_(False)
        require_device_memory(model, self.device)
        self.model = model.to(self.device)
        self.optimizer = build_optimizer(self.model, config.training)
        self.loss = MultiTaskLoss(config.loss)
        self.effective_precision: Precision = effective_precision(config.training.precision, self.device)
        self.state = TrainingState()
        self.log = StepLog()
        self.stop_reason: str | None = None
        self._scaler = make_scaler(self.effective_precision, self.device)
        self._sink = sink or NullSink()
        self._restored = False

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
        return self.state.stop_reason is not None and self.state.stop_reason.startswith("no better score")

    def restore(self, checkpoints: CheckpointStore) -> str | None:
        """Continue from the newest committed state, if there is one, and return its digest.

        Raises:
            HoplineError: there are states, and none can be read.
        """
        restored = restore_checkpoint(checkpoints, self.model, self.optimizer, sink=self._sink)
        if restored is None:
            return None
        self.state, self.log = restored.state, restored.log
        if self.state.scaler:
            self._scaler.load_state_dict(self.state.scaler)
        self._restored = True
        self._sink.emit(Event("train", "note", f"continues from step {self.state.step}"))
        return restored.digest

    def train(
        self,
        batches: BatchSource,
        *,
        evaluate: Evaluate | None = None,
        checkpoints: CheckpointStore | None = None,
        candidates: CandidateStore | None = None,
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
        self.stop_reason = None
        if not self._restored:
            self.state.stop_reason, self.state.without_improvement = None, 0
        self._restored = False
        if self.state.stop_reason is None:
            loop = _Loop(self, evaluate, checkpoints, candidates, on_step, limit, stop, batches)
            loop.run()
        assert self.state.stop_reason is not None
        return self.state.stop_reason

    def train_step(self, chunks: Sequence[GraphBatch]) -> TrainStepOutput:
        """One optimizer step over all examples of ``chunks``.

        The gradient is that of the mean loss over all scored rows, twins included, whatever the chunks are.

        Raises:
            ValueError: there is no example.
            TrainingDivergedError: too many updates in a row were not finite.
        """
        rows = sum(chunk.num_graphs for chunk in chunks)
        if not rows:
            raise ValueError("a step needs at least one example")
        training = self.config.training
        self.model.train()
        if training.freeze_query_encoder:
            self.model.query_encoder.eval()
        seed_step(training.seed, self.state.step)
        learning_rate = training.learning_rate * learning_rate_factor(
            self.state.step,
            total_steps=self.total_steps,
            warmup_ratio=training.warmup_ratio,
            floor=training.final_learning_rate_ratio,
        )
        set_learning_rate(self.optimizer, learning_rate)
        self.optimizer.zero_grad(set_to_none=True)
        figures = torch.zeros(1 + len(COMPONENTS), device=self.device)
        for chunk in chunks:
            figures += self._backward(chunk.to(self.device, non_blocking=True), rows)
        self._scaler.unscale_(self.optimizer)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(parameters, training.grad_clip)
        # The one read-back of the step.
        loss, *components, grad_norm = torch.cat([figures, norm.reshape(1).to(figures)]).tolist()
        applied = self._update(grad_norm, loss)
        self.state.step += 1
        return TrainStepOutput(
            step=self.state.step,
            loss=loss,
            components=dict(zip(COMPONENTS, components, strict=True)),
            grad_norm=grad_norm,
            learning_rate=learning_rate,
            examples=rows,
            applied=applied,
        )

    def save(self, checkpoints: CheckpointStore) -> None:
        """Commit the training as it stands."""
        self.state.scaler = self._scaler.state_dict() if self._scaler.is_enabled() else {}
        save_checkpoint(
            checkpoints,
            self.model,
            self.optimizer,
            self.state,
            self.log,
            keep=self.config.training.keep_checkpoints,
        )

    def _backward(self, batch: GraphBatch, rows: int) -> torch.Tensor:
        """Forward and backward of one chunk; its share of the loss and of the components, ``[1 + COMPONENTS]``."""
        with autocast(self.effective_precision, self.device):
            forward = self.model(batch)
        inputs = build_loss_inputs(
            self.model,
            batch,
            forward,
            seed=self.config.training.seed,
            step=self.state.step,
        )
        output = self.loss(inputs, divisor=rows)
        self._scaler.scale(output.total).backward()  # type: ignore[no-untyped-call]
        return torch.stack([output.total.detach(), *(value.detach() for value in output.components.values())])

    def _update(self, grad_norm: float, loss: float) -> bool:
        scaled = self._scaler.is_enabled()
        verdict = judge_update(self.state, self.config.training, grad_norm, loss, scaled=scaled)
        if verdict == "apply":
            self._scaler.step(self.optimizer)
        # On every path: else the next unscale_ raises, and the scale never backs off after an overflow.
        self._scaler.update()
        return verdict == "apply"


class _Loop:
    """One call of :meth:`GraphTrainer.train`."""

    def __init__(
        self,
        trainer: GraphTrainer,
        evaluate: Evaluate | None,
        checkpoints: CheckpointStore | None,
        candidates: CandidateStore | None,
        on_step: Callable[[TrainStepOutput], None] | None,
        limit: int,
        stop: Callable[[], bool] | None,
        batches: BatchSource,
    ) -> None:
        self._trainer = trainer
        self._training = trainer.config.training
        self._evaluate = evaluate
        self._checkpoints = checkpoints
        self._candidates = candidates
        self._on_step = on_step
        self._limit = limit
        self._stop = stop or (lambda: False)
        self._batches = batches
        self._clock = _Clock()

    def run(self) -> None:
        state = self._trainer.state
        with prefetch(self._batches.chunks, state.step, self._limit) as stream:
            self._settle(resumed=True)
            while state.stop_reason is None:
                if self._stop():
                    self._terminate()
                chunks = next(stream)
                self._clock.data_ready()
                output = self._trainer.train_step(chunks)
                state.samples_seen += self._batches.examples_per_step
                self._clock.step_done(output.examples)
                self._note(output)
                if self._on_step is not None:
                    self._on_step(output)
                self._settle()

    def _settle(self, *, resumed: bool = False) -> None:
        """What is due between two steps: an evaluation, the end, a checkpoint. In this order, also after a resume."""
        state = self._trainer.state
        last = state.step >= self._limit or self._trainer.stop_reason is not None
        every = self._training.evaluation_every
        due = last or (every > 0 and state.step > 0 and state.step % every == 0)
        if self._evaluate is not None and due and state.last_evaluation != state.step:
            self._run_evaluation(self._evaluate)
        if state.stop_reason is None and last:
            state.stop_reason = self._trainer.stop_reason or f"reached step {state.step}"
        every = self._training.checkpoint_every
        due = state.stop_reason is not None or (every > 0 and state.step % every == 0)
        if due and not (resumed and state.stop_reason is None):
            self._save()

    def _save(self) -> None:
        if self._checkpoints is not None:
            self._trainer.save(self._checkpoints)

    def _terminate(self) -> None:
        self._save()
        where = "saved" if self._checkpoints is not None else "not saved: there is nowhere to save it"
        raise TerminatedError(f"training stopped after step {self._trainer.state.step}; its state was {where}")

    def _run_evaluation(self, evaluate: Evaluate) -> None:
        trainer, state = self._trainer, self._trainer.state
        try:
            metrics = {name: float(value) for name, value in evaluate(trainer.model).items()}
        except TerminatedError:
            self._terminate()
            raise
        self._clock.reset()
        score = selection_score(metrics, trainer.config.evaluation.selection)
        finite = math.isfinite(score)
        trainer.log.append(
            {
                "step": state.step,
                "score": score if finite else None,
                "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
            }
        )
        state.last_evaluation = state.step
        if finite and (state.best_score is None or score > state.best_score):
            state.best_score, state.best_step, state.without_improvement = score, state.step, 0
        else:
            state.without_improvement += 1
        if finite and self._candidates is not None:
            self._keep(self._candidates, score, metrics)
        trainer._sink.emit(
            Event("train", "progress", "", state.step, self._limit, {"score": score if finite else None})
        )
        patience = self._training.patience
        if patience is not None and state.without_improvement >= patience and state.step < self._limit:
            state.stop_reason = f"no better score in {patience} evaluations"

    def _keep(self, store: CandidateStore, score: float, metrics: Mapping[str, float]) -> None:
        """Keep the model if it is among the best; of equal scores the earlier step is better."""
        state, most = self._trainer.state, self._training.keep_candidates
        if len(state.candidates) >= most and score <= state.candidates[-1].score:
            return
        record = store.put(state.step, self._trainer.model, score, metrics)
        others = [candidate for candidate in state.candidates if candidate.step != state.step]
        ranked = sorted([*others, record], key=lambda candidate: (-candidate.score, candidate.step))
        state.candidates = ranked[:most]
        for dropped in ranked[most:]:
            store.delete(dropped.step)

    def _note(self, output: TrainStepOutput) -> None:
        """Add a step to the running interval; write a log line and an event where the interval ends."""
        trainer, sums = self._trainer, self._trainer.state.interval
        for name, value in {"steps": 1.0, "loss": output.loss, **output.components}.items():
            if math.isfinite(value):
                sums[name] = sums.get(name, 0.0) + value
        if output.step % self._training.log_every and output.step != self._limit:
            return
        steps = sums.pop("steps")
        means = {name: value / steps for name, value in sums.items()}
        sums.clear()
        loss = means.pop("loss", None)
        grad_norm = output.grad_norm if math.isfinite(output.grad_norm) else None
        trainer.log.append(
            {
                "step": output.step,
                "loss": loss,
                "components": means,
                "learning_rate": output.learning_rate,
                "grad_norm": grad_norm,
                "examples": output.examples,
            }
        )
        values = self._clock.figures(self._limit - output.step)
        values |= {"loss": loss, "learning_rate": output.learning_rate, "grad_norm": grad_norm}
        with suppress(OSError):  # a broken terminal stops no training
            trainer._sink.emit(Event("train", "progress", "", output.step, self._limit, values))


class _Clock:
    """Throughput, data wait and time to go, since the last time they were asked for."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start anew; what came before was no training."""
        self._start = self._mark = time.monotonic()
        self._wait = 0.0
        self._examples = self._steps = 0

    def data_ready(self) -> None:
        self._wait += time.monotonic() - self._mark

    def step_done(self, examples: int) -> None:
        self._mark = time.monotonic()
        self._examples += examples
        self._steps += 1

    def figures(self, steps_to_go: int) -> dict[str, float | int | str | bool | None]:
        elapsed = max(time.monotonic() - self._start, 1e-9)
        values: dict[str, float | int | str | bool | None] = {
            "examples_per_second": round(self._examples / elapsed, 1),
            "data_wait": round(self._wait / elapsed, 4),
            "eta_seconds": round(steps_to_go * elapsed / max(self._steps, 1), 1),
        }
        self.reset()
        return values
