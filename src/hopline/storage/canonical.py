"""JSON at the edge: canonical bytes out (RFC 8785), and strict reading of JSON that strangers wrote."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import rfc8785

from hopline.errors import DataError

__all__ = ["MAX_JSON_BYTES", "canonical_json", "parse_json"]

MAX_JSON_BYTES = 64 << 20
"""The most bytes of JSON that ``parse_json`` takes unless it is told otherwise: 64 MiB."""

_LONG_INTEGER = re.compile(rb"\d{16}")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def canonical_json(obj: Any) -> bytes:
    """Return ``obj`` as canonical JSON (RFC 8785): the same value always gives the same bytes, fit to be hashed.

    Raises ``DataError`` for what has no canonical form: NaN, infinity, an integer beyond 2^53 - 1 (write it as a
    string), a key that is not a string, a lone surrogate, or a type that JSON does not have.
    """
    try:
        return rfc8785.dumps(obj)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"this value cannot be written as canonical JSON: {reason}") from error


def parse_json(data: bytes, *, source: str, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return the value of the JSON document ``data``; ``source`` (a file name or URI) is named in every error.

    Raises ``DataError`` if it is larger than ``max_bytes``, not UTF-8, not JSON, nested too deeply, or says what two readers
    could understand in two ways: the same key twice, NaN, infinity, a number too large for a float, a lone surrogate.
    An integer stays exact; one beyond 2^53 that is how RFC 8785 writes a float is that float.
    """
    if len(data) > max_bytes:
        raise DataError(f"{source}: {len(data)} bytes of JSON, more than the {max_bytes} that are read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is 0x{data[error.start]:02x}"
        raise DataError(f"{source}: not UTF-8 text ({found}); expected a JSON file") from error
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_constant,
            parse_float=_finite,
            parse_int=_integer if _LONG_INTEGER.search(data) else None,
        )
        if _SURROGATE_ESCAPE.search(data):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except _RefusedError as error:
        raise DataError(f"{source}: {error}") from error
    except json.JSONDecodeError as error:
        what = (
            "is empty" if not text.strip() else f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        )
        raise DataError(f"{source}: {what}") from error
    except UnicodeEncodeError as error:
        raise DataError(f"{source}: a string holds half of a surrogate pair, which is no character") from error
    except RecursionError as error:
        raise DataError(f"{source}: JSON nested too deeply to be read") from error
    except ValueError as error:  # an integer of thousands of digits: Python refuses to convert it
        raise DataError(f"{source}: {error}") from error
    return value


class _RefusedError(ValueError):
    """JSON that Python would read, and other readers would read otherwise."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RefusedError(f"the key {key!r} stands twice in one object")
            seen.add(key)
    return result


def _constant(name: str) -> float:
    raise _RefusedError(f"{name} is not JSON; numbers are finite")


def _integer(text: str) -> int | float:
    value = int(text)
    if abs(value) >= 2**53 and abs(value) < 10**21:
        number = float(text)
        if rfc8785.dumps(number) == text.encode():
            return number
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _RefusedError(f"the number {text[:40]} is too large for a float")
    return value
