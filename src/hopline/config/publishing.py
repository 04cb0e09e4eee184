"""What is measured, and what is published."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from hopline.config.base import Count, Positive, Section

__all__ = ["EvaluationConfig", "GateConfig", "PublishConfig"]


class EvaluationConfig(Section):
    """Metrics, calibration and the choice of a checkpoint."""

    batch_size: Positive = 256
    """Examples in one forward pass."""
    selection: dict[str, float] = Field(default_factory=lambda: {"overall.score": 1.0})
    """Metric names on valid and their weights; the selection score is their weighted mean."""
    calibration_bins: Annotated[int, Field(ge=2)] = 15
    """Equal-mass bins of the calibration error and the reliability diagram."""
    samples: Count = 12
    """Sample predictions in the report."""

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if not self.selection or sum(self.selection.values()) <= 0 or any(w < 0 for w in self.selection.values()):
            raise ValueError(f"selection needs weights of 0 or more with a sum above 0, found {self.selection}")
        return self


class GateConfig(Section):
    """When a new version becomes the champion."""

    minimum: dict[str, float] = Field(default_factory=dict)
    """Test metric -> least value."""
    allowed_regression: dict[str, float] = Field(default_factory=dict)
    """Test metric -> how far it may fall below the champion's on the same test split."""


_KEY_REFERENCE: Final = re.compile(r"file:[^\x00-\x1f]+|env:[A-Za-z_][A-Za-z0-9_]*")


def _where_keys_are(value: Any) -> Any:
    """Refuse what is not a place, and never show it: somebody may have written the key itself."""
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and _KEY_REFERENCE.fullmatch(item) and "PRIVATE KEY" not in item for item in value
    ):
        raise ValueError(
            "expected a list of places, each file:PATH or env:NAME; the key itself never stands in a config"
        )
    return tuple(value)  # a config is read from JSON and from Python's values


class PublishConfig(Section):
    """Publishing."""

    gate: GateConfig = GateConfig()
    """The champion gate."""
    shard_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 30)] = 1 << 30
    """Largest file of weights, in bytes."""
    signing_keys: Annotated[tuple[str, ...], BeforeValidator(_where_keys_are)] = ()
    """Where the keys are that versions are signed with: file:PATH (a file, or a folder with files *.key, such as a mounted
    secret) or env:NAME. Empty: HOPLINE_SIGNING_KEY and HOPLINE_SIGNING_KEY_FILE are asked."""
