"""What a report shows: typed, frozen, and filled by whoever ran the evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hopline.evaluation import Answer, Calibration, Choice, ReliabilityBin, Slice

__all__ = ["EvaluationPoint", "ReportData", "Sample", "SplitSummary", "TrainingCurves"]


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """One split of the dataset.

    Attributes:
        name: of the split.
        units: examples.
        rows: rows; a missing example and its supported twin are two.
        kinds: examples by kind of query.
        statuses: rows by status.
    """

    name: str
    units: int
    rows: int
    kinds: Mapping[str, int] = field(default_factory=dict)
    statuses: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvaluationPoint:
    """One evaluation on valid during training."""

    step: int
    score: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingCurves:
    """What was logged while training; all tuples have one entry for each logged step, NaN where nothing is known.

    Attributes:
        steps: optimizer steps.
        loss: total loss.
        learning_rate: of the main group.
        components: loss components by name, before their weights.
        evaluations: in order of steps.
        grad_norm: global norm of the gradients, before clipping.
    """

    steps: tuple[int, ...] = ()
    loss: tuple[float, ...] = ()
    learning_rate: tuple[float, ...] = ()
    components: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    evaluations: tuple[EvaluationPoint, ...] = ()
    grad_norm: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One query of the test split with its answer.

    Attributes:
        kind: kind of query.
        question: in words.
        expected: the true answer in words; expected_status: the true status.
        answer: what the model says.
        score: how right it is, in [0, 1]: the set F1, or 0 or 1.
        facts: facts of the graph in words; facts_total: how many the graph has.
        nodes: how many nodes the graph has.
    """

    kind: str
    question: str
    expected: str
    expected_status: str
    answer: Answer
    score: float
    facts: tuple[str, ...]
    facts_total: int
    nodes: int

    @property
    def right(self) -> bool:
        """The answer is wholly right."""
        return self.score >= 1.0


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything a report or a model card shows.

    Attributes:
        name: of the model.
        run_hash, dataset_hash: hex digests.
        dataset_source: what the config calls the source.
        config: the whole resolved config.
        splits: of the dataset, in their order.
        choice: the chosen checkpoint, the rule, and every candidate with its metrics on valid.
        metrics, slices, reliability: of the chosen checkpoint on test, after calibration.
        calibration: fitted on the calibration split.
        curves: of the training run.
        samples: from the test split.
        parameters: of the model; None = not known.
        versions: of the software, by name.
    """

    name: str
    run_hash: str
    dataset_hash: str
    dataset_source: str
    config: Mapping[str, Any]
    splits: tuple[SplitSummary, ...]
    choice: Choice
    metrics: Mapping[str, float]
    slices: tuple[Slice, ...]
    reliability: tuple[ReliabilityBin, ...]
    calibration: Calibration
    curves: TrainingCurves = TrainingCurves()
    samples: tuple[Sample, ...] = ()
    parameters: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
