"""From the table of results to named metrics, per-slice figures and the reliability diagram; pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hopline.evaluation.calibration import Calibration
from hopline.evaluation.metrics import (
    ReliabilityBin,
    accuracy,
    balanced_accuracy,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
    reliability_bins,
)
from hopline.evaluation.ranking import ranking_metrics
from hopline.evaluation.table import EvaluationTable
from hopline.graph import KINDS, STATUSES, QueryKind

__all__ = ["MAIN_METRIC", "Evaluation", "Slice", "summarise"]

Mask = NDArray[np.bool_]

MAIN_METRIC: Final[Mapping[str, str]] = {
    QueryKind.LINK.value: "mrr",
    QueryKind.MULTI_HOP.value: "set_f1",
    QueryKind.COUNT.value: "accuracy",
    QueryKind.AGGREGATE.value: "accuracy",
    QueryKind.BOOLEAN.value: "accuracy",
    QueryKind.RELATION.value: "accuracy",
}
"""The metric that stands for each kind of query in ``overall.score``."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One figure of one part of the rows.

    Attributes:
        kind: kind of query, or ``status``.
        by: ``all``, ``hops`` or ``status``: what the rows of the kind were parted by.
        value: the part, such as ``2`` hops or ``missing``; empty for ``all``.
        metric: name of the metric within the kind.
        score: its value.
        n: what it is a mean over: ranked answers for link queries, else rows.
    """

    kind: str
    by: Literal["all", "hops", "status"]
    value: str
    metric: str
    score: float
    n: int

    @property
    def name(self) -> str:
        """The name in the flat metrics, such as ``multi_hop.hops2.set_f1``."""
        part = {"all": "", "hops": f"hops{self.value}.", "status": f"{self.value}."}[self.by]
        return f"{self.kind}.{part}{self.metric}"


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What one checkpoint achieved on one split.

    Attributes:
        metrics: flat, by dotted name; ``<group>.n`` says over how many. A kind that the split has not got is absent.
        slices: the same figures for tables.
        reliability: bins of calibrated confidence.
        table: every row, for samples and further slices.
        calibration: the one that confidences went through.
    """

    metrics: Mapping[str, float]
    slices: tuple[Slice, ...]
    reliability: tuple[ReliabilityBin, ...]
    table: EvaluationTable
    calibration: Calibration


def summarise(table: EvaluationTable, *, calibration: Calibration | None = None, bins: int = 15) -> Evaluation:
    """Every metric of a table.

    ``overall.score`` is the unweighted mean of the main metric of each kind that is there (:data:`MAIN_METRIC`) and of
    ``status.balanced_accuracy``.

    Args:
        calibration: applied to confidence logits; None = as the model gave them.
        bins: equal-mass bins of the calibration error.
    """
    calibration = calibration or Calibration()
    slices = tuple(_slices(table))
    metrics: dict[str, float] = {}
    for part in slices:
        metrics[part.name] = part.score
        metrics[f"{part.name.rpartition('.')[0]}.n"] = float(part.n)
    has_paths = ~np.isnan(table.path_f1)
    if has_paths.any():
        metrics |= {"path.f1": float(table.path_f1[has_paths].mean()), "path.n": float(has_paths.sum())}
    logits = calibration.logits(table.confidence_logit)
    confidence = calibration.probabilities(table.confidence_logit)
    metrics |= {
        "confidence.ece": expected_calibration_error(confidence, table.correct, bins),
        "confidence.brier": brier_score(confidence, table.correct),
        "confidence.nll": negative_log_likelihood(logits, table.correct),
        "confidence.n": float(len(table)),
    }
    present = [f"{kind}.{name}" for kind, name in MAIN_METRIC.items() if f"{kind}.{name}" in metrics]
    main = [metrics[name] for name in (*present, "status.balanced_accuracy")]
    metrics |= {
        "overall.score": float(np.mean(main)),
        "overall.n": float(len(table)),
        "overall.non_finite": float((~table.finite).sum()),
    }
    return Evaluation(metrics, slices, reliability_bins(confidence, table.correct, bins), table, calibration)


def _slices(table: EvaluationTable) -> Iterator[Slice]:
    for index, kind in enumerate(KINDS):
        rows = table.kind == index
        yield from _figures(table, kind, "all", "", rows)
        for hops in np.unique(table.hops[rows]):
            yield from _figures(table, kind, "hops", str(hops), rows & (table.hops == hops))
        for status, name in enumerate(STATUSES):
            yield from _figures(table, kind, "status", name.value, rows & (table.status == status))
    n = len(table)
    yield Slice("status", "all", "", "accuracy", accuracy(table.predicted_status, table.status), n)
    yield Slice("status", "all", "", "balanced_accuracy", balanced_accuracy(table.predicted_status, table.status), n)
    for status, name in enumerate(STATUSES):
        rows = table.status == status
        if rows.any():
            recall = accuracy(table.predicted_status[rows], table.status[rows])
            yield Slice("status", "status", name.value, "recall", recall, int(rows.sum()))


def _figures(
    table: EvaluationTable, kind: QueryKind, by: Literal["all", "hops", "status"], value: str, rows: Mask
) -> Iterator[Slice]:
    """The metrics of some rows of one kind; nothing if none of them can be measured."""
    figures, n = _measure(table, kind, rows)
    for metric, score in figures.items():
        yield Slice(kind.value, by, value, metric, score, n)


def _measure(table: EvaluationTable, kind: QueryKind, rows: Mask) -> tuple[Mapping[str, float], int]:
    if kind is QueryKind.LINK:
        ranks = table.ranked[rows[table.ranked_row]]
        return {name: score for name, score in ranking_metrics(ranks).items() if name != "n"}, len(ranks)
    if kind is QueryKind.RELATION:
        rows = rows & (table.relation >= 0)
    n = int(rows.sum())
    if not n:
        return {}, 0
    if kind is QueryKind.MULTI_HOP:
        return {"set_f1": float(table.set_f1[rows].mean()), "exact": float(table.exact[rows].mean())}, n
    return {"accuracy": float(table.correct[rows].mean())}, n
