"""Sign a version, and check its signature: the envelope ``manifest.dsse.json`` beside ``manifest.json``."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final

from hopline.errors import DataError, IntegrityError, StoreUnavailableError
from hopline.lineage.claims import Claim
from hopline.lineage.envelope import Envelope
from hopline.lineage.keys import PublicKey, SigningKey
from hopline.lineage.manifest import Manifest
from hopline.lineage.names import ENVELOPE
from hopline.lineage.statement import PAYLOAD_TYPE, statement, statement_problem
from hopline.storage import PreconditionFailed, Store, canonical_json

__all__ = ["make_envelope", "sign_version", "signature_claim"]

_NAME: Final = "signature"
_ATTEMPTS: Final = 20
_SHOWN: Final = 12
"""Digits of a key id that people compare."""


def make_envelope(manifest: Manifest, keys: Sequence[SigningKey]) -> Envelope:
    """Sign the statement about a version with every key. Equal arguments give equal bytes."""
    return Envelope(PAYLOAD_TYPE, canonical_json(statement(manifest))).with_signatures(keys)


def sign_version(store: Store, prefix: str, manifest: Manifest, keys: Sequence[SigningKey]) -> None:
    """Have the version under ``prefix`` signed by every one of ``keys``; signatures that are there stay.

    So a version that was published without a key, or before a key was replaced, gets the new one's signature beside.

    Raises:
        IntegrityError: there is an envelope, and it is damaged or about something else.
        StoreError: the store refuses or cannot be reached.
    """
    if not keys:
        return
    key, wanted = f"{prefix}/{ENVELOPE}", make_envelope(manifest, ())
    for attempt in range(_ATTEMPTS):
        found = store.get_bytes_with_etag(key)
        there = wanted if found is None else _envelope_of(wanted, found[0], store.uri(key))
        signed = set(there.signed_by(item.public for item in keys))
        missing = [item for item in keys if item.public not in signed]
        if not missing:
            return
        try:
            data = there.with_signatures(missing).to_bytes()
            store.compare_and_swap(key, data, expected_etag=None if found is None else found[1])
        except PreconditionFailed:
            time.sleep(random.uniform(0, 0.02 * (attempt + 1)))  # noqa: S311 - so that racers do not meet again
        else:
            return
    raise StoreUnavailableError(f"{store.uri(key)}: others signed {_ATTEMPTS} times meanwhile; try again")


def signature_claim(
    data: bytes | None, keys: Sequence[PublicKey], manifest_hash: str, manifest: Manifest | None
) -> Claim:
    """Check the envelope's bytes (None: there is none) with the publisher's public keys: one that signed is enough.

    Without keys only what needs none is checked: that the envelope is whole and about this version.
    """
    if data is None:
        if keys:
            detail = f"there is no {ENVELOPE}, so nothing is signed by {_names(keys)}"
            return Claim(_NAME, "FAIL", detail)
        return Claim(_NAME, "NOT CHECKED", "the version is not signed: who published it is not proved")
    try:
        envelope = Envelope.parse(data, source=ENVELOPE)
    except DataError as error:
        return Claim(_NAME, "FAIL", str(error))
    signers = envelope.signed_by(keys)
    said = ", ".join(dict.fromkeys(f"{s.key_id[:_SHOWN]!a}" for s in envelope.signatures))
    if keys and not signers:
        return Claim(_NAME, "FAIL", f"not signed by {_names(keys)}; by what it says of itself, by {said}")
    if envelope.payload_type != PAYLOAD_TYPE:
        return Claim(_NAME, "FAIL", f"what is signed is {envelope.payload_type!a}, expected {PAYLOAD_TYPE}")
    if problem := statement_problem(envelope.payload, manifest_hash, manifest, source=f"{ENVELOPE}, payload"):
        return Claim(_NAME, "FAIL", problem)
    if not keys:
        detail = f"by what it says of itself, signed by {said}; give the publisher's public key to check it"
        return Claim(_NAME, "NOT CHECKED", detail)
    if manifest is None:
        return Claim(_NAME, "NOT CHECKED", f"signed by {_names(signers)}, and what is signed cannot be read")
    return Claim(_NAME, "OK", f"manifest and {len(manifest.subjects.files)} files, signed by {_names(signers)}")


def _envelope_of(wanted: Envelope, data: bytes, uri: str) -> Envelope:
    what = "is another statement than the one about this version"
    try:
        found = Envelope.parse(data, source=uri)
        if (found.payload_type, found.payload) == (wanted.payload_type, wanted.payload):
            return found
    except DataError as error:
        what = str(error).removeprefix(f"{uri}: ")
    raise IntegrityError(f"{uri}: {what}; it was altered: restore it, or remove it to have the version signed again")


def _names(keys: Sequence[PublicKey]) -> str:
    return " and ".join(f"{key.source} ({key.key_id[:_SHOWN]})" for key in keys)
