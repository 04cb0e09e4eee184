"""Whether an update is applied: never if it is not finite, and not if its norm is far above the usual."""

from __future__ import annotations

import math
from statistics import median
from typing import Literal

from hopline.config import TrainingConfig
from hopline.errors import TrainingDivergedError
from hopline.training.state import TrainingState

__all__ = ["Verdict", "judge_update"]

Verdict = Literal["apply", "spike", "non_finite"]


def judge_update(
    state: TrainingState, config: TrainingConfig, grad_norm: float, loss: float, *, scaled: bool = False
) -> Verdict:
    """Decide about one update, and keep count in ``state``.

    A norm enters the history only if its update is applied. A spike is a norm above ``skip_grad_norm`` medians of the last
    ``skip_window`` applied norms, once ``skip_minimum`` are known.

    Args:
        state: counters and history; changed in place.
        config: thresholds.
        grad_norm: global norm before clipping.
        loss: mean loss of the step.
        scaled: a loss scaler is in use; it answers an infinite norm itself, by a lower scale, so that is no sign of
            divergence as long as the loss is finite.

    Raises:
        TrainingDivergedError: ``max_non_finite`` updates in a row were not finite.
    """
    if not (math.isfinite(grad_norm) and math.isfinite(loss)):
        state.non_finite_updates += 1
        if not (scaled and math.isfinite(loss)):
            state.non_finite_in_a_row += 1
        if state.non_finite_in_a_row >= config.max_non_finite:
            raise TrainingDivergedError(
                f"training diverged: the last {state.non_finite_in_a_row} updates before step {state.step + 1} were not "
                f"finite (loss {loss}, gradient norm {grad_norm}); lower training.learning_rate (now "
                f"{config.learning_rate:g}) or training.grad_clip (now {config.grad_clip:g})"
            )
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
    return "apply"
