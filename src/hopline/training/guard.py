"""Whether an update is applied: never if it is not finite, and not if its norm is far above the usual."""

from __future__ import annotations

import math
from statistics import median
from typing import Literal

from hopline.config import TrainingConfig
from hopline.errors import TrainingDivergedError
from hopline.training.state import TrainingState

__all__ = ["Verdict", "judge_update", "require_convergence"]

Verdict = Literal["apply", "spike", "non_finite"]


def judge_update(
    state: TrainingState, config: TrainingConfig, grad_norm: float, loss: float, *, overflow: bool = False
) -> Verdict:
    """Decide about one update, and keep count in ``state``.

    A norm enters the history only if its update is applied. A spike is a norm above ``skip_grad_norm`` medians of the last
    ``skip_window`` applied norms, once ``skip_minimum`` are known.

    Args:
        state: counters and history; changed in place.
        config: thresholds.
        grad_norm: global norm before clipping.
        loss: mean loss of the step.
        overflow: a loss scaler is in use and can still lower its scale, which is its answer to a norm that is not finite:
            that is no sign of divergence as long as the loss is finite.
    """
    if not (math.isfinite(grad_norm) and math.isfinite(loss)):
        state.non_finite_updates += 1
        if not (overflow and math.isfinite(loss)):
            state.non_finite_in_a_row += 1
        return "non_finite"
    state.non_finite_in_a_row = 0
    known = state.applied_norms
    if (
        config.skip_grad_norm > 0
        and len(known) >= config.skip_minimum
        and grad_norm > config.skip_grad_norm * median(known)
    ):
        state.skipped_updates += 1
        return "spike"
    known.append(grad_norm)
    del known[: -config.skip_window]
    state.applied_updates += 1
    return "apply"


def require_convergence(state: TrainingState, config: TrainingConfig) -> None:
    """End a training whose updates are not finite any more.

    Raises:
        TrainingDivergedError: the last ``max_non_finite`` updates were not finite.
    """
    if state.non_finite_in_a_row >= config.max_non_finite:
        raise TrainingDivergedError(
            f"training diverged: the last {state.non_finite_in_a_row} updates up to step {state.step} were not finite; "
            f"lower training.learning_rate (now {config.learning_rate:g}) or training.grad_clip (now {config.grad_clip:g})"
        )
