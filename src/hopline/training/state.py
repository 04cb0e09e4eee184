"""Where a training stands: one explicit object, saved with the weights and restored with them."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from hopline.errors import DataError
from hopline.storage import parse_json

__all__ = ["CandidateRecord", "TrainingState"]


class CandidateRecord(BaseModel):
    """A kept candidate: its step, the sha256 of its index.json, and its selection score on valid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    sha256: str
    score: float


class TrainingState(BaseModel):
    """Everything of the loop except weights, optimizer and the log.

    The data position is ``step`` itself: the batches of a step are a function of it. So are the random draws.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=False)

    step: int = 0
    """Finished optimizer steps, skipped updates included."""
    samples_seen: int = 0
    """Examples of those steps; a twin is not counted beside its example."""
    best_score: float | None = None
    best_step: int | None = None
    without_improvement: int = 0
    """Evaluations since the best."""
    last_evaluation: int | None = None
    """Step of the last finished evaluation."""
    candidates: list[CandidateRecord] = []
    """The kept candidates, best first."""
    applied_norms: list[float] = []
    """Gradient norms of the last applied updates."""
    applied_updates: int = 0
    skipped_updates: int = 0
    non_finite_updates: int = 0
    non_finite_in_a_row: int = 0
    interval: dict[str, float] = {}
    """Sums since the last log line: steps, loss and components."""
    scaler: dict[str, Any] = {}
    """State of the loss scaler."""
    stopped_early: bool = False
    """Training ended because the score did not improve any more."""
    stop_reason: str | None = None
    """Why training ended, null while it goes on."""

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> Self:
        """Read a saved state. Raises DataError, naming ``source``."""
        try:
            return cls.model_validate(parse_json(data, source=source))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise DataError(
                f"{source}: no training state of this version of Hopline: {where}: {first['msg']}"
            ) from None
