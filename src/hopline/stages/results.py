"""What each stage returns: typed, and the same as the one JSON object that ``--json`` prints."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, field_validator, model_serializer

from hopline.config import ExampleCounts

__all__ = ["CandidateResult", "EvaluateResult", "GenerateResult", "PublishResult", "StageResult", "TrainResult"]


class StageResult(BaseModel):
    """Base of the results of stages."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reused: bool
    """The output existed and verified, so the stage did nothing. The last key of every result."""

    @model_serializer(mode="wrap")
    def _reused_last(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        record: dict[str, Any] = serialize(self)
        if "reused" in record:
            record["reused"] = record.pop("reused")
        return record


class GenerateResult(StageResult):
    """A dataset."""

    dataset_uri: str
    dataset_hash: str
    examples: dict[str, int]
    """Examples in each split, in the order of the splits."""

    @field_validator("examples")
    @classmethod
    def _in_order(cls, value: dict[str, int]) -> dict[str, int]:
        return {split: value[split] for split in ExampleCounts.model_fields if split in value}


class CandidateResult(BaseModel):
    """One candidate checkpoint of a run; ``sha256`` is that of its index.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    uri: str
    sha256: str
    score: float | None
    """Selection score on valid, higher is better; null if it was not a number."""


class TrainResult(StageResult):
    """A finished run."""

    run_uri: str
    run_hash: str
    candidates: tuple[CandidateResult, ...]
    steps: int
    stop_reason: str


class EvaluateResult(StageResult):
    """The chosen checkpoint and its metrics on test."""

    checkpoint_uri: str
    checkpoint_sha256: str
    step: int
    metrics: dict[str, float]
    """Metric on test -> value, sorted by name."""
    report_uri: str

    @field_validator("metrics")
    @classmethod
    def _sorted(cls, value: dict[str, float]) -> dict[str, float]:
        return dict(sorted(value.items()))


class PublishResult(StageResult):
    """A published version."""

    manifest_uri: str
    manifest_hash: str
    champion: bool
    """The champion pointer names this version now."""
    reasons: tuple[str, ...]
    """Why the gate decided as it did."""
