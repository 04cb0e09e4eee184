"""GraphTrainer: one optimizer step, and the training around it from a fresh model or a saved state to its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import torch

from hopline.config import GraphConfig
from hopline.errors import ConfigError
from hopline.graph import GraphBatch
from hopline.model import GraphModel
from hopline.progress import Event, EventKind, EventSink, NullSink
from hopline.training.batches import BatchSource, Chunk, StepBatches
from hopline.training.checkpoint import restore_checkpoint, save_checkpoint
from hopline.training.device import rank_device, require_device_memory, resolve_device
from hopline.training.guard import Verdict, judge_update, require_convergence
from hopline.training.loop import Evaluate, TrainingLoop
from hopline.training.losses import COMPONENTS, MultiTaskLoss
from hopline.training.optimizer import build_optimizer, set_learning_rate
from hopline.training.outputs import EvaluationEvent, TrainStepOutput
from hopline.training.precision import Precision, autocast, effective_precision, make_scaler
from hopline.training.reproducibility import seed_step
from hopline.training.schedule import learning_rate_factor
from hopline.training.state import TrainingState
from hopline.training.step_log import StepLog
from hopline.training.stores import CandidateStore, CheckpointStore
from hopline.training.supervision import build_loss_inputs

__all__ = ["GraphTrainer"]

_SHOWN_IDS: Final = 16


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

    def load_checkpoint(self, checkpoints: CheckpointStore) -> str | None:
        """Continue from the newest committed state that can be read, and return its digest; None if there is no state.

        Settings such as the learning rate and the horizon are those of this trainer's config, not of the saved state.

        Raises:
            HoplineError: there are states, and none can be read.
        """
        restored = restore_checkpoint(checkpoints, self.model, self.optimizer, sink=self._sink)
        if restored is None:
            return None
        self.state, self.log = restored.state, restored.log
        if self.state.scaler and self._scaler.is_enabled():
            self._scaler.load_state_dict(self.state.scaler)
        self._restored = True
        self.emit("note", f"continues from step {self.state.step}")
        return restored.digest

    def save_checkpoint(self, checkpoints: CheckpointStore) -> None:
        """Commit the training as it stands. Raises StoreError; the states before are untouched then."""
        self.state.scaler = self._scaler.state_dict() if self._scaler.is_enabled() else {}
        save_checkpoint(
            checkpoints,
            self.model,
            self.optimizer,
            self.state,
            self.log,
            keep=self.config.training.keep_checkpoints,
        )

    def emit(
        self,
        kind: EventKind,
        message: str,
        *,
        step: int | None = None,
        total: int | None = None,
        **values: float | int | str | None,
    ) -> None:
        """Tell the sink. A broken terminal or pipe stops no training."""
        with suppress(OSError):
            self._sink.emit(Event("train", kind, message, step, total, values))

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

    def train_step(self, batches: StepBatches) -> TrainStepOutput:
        """One optimizer step over all examples of ``batches``.

        The gradient is that of the mean loss over all scored rows, twins included, whatever the chunks are.

        Raises:
            ValueError: there is no example.
            TrainingDivergedError: too many updates in a row were not finite.
        """
        chunks, rows = batches.chunks, batches.rows
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
            figures += self._backward(chunk.batch.to(self.device, non_blocking=True), rows, chunk.weight)
        self._scaler.unscale_(self.optimizer)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(parameters, training.grad_clip)
        # The one read-back of the step.
        loss, *components, grad_norm = torch.cat([figures, norm.reshape(1).to(figures)]).tolist()
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
        )

    def _backward(self, batch: GraphBatch, rows: int, weight: float) -> torch.Tensor:
        """Forward and backward of one chunk; its share of the loss and of the components, ``[1 + COMPONENTS]``."""
        with autocast(self.effective_precision, self.device):
            forward = self.model(batch)
        inputs = build_loss_inputs(
            self.model,
            batch,
            forward,
            seed=self.config.training.seed,
            step=self.state.step,
            negatives_per_edge=self.config.loss.negatives_per_edge,
            edge_queries=self.config.loss.edge_queries,
        )
        output = self.loss(inputs, divisor=rows)
        self._scaler.scale(output.total * weight).backward()  # type: ignore[no-untyped-call]
        return weight * torch.stack([output.total.detach(), *(value.detach() for value in output.components.values())])

    def _update(self, grad_norm: float, loss: float) -> Verdict:
        overflow = self._scaler.is_enabled() and not math.isfinite(grad_norm) and self._scaler.get_scale() > 1
        verdict = judge_update(self.state, self.config.training, grad_norm, loss, overflow=overflow)
        if verdict == "apply":
            self._scaler.step(self.optimizer)
        # On every path: else the next unscale_ raises, and the scale never backs off after an overflow.
        self._scaler.update()
        return verdict

    def _report_skip(self, verdict: Verdict, chunks: Sequence[Chunk], loss: float, grad_norm: float) -> None:
        """Name the examples of an update that was not applied."""
        ids = torch.cat([chunk.batch.example_id[~chunk.batch.is_twin] for chunk in chunks]).tolist()
        shown = ", ".join(map(str, ids[:_SHOWN_IDS])) + (", ..." if len(ids) > _SHOWN_IDS else "")
        why = "its gradient norm is a spike" if verdict == "spike" else "it is not finite"
        self.emit(
            "warning",
            f"update {self.state.step} was skipped, because {why}: loss {loss:g}, gradient norm {grad_norm:g}, "
            f"examples {shown}",
        )
