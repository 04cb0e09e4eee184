"""What every part of a manifest has in common: frozen, strict, and no null without a reason."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

__all__ = ["MAX_INTEGER", "BigInt", "Count", "Part", "Sha256", "Text", "portable", "printable", "restored"]

MAX_INTEGER: Final = (1 << 53) - 1
"""The largest integer that every JSON reader keeps exactly; larger ones are written as strings."""

_DIGITS: Final = re.compile(r"-?[1-9][0-9]{15,}")


def _read_integer(value: Any) -> Any:
    """A string of digits stands for an integer that is too large for JSON, and for no other."""
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value) or len(value) > 1000 or abs(int(value)) <= MAX_INTEGER:
            raise ValueError("expected an integer, as a string only if it is beyond 2^53 - 1")
        return int(value)
    return value


def _one_line(value: str) -> str:
    if not value or value != value.strip() or len(value.splitlines()) != 1:
        raise ValueError("expected one line of text")
    return value


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 as 64 lower-case hex digits."""

Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]

Text = Annotated[str, AfterValidator(_one_line)]
"""One line of text, not empty."""

BigInt = Annotated[
    int,
    BeforeValidator(_read_integer),
    PlainSerializer(lambda value: value if abs(value) <= MAX_INTEGER else str(value), when_used="json"),
]
"""An integer of any size, a string in JSON where it is beyond 2^53 - 1."""


class Part(BaseModel):
    """Base of every object in a manifest.

    A field that is null says why under its own name in ``reasons``; a field that is not null has no reason. Keys that are
    not known, values of another type, NaN and infinity are refused.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    reasons: dict[str, Text] = {}
    """Field that is null -> why its value is not known, or why there is none."""

    @model_validator(mode="after")
    def _nulls_have_reasons(self) -> Self:
        nulls = {name for name in self._names() if getattr(self, name) is None}
        if silent := sorted(nulls - set(self.reasons)):
            raise ValueError(f"{silent[0]} is null without a reason")
        if stray := sorted(set(self.reasons) - nulls):
            raise ValueError(f"there is a reason for {stray[0]}, which is not null")
        return self

    @model_serializer(mode="wrap")
    def _without_empty_reasons(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if not data.get("reasons"):
            data.pop("reasons", None)
        return data

    @classmethod
    def known(cls, values: Mapping[str, Any], *, otherwise: str, reasons: Mapping[str, str] | None = None) -> Self:
        """Make the part from what is known: a field that is missing or None becomes null, with its reason or ``otherwise``.

        Raises ``pydantic.ValidationError`` for a value of the wrong type and for a missing field that cannot be null.
        """
        given = {name: value for name, value in values.items() if value is not None}
        optional = {name for name, info in cls.model_fields.items() if info.default is None}
        absent = (optional | set(values)) - set(given)
        why = {name: (reasons or {}).get(name, otherwise) for name in absent}
        return cls(**{**dict.fromkeys(absent), **given, "reasons": why})

    def _names(self) -> set[str]:
        return (set(type(self).model_fields) | set(self.model_extra or {})) - {"reasons"}


def printable(text: str) -> str:
    """Return ``text`` with its control and format characters, line ends and the like written as escapes."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def portable(value: Any) -> Any:
    """Return a JSON value that canonical JSON can hold: numbers beyond 2^53 - 1 become strings, tuples become lists.

    Raises ``ValueError`` for NaN and infinity: only their owner knows which reason the null in their place has.
    """
    if isinstance(value, Mapping):
        return {str(key): portable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [portable(item) for item in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number that a manifest can hold; numbers are finite")
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return value if abs(value) <= MAX_INTEGER else str(int(value))
    return value


def restored(value: Any) -> Any:
    """Undo ``portable``: strings of digits beyond 2^53 - 1 become integers again."""
    if isinstance(value, Mapping):
        return {key: restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restored(item) for item in value]
    if isinstance(value, str) and _DIGITS.fullmatch(value) and len(value) <= 1000 and abs(int(value)) > MAX_INTEGER:
        return int(value)
    return value
