"""Where training keeps its states and candidates: two small protocols.

Folders of this machine implement them (:mod:`hopline.training.local`), and the stages put the root store behind them; the
trainer does not know which it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from hopline.model import GraphModel

__all__ = ["CandidateRecord", "CandidateStore", "CheckpointStore"]


class CandidateRecord(BaseModel):
    """A kept candidate: where it is, the sha256 of its index.json, and its figures on valid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    uri: str
    sha256: str
    score: float


class CheckpointStore(Protocol):
    """Keeps training states by step. A state is there wholly or not at all."""

    def committed(self) -> list[int]:
        """Steps of the states, rising."""

    def save(self, step: int, folder: Path) -> None:
        """Commit the files of a local folder as the state of ``step``; one that was there is replaced."""

    def load(self, step: int, folder: Path) -> str:
        """Fetch a state into an empty local folder, every byte checked against its digest, and return the state's digest.

        Raises:
            NotFoundError, IntegrityError, DataError: it is missing, altered or damaged.
        """

    def delete(self, step: int) -> None:
        """Remove a state."""


class CandidateStore(Protocol):
    """Keeps candidate models by step."""

    def put(self, step: int, model: GraphModel, score: float, metrics: Mapping[str, float]) -> CandidateRecord:
        """Keep a model; one of the same step is replaced."""

    def delete(self, step: int) -> None:
        """Let go of a candidate."""
