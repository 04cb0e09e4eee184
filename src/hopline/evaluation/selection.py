"""Which checkpoint wins: a weighted mean of metrics on valid, and a rule that can be read."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hopline.errors import ConfigError, TrainingDivergedError

__all__ = ["Candidate", "Choice", "choose", "selection_score"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that may be chosen.

    Attributes:
        step: optimizer step it was saved after.
        score: :func:`selection_score` on valid; -inf where it was not a number.
        sha256: digest of the candidate's index.json, empty if it has none yet.
        metrics: its metrics on valid.
    """

    step: int
    score: float
    sha256: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate that was chosen, and why.

    Attributes:
        step, score, sha256: of the chosen candidate.
        rule: the rule in words, with what it did here.
        table: every candidate in order of steps, the chosen one among them.
    """

    step: int
    score: float
    sha256: str
    rule: str
    table: tuple[Candidate, ...]


def selection_score(metrics: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Weighted mean of the named metrics; -inf if one that counts is not a number, so that it is never best.

    Raises:
        ConfigError: a name is no metric of this split; the message names the nearest ones.
    """
    for name in weights:
        if name not in metrics:
            near = difflib.get_close_matches(name, metrics, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"evaluation.selection names {name!r}, which is no metric of the valid split; {hint}"
                f"available: {', '.join(sorted(metrics)) or 'none'}"
            )
    used = {name: weight for name, weight in weights.items() if weight > 0}
    if not used:
        raise ConfigError(f"evaluation.selection needs a weight above 0, found {dict(weights)}")
    score = sum(weight * metrics[name] for name, weight in used.items()) / sum(used.values())
    return -math.inf if math.isnan(score) else score


def choose(candidates: Sequence[Candidate], weights: Mapping[str, float]) -> Choice:
    """The candidate with the highest score; of equal ones the earliest step, which was trained least.

    Args:
        candidates: in any order; a score that is NaN counts as -inf.
        weights: of :func:`selection_score`, for the rule in words.

    Raises:
        TrainingDivergedError: there is no candidate with a score that is a number.
    """
    table = tuple(sorted(candidates, key=lambda candidate: candidate.step))
    usable = [c for c in table if not math.isnan(c.score) and c.score != -math.inf]
    if not usable:
        steps = ", ".join(str(c.step) for c in table) or "none"
        raise TrainingDivergedError(
            f"no candidate has a selection score that is a number (candidates at steps: {steps}); "
            "lower training.learning_rate, or name other metrics in evaluation.selection"
        )
    best = min(usable, key=lambda candidate: (-candidate.score, candidate.step))
    return Choice(best.step, best.score, best.sha256, _in_words(best, usable, table, weights), table)


def _in_words(
    best: Candidate, usable: Sequence[Candidate], table: Sequence[Candidate], weights: Mapping[str, float]
) -> str:
    used = {name: weight for name, weight in sorted(weights.items()) if weight > 0}
    if len(used) == 1:
        measure = next(iter(used))
    else:
        total = sum(used.values())
        measure = "the mean of " + ", ".join(f"{name} (weight {weight / total:.3g})" for name, weight in used.items())
    words = f"Highest {measure} on the valid split; equal scores go to the earlier step. "
    words += f"Step {best.step} scored {best.score:.4f}, best of {len(table)} candidate{'s' * (len(table) != 1)}"
    others = [c for c in usable if c.step != best.step]
    if others:
        second = min(others, key=lambda candidate: (-candidate.score, candidate.step))
        if second.score == best.score:
            words += f", level with step {second.step}, which is later"
        else:
            words += f", ahead of step {second.step} by {best.score - second.score:.4f}"
    left_out = len(table) - len(usable)
    if left_out:
        words += f"; {left_out} left out, because their score was not a number"
    return words + "."
