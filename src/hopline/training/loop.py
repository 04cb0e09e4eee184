"""What happens between the steps of a training: evaluations, candidates, checkpoints, the log, and the end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from hopline.errors import HoplineError, TerminatedError
from hopline.evaluation import Reasoner, selection_score
from hopline.training.batches import BatchSource
from hopline.training.candidates import Candidates
from hopline.training.checkpoint import CheckpointWriter
from hopline.training.checkpoint_store import Checkpoints
from hopline.training.device_batches import DeviceCopies, SentStep
from hopline.training.health import Clock
from hopline.training.outputs import TrainStepOutput
from hopline.training.prefetch import prefetch
from hopline.training.state import TrainingState
from hopline.training.throughput import copy_bandwidth, message_bytes

if TYPE_CHECKING:
    from hopline.training.trainer import GraphTrainer

__all__ = ["Evaluate", "TrainingLoop"]

Evaluate = Callable[[Reasoner], Mapping[str, float]]


class TrainingLoop:
    """One call of :meth:`GraphTrainer.train`. What it decides, every process of the world decides at the same step."""

    def __init__(
        self,
        trainer: GraphTrainer,
        evaluate: Evaluate | None,
        checkpoints: Checkpoints | None,
        candidates: Candidates | None,
        on_step: Callable[[TrainStepOutput], None] | None,
        limit: int,
        stop: Callable[[], bool] | None,
        batches: BatchSource,
    ) -> None:
        self._trainer = trainer
        self._world = trainer.world
        self._training = trainer.config.training
        self._evaluate = evaluate
        self._candidates = candidates
        self._on_step = on_step
        self._limit = limit
        self._stop = stop or (lambda: False)
        self._batches = batches
        model = trainer.config.model
        self._clock = Clock(
            trainer.device,
            trainer.world,
            message_bytes=message_bytes(model.layers, model.hidden_dim),
            bandwidth=copy_bandwidth(trainer.device),
        )
        keep = self._training.keep_checkpoints
        self._writer = (
            CheckpointWriter(
                checkpoints, trainer.world, keep=keep, warn=lambda message: trainer.emit("warning", message)
            )
            if checkpoints is not None
            else None
        )
        self._saved: TrainingState | None = None
        # Candidates that fell out of the best since each of the last saves: a state that is still kept may name them.
        self._dropped: deque[list[int]] = deque([[]], maxlen=keep)

    def run(self) -> None:
        """Train until there is a reason to stop; it is in the state afterwards."""
        state = self._trainer.state
        copies = DeviceCopies(self._trainer.device)

        def make(step: int) -> SentStep:
            return copies.send(self._batches.step(step))

        with prefetch(make, state.step, self._limit, depth=self._training.prefetch) as stream:
            self._settle(resumed=True)
            stopping = self._world.any(self._stop())
            while state.stop_reason is None:
                # Processes agree within a step, at no cost; one alone need not wait for that.
                if stopping or (self._world.size == 1 and self._stop()):
                    self._terminate()
                with self._clock.waiting():
                    batches = copies.receive(next(stream))
                output = self._trainer.train_step(batches, stop=self._stop)
                stopping = output.stopping
                state.samples_seen += self._batches.examples_per_step
                self._clock.step_done(
                    examples=output.examples,
                    messages=sum(len(chunk.batch.message_source) for chunk in batches.chunks if chunk.weight),
                    own_seconds=output.own_seconds,
                )
                self._note(output)
                if self._on_step is not None:
                    self._on_step(output)
                    self._agree()
                self._settle()

    def _agree(self) -> None:
        """If a process has a reason to stop, all have."""
        trainer = self._trainer
        if self._world.any(trainer.stop_reason is not None) and trainer.stop_reason is None:
            trainer.stop_reason = "stopped on another rank"

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
        if state.stop_reason is not None:
            self._save(final=True)
        elif every > 0 and state.step % every == 0 and not resumed:
            self._save()

    def _save(self, *, final: bool = False) -> None:
        """Begin to save the training as it stands; a final state is waited for.

        Raises:
            HoplineError: a final state cannot be saved. Another one only costs a warning: the state before it stays.
        """
        trainer, state = self._trainer, self._trainer.state
        if self._writer is None:
            return
        if failed := self._writer.wait():
            self._warn(failed)
        if self._saved != state:
            trainer.write_state()
            dropped, self._saved = self._dropped[0], state.model_copy(deep=True)
            full = len(self._dropped) == self._dropped.maxlen
            self._dropped.append([])
            self._writer.save(
                trainer.model, trainer.optimizer, state, trainer.log, then=lambda: self._remove(dropped if full else [])
            )
        if final and (failed := self._writer.wait()):
            raise failed

    def _remove(self, steps: list[int]) -> None:
        if self._candidates is not None:
            for step in steps:
                self._candidates.delete(step)

    def _warn(self, failed: HoplineError) -> None:
        step = self._saved.step if self._saved is not None else self._trainer.state.step
        self._saved = None
        self._trainer.emit(
            "warning", f"the training state of step {step} could not be saved; the one before stays: {failed}"
        )

    def _terminate(self) -> NoReturn:
        self._save(final=True)
        where = "saved" if self._writer is not None else "not saved: there is nowhere to save it"
        raise TerminatedError(f"training stopped after step {self._trainer.state.step}; its state was {where}")

    def _run_evaluation(self, evaluate: Evaluate) -> None:
        trainer, state = self._trainer, self._trainer.state
        try:
            metrics = {name: float(value) for name, value in evaluate(trainer.reasoner).items()}
        except TerminatedError:
            self._terminate()
        trainer.model.train()  # every part of it, whatever the evaluation has left
        # The main process decides: a difference in the last digit must not part the processes.
        metrics = self._world.share(metrics)
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
        trainer.emit("progress", "", step=state.step, total=self._limit, score=score if finite else None)
        patience = self._training.patience
        if patience is not None and state.without_improvement >= patience and state.step < self._limit:
            state.stopped_early, state.stop_reason = True, f"no better score in {patience} evaluations"

    def _keep(self, candidates: Candidates, score: float, metrics: Mapping[str, float]) -> None:
        """Keep the model if it is among the best; of equal scores the earlier step is better."""
        state, most = self._trainer.state, self._training.keep_candidates
        if len(state.candidates) >= most and score <= state.candidates[-1].score:
            return
        weights = self._trainer.weights()
        record = self._world.on_main(lambda: candidates.put(state.step, weights, score, metrics))
        others = [candidate for candidate in state.candidates if candidate.step != state.step]
        ranked = sorted([*others, record], key=lambda candidate: (-candidate.score, candidate.step))
        state.candidates = ranked[:most]
        self._dropped[-1].extend(candidate.step for candidate in ranked[most:])

    def _note(self, output: TrainStepOutput) -> None:
        """Add a step to the running interval; write a log line and an event where the interval ends."""
        trainer, sums = self._trainer, self._trainer.state.interval
        figures = {"loss": output.loss, **output.components}
        if all(map(math.isfinite, figures.values())):
            for name, value in {"steps": 1.0, **figures}.items():
                sums[name] = sums.get(name, 0.0) + value
        if output.step % self._training.log_every and output.step != self._limit:
            return
        steps = sums.pop("steps", 0.0)
        means = {name: value / steps for name, value in sums.items()}
        sums.clear()
        shown = {
            "loss": means.pop("loss", None),
            "learning_rate": output.learning_rate,
            "grad_norm": output.grad_norm if math.isfinite(output.grad_norm) else None,
        }
        trainer.log.append({"step": output.step, "components": means, "examples": output.examples, **shown})
        parts = {f"loss.{name}": value for name, value in means.items()}
        timings = self._clock.figures(self._limit - output.step)
        trainer.emit("progress", "", step=output.step, total=self._limit, **shown, **parts, **timings)
