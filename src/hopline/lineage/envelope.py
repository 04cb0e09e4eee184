"""DSSE, the Dead Simple Signing Envelope: bytes, what they are, and signatures over both.

https://github.com/secure-systems-lab/dsse, protocol and envelope version 1.0.2.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from hopline.errors import DataError
from hopline.lineage.keys import PublicKey, SigningKey
from hopline.storage import canonical_json, parse_json

__all__ = ["MAX_ENVELOPE_BYTES", "Envelope", "Signature"]

MAX_ENVELOPE_BYTES: Final = 16 << 20
"""Room for a statement about the largest manifest."""
_MAX_SIGNATURES: Final = 100
"""More would only cost time: every one is tried with every key."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature. ``key_id`` is what the envelope says of its key: a hint that nothing is decided by."""

    key_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is signed, of which type, and by whom."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...] = ()

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> Self:
        """Read an envelope that a stranger may have written. Unknown keys are ignored, as the specification asks.

        Raises ``DataError``, naming ``source``, for what is no envelope. Nothing is said about the signatures.
        """
        document = parse_json(data, source=source, max_bytes=MAX_ENVELOPE_BYTES)
        if not isinstance(document, dict):
            raise DataError(f"{source}: is no signature envelope: found {type(document).__name__}, expected an object")
        signatures = document.get("signatures")
        if not isinstance(signatures, list) or not 1 <= len(signatures) <= _MAX_SIGNATURES:
            raise DataError(f"{source}: expected a list of 1 to {_MAX_SIGNATURES} signatures")
        return cls(
            _text(document, "payloadType", source),
            _bytes(document, "payload", source),
            tuple(_signature(entry, source) for entry in signatures),
        )

    def to_bytes(self) -> bytes:
        """The envelope as canonical JSON."""
        return canonical_json(
            {
                "payload": base64.b64encode(self.payload).decode(),
                "payloadType": self.payload_type,
                "signatures": [
                    {"keyid": signature.key_id, "sig": base64.b64encode(signature.value).decode()}
                    for signature in self.signatures
                ],
            }
        )

    def signed_bytes(self) -> bytes:
        """What a signature is over: the pre-authentication encoding (PAE) of type and payload."""
        kind = self.payload_type.encode()
        return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(self.payload), self.payload)

    def signed_by(self, keys: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
        """Which of ``keys`` signed, each once. Every signature is tried with every key, whatever key id it carries."""
        message = self.signed_bytes()
        return tuple(
            key
            for key in dict.fromkeys(keys)
            if any(key.holds(signature.value, message) for signature in self.signatures)
        )

    def with_signatures(self, keys: Iterable[SigningKey]) -> Envelope:
        """The envelope with a signature of each of ``keys`` added, sorted by key id."""
        message = self.signed_bytes()
        added = [Signature(key.key_id, key.sign(message)) for key in keys]
        ordered = sorted({*self.signatures, *added}, key=lambda signature: (signature.key_id, signature.value))
        return Envelope(self.payload_type, self.payload, tuple(ordered))


def _signature(entry: Any, source: str) -> Signature:
    if not isinstance(entry, dict):
        raise DataError(f"{source}: a signature is {type(entry).__name__}, expected an object")
    key_id = entry.get("keyid")
    return Signature("" if key_id is None else _text(entry, "keyid", source), _bytes(entry, "sig", source))


def _text(document: dict[str, Any], key: str, source: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise DataError(f"{source}: {key} is {type(value).__name__}, expected text")
    return value


def _bytes(document: dict[str, Any], key: str, source: str) -> bytes:
    """Standard or URL-safe base64; one way to write the same bytes, so that no two envelopes say the same."""
    text = _text(document, key, source)
    try:
        value = base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{source}: {key} is not base64") from None
    if text.encode() not in (base64.b64encode(value), base64.urlsafe_b64encode(value)):
        raise DataError(f"{source}: {key} is not base64 as an encoder writes it")
    return value
