"""The parts about results: the evaluation with the choice of a checkpoint, 8, and the parents, 9."""

from __future__ import annotations

import itertools
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from hopline.lineage.values import Count, Part, Sha256, Text

__all__ = [
    "SELECTION_RULE",
    "Calibration",
    "Candidate",
    "ChampionReference",
    "CheckpointReference",
    "EvaluationPart",
    "GateRecord",
    "Metric",
    "ParentsPart",
    "SelectionRule",
    "SliceRow",
]


SELECTION_RULE: Final = "highest-score-earliest-step"
"""The one rule by which a candidate is chosen; see ``SelectionRule``."""


class Metric(Part):
    """One measured figure."""

    value: float | None = None
    n: Count | None = None
    """Examples, queries or bins that it was measured on."""
    interval: tuple[float, float] | None = None
    """95% confidence interval."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise ValueError("the interval's lower end lies above its upper end")
        return self


class Candidate(Part):
    """One row of the table of candidate checkpoints."""

    step: Count
    uri: Text
    sha256: Sha256
    """Digest of the candidate's index.json, which holds the digests of its files."""
    tensors_digest: Sha256 | None = None
    """Digest of its weights; that of the chosen one is the digest of the published weights."""
    score: float | None = None
    """Selection score on valid; higher is better."""
    metrics: dict[str, float]
    """Its metrics on valid that the score is made of; one that was not a finite number is left out."""


class SelectionRule(Part):
    """How one of the candidates was chosen."""

    id: Literal["highest-score-earliest-step"] = SELECTION_RULE
    """The highest selection score on valid wins; of equal ones the earliest step; one without a score never does."""
    text: Text
    """The rule in words."""
    weights: dict[str, float]
    """Metric on valid -> its weight in the selection score, which is the weighted mean."""


class CheckpointReference(Part):
    """A checkpoint by its digest."""

    uri: Text | None = None
    step: Count | None = None
    sha256: Sha256


class Calibration(Part):
    """The confidence temperature and what it was fitted on."""

    method: Text
    temperature: Annotated[float, Field(gt=0)]
    split: Text
    n: Count | None = None


class SliceRow(Part):
    """Metrics on a part of the test split."""

    name: Text
    """Such as `hops=2`."""
    n: Count
    metrics: dict[str, float]
    """Metrics by name; one that is not defined on this slice is left out."""


class EvaluationPart(Part):
    """Part 8: what was measured, and why this checkpoint was chosen."""

    split: Text
    """The split of the metrics."""
    split_digest: Sha256
    metrics: dict[str, Metric]
    evaluator_digest: Sha256
    """Digest of the evaluation's sources."""
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1)]
    """Every candidate, by step."""
    rule: SelectionRule
    chosen: CheckpointReference
    calibration: Calibration | None = None
    slices: tuple[SliceRow, ...] | None = None

    @model_validator(mode="after")
    def _table(self) -> Self:
        steps = [candidate.step for candidate in self.candidates]
        if any(a >= b for a, b in itertools.pairwise(steps)):
            raise ValueError("the candidates are not sorted by step, or one step stands twice")
        return self

    def values(self) -> dict[str, float | None]:
        """The metrics as a flat table of name and value."""
        return {name: metric.value for name, metric in self.metrics.items()}


class ChampionReference(Part):
    """The champion that the version was compared with."""

    manifest_hash: Sha256
    split_digest: Sha256
    """Digest of the split that its metrics were measured on."""
    metrics: dict[str, float]


class GateRecord(Part):
    """The gate as it stood, and what it decided when the manifest was written."""

    minimum: dict[str, float]
    allowed_regression: dict[str, float]
    accepted: bool
    because: tuple[Text, ...]
    """The decision's grounds, one for each condition."""


class ParentsPart(Part):
    """Part 9: what came before."""

    initial_checkpoint: CheckpointReference | None = None
    """Where the first weights came from."""
    champion: ChampionReference | None = None
    gate: GateRecord
