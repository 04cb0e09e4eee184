"""The log of a run: one record an interval and one an evaluation, without times, so that equal runs have equal logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopline.errors import DataError
from hopline.storage import canonical_json, parse_json

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
        return [_record(line) for line in self._lines]

    def to_bytes(self) -> bytes:
        """One canonical JSON object a line."""
        return b"".join(line + b"\n" for line in self._lines)

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> StepLog:
        """Read a log. Raises DataError, naming ``source``."""
        lines = data.splitlines()
        try:
            for line in lines:
                _record(line)
        except DataError as error:
            raise DataError(f"{source}: the step log is damaged ({error}); remove this state") from None
        return cls(lines)


def _record(line: bytes) -> dict[str, Any]:
    # Not json.loads: it takes the canonical form of a large float for an integer of another value.
    record = parse_json(line, source="a line")
    if not isinstance(record, dict):
        raise DataError(f"a line: found {record!r}, expected an object")
    return record
