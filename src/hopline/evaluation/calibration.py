"""Temperature scaling of the confidence (Guo et al. 2017), with a bias only where the data ask for one (Platt 1999)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hopline.evaluation.metrics import negative_log_likelihood, sigmoid

__all__ = ["Calibration", "fit_temperature"]

_LARGEST: Final = 20.0
"""Temperatures lie within [1 / 20, 20], biases within [-20, 20]."""
_HALVINGS: Final = 50


@dataclass(frozen=True, slots=True)
class Calibration:
    """The monotone map ``confidence = sigmoid(logit / temperature + bias)``, and how it was found.

    Attributes:
        temperature: above 0, so that the order of confidences never changes.
        bias: 0 unless a bias lowered the likelihood by more than its price (see :func:`fit_temperature`).
        n: rows it was fitted on; 0 = not fitted.
        nll_before, nll_after: mean negative log likelihood on those rows, in nats; None where not fitted.
        note: one sentence for people.
    """

    temperature: float = 1.0
    bias: float = 0.0
    n: int = 0
    nll_before: float | None = None
    nll_after: float | None = None
    note: str = "not fitted: the model's own confidence"

    def logits(self, logits: ArrayLike) -> NDArray[np.float64]:
        """Calibrated logits, of the shape of ``logits``."""
        return np.asarray(logits, dtype=np.float64) / self.temperature + self.bias

    def probabilities(self, logits: ArrayLike) -> NDArray[np.float64]:
        """Calibrated confidences in [0, 1], of the shape of ``logits``."""
        return sigmoid(self.logits(logits))


def fit_temperature(logits: ArrayLike, targets: ArrayLike) -> Calibration:
    """The calibration with the least negative log likelihood on held-out rows.

    The likelihood is convex in ``1 / temperature`` and in the bias, so its derivative is bisected: no step size, no start
    value, no failure to converge. The bias is kept only if it lowers the summed likelihood by more than ``log(n) / 2`` nats
    (Schwarz 1978), which one more parameter would gain by chance.

    Args:
        logits: ``[n]`` confidence logits; rows that are not finite are left out.
        targets: ``[n]`` outcomes in [0, 1], soft ones included.

    Returns:
        The identity where all targets are equal or fewer than two rows are left: there is nothing to fit then.
    """
    x, t = np.asarray(logits, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if x.shape != t.shape or x.ndim != 1:
        raise ValueError(f"expected two arrays of one length, found shapes {x.shape} and {t.shape}")
    finite = np.isfinite(x) & np.isfinite(t)
    x, t = x[finite], t[finite]
    if len(x) < 2:
        return Calibration(note=f"not fitted: {len(x)} rows in the calibration split")
    if np.ptp(t) == 0:
        return Calibration(
            note=f"not fitted: all {len(x)} rows of the calibration split have the same outcome, {t[0]:g}"
        )

    def scale_slope(scale: float, bias: float) -> float:
        return float(np.mean((sigmoid(scale * x + bias) - t) * x))

    def best_bias(scale: float) -> float:
        return _root(lambda bias: float(np.mean(sigmoid(scale * x + bias) - t)), -_LARGEST, _LARGEST)

    def exp_root(slope: Callable[[float], float]) -> float:
        edge = math.log(_LARGEST)
        return math.exp(_root(lambda log_scale: slope(math.exp(log_scale)), -edge, edge))

    plain_scale = exp_root(lambda scale: scale_slope(scale, 0.0))
    # By the envelope theorem the slope along the best biases is the partial slope, so the search stays one-dimensional.
    biased_scale = exp_root(lambda scale: scale_slope(scale, best_bias(scale)))
    bias = best_bias(biased_scale)
    before = negative_log_likelihood(x, t)
    plain = negative_log_likelihood(plain_scale * x, t)
    biased = negative_log_likelihood(biased_scale * x + bias, t)
    if (plain - biased) * len(x) > math.log(len(x)) / 2:
        note = (
            f"temperature {1 / biased_scale:.3g} and bias {bias:+.3g}, fitted on {len(x)} rows of the calibration split"
        )
        return Calibration(1 / biased_scale, bias, len(x), before, biased, note)
    note = f"temperature {1 / plain_scale:.3g}, fitted on {len(x)} rows of the calibration split; a bias did not help"
    return Calibration(1 / plain_scale, 0.0, len(x), before, plain, note)


def _root(slope: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses 0 between ``low`` and ``high``; the nearer end if it does not."""
    if slope(low) >= 0:
        return low
    if slope(high) <= 0:
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2
