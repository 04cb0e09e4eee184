"""The learning rate of a step: linear warm-up, then a cosine to a floor. A pure function of the step."""

from __future__ import annotations

import math

__all__ = ["learning_rate_factor", "warmup_steps"]


def warmup_steps(total_steps: int, warmup_ratio: float) -> int:
    """Steps of warm-up: the ratio of the horizon, at least one."""
    return max(1, int(total_steps * warmup_ratio))


def learning_rate_factor(step: int, *, total_steps: int, warmup_ratio: float, floor: float) -> float:
    """What the peak learning rate is multiplied with in the update that follows ``step`` finished ones.

    ``(step + 1) / warmup`` while that is below 1; then ``floor + (1 - floor) * (1 + cos(pi p)) / 2``, where ``p`` rises
    from 0 to 1 over the rest of the horizon and stays there.

    Args:
        step: finished updates, from 0.
        total_steps: horizon of the schedule, which may differ from where training stops.
        warmup_ratio: share of the horizon that warms up.
        floor: factor at and beyond the horizon.
    """
    warmup = warmup_steps(total_steps, warmup_ratio)
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))
