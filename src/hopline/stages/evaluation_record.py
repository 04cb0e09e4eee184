"""``metrics.json``: what the evaluation stage found, as it is kept with the run and published with the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from hopline.errors import DataError
from hopline.evaluation import Calibration, Evaluation
from hopline.storage import canonical_json, parse_json

__all__ = ["CalibrationRecord", "CandidateMetrics", "EvaluationRecord", "SliceMetrics", "finite"]

METRICS_FILE: Final = "metrics.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CandidateMetrics(_Record):
    """One candidate on valid."""

    step: int
    key: str
    """Where it lies under the root."""
    sha256: str
    score: float | None
    """Selection score; null where it was not a number."""
    metrics: dict[str, float]


class CalibrationRecord(_Record):
    """``confidence = sigmoid(logit / temperature + bias)``, fitted on the calibration split."""

    temperature: float
    bias: float
    n: int
    note: str

    @classmethod
    def of(cls, calibration: Calibration) -> CalibrationRecord:
        return cls(temperature=calibration.temperature, bias=calibration.bias, n=calibration.n, note=calibration.note)

    def calibration(self) -> Calibration:
        return Calibration(self.temperature, self.bias, self.n, note=self.note)


class SliceMetrics(_Record):
    """One figure of a part of the test split."""

    name: str
    n: int
    value: float | None


class EvaluationRecord(_Record):
    """The choice of a checkpoint and its measurement on test."""

    schema_version: Literal[1] = 1
    dataset_hash: str
    run_hash: str
    checkpoint_key: str
    """Where the chosen checkpoint lies under the root."""
    checkpoint_sha256: str
    step: int
    rule: str
    """How the checkpoint was chosen, in words."""
    weights: dict[str, float]
    """Metric on valid -> weight in the selection score."""
    candidates: tuple[CandidateMetrics, ...]
    calibration: CalibrationRecord
    split: Literal["test"] = "test"
    metrics: dict[str, float]
    """The chosen checkpoint on test; one that is not defined on this split is left out."""
    slices: tuple[SliceMetrics, ...]
    evaluator_digest: str
    """Code digest of the evaluation stage."""

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> EvaluationRecord:
        """Read a record. Raises DataError, naming ``source``."""
        try:
            return cls.model_validate(parse_json(data, source=source))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise DataError(f"{source}: no metrics of this version of Hopline: {where}: {first['msg']}") from None


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are numbers."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def slice_metrics(evaluation: Evaluation) -> tuple[SliceMetrics, ...]:
    """The slices of an evaluation."""
    return tuple(
        SliceMetrics(name=part.name, n=part.n, value=part.score if math.isfinite(part.score) else None)
        for part in evaluation.slices
    )
