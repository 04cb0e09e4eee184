"""What a key may be. Keys come from manifests and listings that strangers wrote, so a key can never leave its root."""

from __future__ import annotations

import unicodedata

from hopline.errors import ConfigError

__all__ = ["TEMPORARY_PREFIX", "is_key", "validate_key", "validate_prefix"]

TEMPORARY_PREFIX = ".tmp-"
"""File names that begin so are work in progress: never listed, never a key."""

_MAX_KEY_BYTES = 900
"""S3 allows 1,024 bytes for prefix and key together; the rest is left to the prefix of the store."""

_MAX_SEGMENT_BYTES = 255
"""The longest file name that common file systems take."""


def is_key(key: str) -> bool:
    """Whether ``validate_key`` would take ``key``."""
    return _problem(key) is None


def validate_key(key: str) -> str:
    """Return ``key`` if it names an object inside its store: a relative POSIX path of ordinary segments.

    Raises ``ConfigError`` for an empty, absolute or over-long key, for ``.`` or ``..`` or an empty segment, a backslash, a
    control character, a lone surrogate, or a segment that begins with ``.tmp-``.
    """
    problem = _problem(key)
    if problem is not None:
        raise ConfigError(
            f"key {key!r} cannot be used: {problem}; a key is a relative path such as models/umls/config.json"
        )
    return key


def validate_prefix(prefix: str) -> str:
    """Return ``prefix`` if it may begin a key: empty, or a key, or a key followed by ``/``. Raises ``ConfigError``."""
    if prefix:
        validate_key(prefix[:-1] if prefix.endswith("/") else prefix)
    return prefix


def _problem(key: str) -> str | None:
    if not key:
        return "it is empty"
    if "\\" in key:
        return "it holds a backslash"
    if key.startswith("/"):
        return "it is absolute"
    # Cc: control characters; Cs: lone surrogates, which no store can encode; Zl, Zp: they break a one-line message in two.
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in key):
        return "it holds a control character"
    if len(key.encode()) > _MAX_KEY_BYTES:
        return f"it is longer than {_MAX_KEY_BYTES} bytes"
    for segment in key.split("/"):
        if not segment:
            return "it has an empty segment"
        if segment in (".", ".."):
            return f"it has a {segment!r} segment"
        if segment.startswith(TEMPORARY_PREFIX):
            return f"names that begin with {TEMPORARY_PREFIX!r} are kept for files that are still being written"
        if len(segment.encode()) > _MAX_SEGMENT_BYTES:
            return f"a segment is longer than {_MAX_SEGMENT_BYTES} bytes"
    return None
