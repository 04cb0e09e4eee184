"""What a training tells about itself: its steps and its evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hopline.training.guard import Verdict

__all__ = ["EvaluationEvent", "TrainStepOutput"]


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
        verdict: whether the update was applied, and if not, why.
        stopping: some process was asked to stop.
        own_seconds: what this process computed before the backward pass in which gradients are exchanged.
    """

    step: int
    loss: float
    components: Mapping[str, float]
    grad_norm: float
    learning_rate: float
    examples: int
    verdict: Verdict
    stopping: bool = False
    own_seconds: float = field(default=0.0, compare=False)

    @property
    def applied(self) -> bool:
        """The update was applied."""
        return self.verdict == "apply"


@dataclass(frozen=True, slots=True)
class EvaluationEvent:
    """One evaluation on valid during training.

    Attributes:
        step: finished steps.
        metrics: those that were finite numbers.
        score: selection score, higher is better; None if it was not a number.
    """

    step: int
    metrics: Mapping[str, float]
    score: float | None
