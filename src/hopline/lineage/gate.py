"""Whether a challenger becomes the champion: a pure function of the gate and of what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hopline.config import GateConfig

__all__ = ["GateDecision", "Measured", "decide"]

_ROUNDING = 1e-12
"""What binary rounding may add to a difference of metrics: 0.8 - 0.7 is a little more than 0.1."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A version's metrics, and the digest of the split that they were measured on. Higher is better."""

    manifest_hash: str
    split_digest: str
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What the gate says, with one reason for each condition: what was found and what was asked."""

    accepted: bool
    reasons: tuple[str, ...]


def decide(gate: GateConfig, challenger: Measured, champion: Measured | None) -> GateDecision:
    """Let the challenger pass if every metric reaches its minimum and falls no further below the champion's than allowed.

    A metric that is missing or no number refuses. So does a champion that was measured on another split, where a
    regression is to be judged: figures of different splits do not compare. A negative allowance asks for an improvement.
    """
    refused: list[str] = []
    passed: list[str] = []
    for name, least in sorted(gate.minimum.items()):
        value = _value(challenger, name)
        if value is None:
            refused.append(f"{name} was not measured, and the gate asks for at least {least:g}")
        elif value < least:
            refused.append(f"{name} is {value:.6g}, below the minimum {least:g}")
        else:
            passed.append(f"{name} is {value:.6g}, and the minimum is {least:g}")
    if champion is None:
        refused += [
            f"{name} was not measured, so no later version could be compared"
            for name in sorted(gate.allowed_regression)
            if _value(challenger, name) is None
        ]
        passed.append("there is no champion to compare with")
    elif not gate.allowed_regression:
        passed.append("the gate asks for no comparison with the champion")
    elif champion.split_digest != challenger.split_digest:
        refused.append(
            f"the champion {champion.manifest_hash[:12]} was measured on another test split "
            f"({champion.split_digest[:12]}, not {challenger.split_digest[:12]}); measure it on this one to compare"
        )
    else:
        for name, allowed in sorted(gate.allowed_regression.items()):
            _compare(name, allowed, _value(challenger, name), _value(champion, name), refused, passed)
    return GateDecision(not refused, tuple(refused or passed))


def _compare(
    name: str, allowed: float, value: float | None, before: float | None, refused: list[str], passed: list[str]
) -> None:
    if value is None:
        refused.append(f"{name} was not measured, and the gate compares it with the champion's")
    elif before is None:
        refused.append(f"{name} of the champion was not measured, so it cannot be compared")
    elif before - value > allowed + _ROUNDING * max(1.0, abs(before), abs(value)):
        refused.append(f"{name} is {value:.6g}, more than {allowed:g} below the champion's {before:.6g}")
    else:
        passed.append(f"{name} is {value:.6g}, and the champion's {before:.6g} may be undercut by {allowed:g}")


def _value(measured: Measured, name: str) -> float | None:
    value = measured.metrics.get(name)
    return None if value is None or not math.isfinite(value) else float(value)
