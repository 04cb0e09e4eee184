"""What happens between the steps of a training: evaluations, candidates, checkpoints, the log, and the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import torch

from hopline.errors import TerminatedError
from hopline.evaluation import selection_score
from hopline.model import GraphModel
from hopline.training.batches import BatchSource
from hopline.training.outputs import TrainStepOutput
from hopline.training.prefetch import prefetch
from hopline.training.state import TrainingState
from hopline.training.stores import CandidateStore, CheckpointStore

if TYPE_CHECKING:
    from hopline.training.trainer import GraphTrainer

__all__ = ["Evaluate", "TrainingLoop"]

Evaluate = Callable[[GraphModel], Mapping[str, float]]


class TrainingLoop:
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
        self._clock = Clock(trainer.device)
        self._saved: TrainingState | None = None
        self._dropped: list[int] = []  # candidates that are not among the best any more

    def run(self) -> None:
        """Train until there is a reason to stop; it is in the state afterwards."""
        state = self._trainer.state
        depth = self._training.prefetch
        with prefetch(self._batches.step, state.step, self._limit, depth=depth) as stream:
            self._settle(resumed=True)
            while state.stop_reason is None:
                if self._stop():
                    self._terminate()
                with self._clock.waiting():
                    batches = next(stream)
                output = self._trainer.train_step(batches)
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
        state = self._trainer.state
        if self._checkpoints is not None and self._saved != state:
            self._trainer.save_checkpoint(self._checkpoints)
            self._saved = state.model_copy(deep=True)
        # Only now: what continues from the state before still finds what that state remembers.
        if self._candidates is not None:
            for step in self._dropped:
                self._candidates.delete(step)
        self._dropped.clear()

    def _terminate(self) -> NoReturn:
        self._save()
        where = "saved" if self._checkpoints is not None else "not saved: there is nowhere to save it"
        raise TerminatedError(f"training stopped after step {self._trainer.state.step}; its state was {where}")

    def _run_evaluation(self, evaluate: Evaluate) -> None:
        trainer, state = self._trainer, self._trainer.state
        try:
            metrics = {name: float(value) for name, value in evaluate(trainer.model).items()}
        except TerminatedError:
            self._terminate()
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

    def _keep(self, store: CandidateStore, score: float, metrics: Mapping[str, float]) -> None:
        """Keep the model if it is among the best; of equal scores the earlier step is better."""
        state, most = self._trainer.state, self._training.keep_candidates
        if len(state.candidates) >= most and score <= state.candidates[-1].score:
            return
        record = store.put(state.step, self._trainer.model, score, metrics)
        others = [candidate for candidate in state.candidates if candidate.step != state.step]
        ranked = sorted([*others, record], key=lambda candidate: (-candidate.score, candidate.step))
        state.candidates = ranked[:most]
        self._dropped += [candidate.step for candidate in ranked[most:]]

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


class Clock:
    """Throughput, data wait, time to go and memory, since the last time they were asked for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.reset()

    def reset(self) -> None:
        """Start anew; what came before was no training."""
        self._start = time.monotonic()
        self._wait = 0.0
        self._examples = self._steps = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting for data."""
        start = time.monotonic()
        yield
        self._wait += time.monotonic() - start

    def step_done(self, examples: int) -> None:
        """Count a step."""
        self._examples += examples
        self._steps += 1

    def figures(self, steps_to_go: int) -> dict[str, float]:
        """Rows a second, share of the time that was spent waiting for data, seconds to go, and bytes on a GPU."""
        elapsed = max(time.monotonic() - self._start, 1e-9)
        values = {
            "examples_per_second": round(self._examples / elapsed, 1),
            "data_wait": round(self._wait / elapsed, 4),
            "eta_seconds": round(steps_to_go * elapsed / max(self._steps, 1), 1),
        }
        if self._device.type == "cuda":
            values["memory_bytes"] = float(torch.cuda.max_memory_allocated(self._device))
        self.reset()
        return values
