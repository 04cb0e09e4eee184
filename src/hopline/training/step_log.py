"""The log of a run: one record an interval and one an evaluation, without times, so that equal runs have equal logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hopline.errors import DataError
from hopline.storage import canonical_json

__all__ = ["StepLog"]


class StepLog:
    """Records in order of steps.

    A step record has ``step``, ``loss``, ``components``, ``learning_rate``, ``grad_norm`` and ``examples``; an evaluation
    has ``step``, ``score`` (null if it was not a number) and ``metrics``.
    """

    def __init__(self, lines: list[bytes] | None = None) -> None:
        self._lines = lines or []

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record; its numbers are finite or null."""
        self._lines.append(canonical_json(dict(record)))

    def records(self) -> list[dict[str, Any]]:
        """All records."""
        return [json.loads(line) for line in self._lines]

    def to_bytes(self) -> bytes:
        """One canonical JSON object a line."""
        return b"".join(line + b"\n" for line in self._lines)

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> StepLog:
        """Read a log. Raises DataError, naming ``source``."""
        lines = data.splitlines()
        try:
            for line in lines:
                json.loads(line)
        except ValueError:
            raise DataError(f"{source}: the step log is damaged; remove this state") from None
        return cls(lines)
