"""Metrics as pure functions of arrays; nothing here knows of models, files or splits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "ReliabilityBin",
    "accuracy",
    "balanced_accuracy",
    "brier_score",
    "exact_match",
    "expected_calibration_error",
    "negative_log_likelihood",
    "reliability_bins",
    "set_scores",
    "sigmoid",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """One bin of a reliability diagram.

    Attributes:
        lower, upper: smallest and largest confidence in the bin.
        confidence: mean confidence.
        target: mean of what really came out; a calibrated model has ``target == confidence``.
        n: rows in the bin.
    """

    lower: float
    upper: float
    confidence: float
    target: float
    n: int


def set_scores(hits: ArrayLike, predicted: ArrayLike, gold: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Precision, recall and F1 of predicted sets, each ``[n]``, from set sizes.

    Args:
        hits: ``[n]`` size of the intersection of prediction and gold.
        predicted, gold: ``[n]`` sizes of the two sets.

    Two empty sets agree: precision, recall and F1 are 1. Where exactly one of them is empty, all three are 0.
    """
    hit, size, true = (np.asarray(x, dtype=np.float64) for x in (hits, predicted, gold))
    if np.any(hit < 0) or np.any(hit > np.minimum(size, true)):
        raise ValueError("a set cannot share more elements with another than it has")
    both_empty = (size == 0) & (true == 0)
    precision = np.where(both_empty, 1.0, hit / np.maximum(size, 1))
    recall = np.where(both_empty, 1.0, hit / np.maximum(true, 1))
    f1 = np.where(both_empty, 1.0, 2 * hit / np.maximum(size + true, 1))
    return precision, recall, f1


def exact_match(hits: ArrayLike, predicted: ArrayLike, gold: ArrayLike) -> NDArray[np.bool_]:
    """``[n]`` whether two sets are equal, from the same sizes as :func:`set_scores`."""
    hit, size, true = (np.asarray(x) for x in (hits, predicted, gold))
    equal: NDArray[np.bool_] = (hit == size) & (hit == true)
    return equal


def accuracy(predicted: ArrayLike, gold: ArrayLike) -> float:
    """Share of equal labels; NaN if there are none."""
    a, b = np.asarray(predicted), np.asarray(gold)
    return float(np.mean(a == b)) if len(a) else float("nan")


def balanced_accuracy(predicted: ArrayLike, gold: ArrayLike) -> float:
    """Mean over the classes that occur in ``gold`` of the share of them that was found; NaN if there are none."""
    a, b = np.asarray(predicted), np.asarray(gold)
    classes, index = np.unique(b, return_inverse=True)
    if not len(classes):
        return float("nan")
    found = np.bincount(index, weights=(a == b).astype(np.float64), minlength=len(classes))
    return float(np.mean(found / np.bincount(index, minlength=len(classes))))


def sigmoid(logits: ArrayLike) -> Floats:
    """``1 / (1 + exp(-x))`` without overflow; NaN stays NaN."""
    x = np.asarray(logits, dtype=np.float64)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def brier_score(confidence: ArrayLike, target: ArrayLike) -> float:
    """Mean squared distance of confidences and targets, both in [0, 1] (Brier 1950); NaN if there are none."""
    p, t = np.asarray(confidence, dtype=np.float64), np.asarray(target, dtype=np.float64)
    return float(np.mean((p - t) ** 2)) if len(p) else float("nan")


def negative_log_likelihood(logits: ArrayLike, targets: ArrayLike) -> float:
    """Mean binary cross entropy in nats of logits against targets in [0, 1]; NaN if there are none."""
    x, t = np.asarray(logits, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # a logit that is no number makes the mean none, without a warning
        return float(np.mean(np.logaddexp(0.0, x) - t * x)) if len(x) else float("nan")


def reliability_bins(confidence: ArrayLike, target: ArrayLike, bins: int = 15) -> tuple[ReliabilityBin, ...]:
    """Bins of equal mass (their sizes differ by at most one row), in order of confidence.

    Rows of equal confidence count with their common mean target, so that the bins do not depend on the order of rows. With
    fewer rows than ``bins``, each row is a bin.
    """
    p, t = np.asarray(confidence, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if p.shape != t.shape or p.ndim != 1:
        raise ValueError(f"expected two arrays of one length, found shapes {p.shape} and {t.shape}")
    if bins < 1:
        raise ValueError(f"bins is {bins}; expected at least 1")
    order = np.argsort(p, kind="stable")
    p, t = p[order], t[order]
    _, tie, sizes = np.unique(p, return_inverse=True, return_counts=True)
    t = (np.bincount(tie, weights=t, minlength=len(sizes)) / sizes)[tie]
    edges = np.linspace(0, len(p), min(bins, len(p)) + 1).round().astype(int) if len(p) else np.zeros(1, dtype=int)
    return tuple(
        ReliabilityBin(float(p[a]), float(p[b - 1]), float(p[a:b].mean()), float(t[a:b].mean()), int(b - a))
        for a, b in itertools.pairwise(edges)
    )


def expected_calibration_error(confidence: ArrayLike, target: ArrayLike, bins: int = 15) -> float:
    """Mean distance of confidence and outcome over bins of equal mass, weighted by rows (Nixon et al. 2019); NaN if none."""
    parts = reliability_bins(confidence, target, bins)
    if not parts:
        return float("nan")
    return sum(abs(part.confidence - part.target) * part.n for part in parts) / sum(part.n for part in parts)
