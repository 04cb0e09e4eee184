"""The champion pointer: which version of a model is in use, moved by compare-and-swap, with its whole history kept.

``models/<name>/champion.json`` is the one object that changes. Before it is replaced, its bytes are kept under
``models/<name>/history/<their sha256>.json``, and its successor names that digest: the chain cannot be cut unseen.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, Self

from pydantic import ValidationError

from hopline.config import GateConfig
from hopline.errors import DataError, IntegrityError, NotFoundError, StoreUnavailableError
from hopline.lineage.gate import GateDecision, Measured, decide
from hopline.lineage.manifest import Manifest, explain
from hopline.lineage.names import MANIFEST
from hopline.lineage.publish import model_prefix, version_prefix
from hopline.lineage.values import Part, Sha256, Text
from hopline.storage import PreconditionFailed, Store, canonical_json, parse_json, sha256_bytes

__all__ = [
    "ChampionMove",
    "ChampionPointer",
    "champion_key",
    "history",
    "measured_at_publishing",
    "move_champion",
    "read_champion",
]

_ATTEMPTS: Final = 20
_MAX_POINTER_BYTES: Final = 1 << 20
_FIRST: Final = "this is the first champion"


class ChampionPointer(Part):
    """What ``champion.json`` says. All of it follows from what was decided, except the time."""

    schema_id: Literal["urn:hopline:champion"] = "urn:hopline:champion"
    schema_version: Literal[1] = 1
    name: Text
    """Name of the model."""
    manifest_hash: Sha256
    """The version in use."""
    manifest_uri: Text
    """Where it was published; in a root that was copied since, the hash leads to it."""
    decided_at: Text
    """Time of the decision in UTC, as ISO 8601."""
    decision: tuple[Text, ...]
    """The gate's grounds."""
    previous_version: Sha256 | None = None
    """The version that was in use before."""
    previous: Sha256 | None = None
    """sha256 of the pointer before this one; its bytes are in the history."""

    def to_bytes(self) -> bytes:
        """The canonical JSON that is stored."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> Self:
        """Read a pointer. Raises ``DataError`` if it is none, damaged, or of another schema version."""
        document = parse_json(data, source=source, max_bytes=_MAX_POINTER_BYTES)
        try:
            if not isinstance(document, dict) or document.get("schema_id") != "urn:hopline:champion":
                raise DataError(f"{source}: is no champion pointer; restore it from the history beside it")
            if document.get("schema_version") != 1:
                raise DataError(
                    f"{source}: found schema_version {document.get('schema_version')!r}, and this version of Hopline "
                    "reads 1; use a newer one"
                )
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise DataError(f"{source}: {explain(error)}; restore it from the history beside it") from None


@dataclass(frozen=True, slots=True)
class ChampionMove:
    """The outcome: ``champion`` says whether the pointer names the challenger now, ``moved`` whether this call did that."""

    champion: bool
    moved: bool
    decision: GateDecision
    compared_with: str | None
    """Manifest hash of the champion that the decision was made against."""


def champion_key(name: str) -> str:
    """Key of a model's champion pointer."""
    return f"{model_prefix(name)}/champion.json"


def read_champion(store: Store, name: str) -> ChampionPointer | None:
    """Return a model's champion pointer, None if it has none. Raises ``DataError`` if it is damaged or another model's."""
    found = _read(store, name)
    return None if found is None else found[0]


def history(store: Store, name: str) -> list[ChampionPointer]:
    """Follow the chain of pointers from the champion back to the first, newest first; empty if there is no champion.

    Raises:
        NotFoundError: a pointer of the chain is missing.
        IntegrityError: its bytes do not have the digest that its successor names.
        DataError: it is damaged.
    """
    pointer = read_champion(store, name)
    chain = []
    while pointer is not None:
        chain.append(pointer)
        if pointer.previous is None:
            break
        key = _history_key(name, pointer.previous)
        data = store.get_bytes(key, sha256=pointer.previous, max_bytes=_MAX_POINTER_BYTES)
        pointer = ChampionPointer.parse(data, source=store.uri(key))
    return chain


def measured_at_publishing(store: Store, name: str, manifest_hash: str) -> Measured:
    """Read a published version's metrics from its manifest, whose bytes must have the hash.

    Raises:
        NotFoundError: there is no such version.
        IntegrityError: its manifest was altered.
    """
    key = f"{version_prefix(name, manifest_hash)}/{MANIFEST}"
    manifest = Manifest.parse(store.get_bytes(key, sha256=manifest_hash), source=store.uri(key))
    return Measured(manifest_hash, manifest.evaluation.split_digest, manifest.evaluation.values())


def move_champion(
    store: Store,
    name: str,
    challenger: Measured,
    gate: GateConfig,
    *,
    measure: Callable[[ChampionPointer], Measured] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    attempts: int = _ATTEMPTS,
) -> ChampionMove:
    """Make a published version the champion if the gate lets it pass.

    Who loses a race reads the new champion and decides again, against that one. A version that is the champion already stays
    it. ``measure`` gives the champion's metrics, for instance measured again on the challenger's test split; by default
    those of its manifest.

    Raises:
        NotFoundError: the challenger, or the champion's manifest, is not in the store.
        DataError, IntegrityError: the pointer or the champion's manifest is damaged.
        StoreUnavailableError: the pointer kept changing, ``attempts`` times.
    """
    key = champion_key(name)
    manifest_key = f"{version_prefix(name, challenger.manifest_hash)}/{MANIFEST}"
    if store.head(manifest_key) is None:
        raise NotFoundError(f"{store.uri(manifest_key)}: there is no such version to make champion; publish it first")
    for attempt in range(attempts):
        found = _read(store, name)
        pointer = None if found is None else found[0]
        if pointer is not None and pointer.manifest_hash == challenger.manifest_hash:
            return ChampionMove(True, False, GateDecision(True, pointer.decision), pointer.previous_version)
        champion = None
        if pointer is not None:
            champion = measure(pointer) if measure else measured_at_publishing(store, name, pointer.manifest_hash)
        decision = decide(gate, challenger, champion)
        compared = None if pointer is None else pointer.manifest_hash
        if not decision.accepted:
            return ChampionMove(False, False, decision, compared)
        previous = None
        if found is not None:
            previous = sha256_bytes(found[1])
            store.put_bytes(_history_key(name, previous), found[1], if_absent=True)
        successor = ChampionPointer.known(
            {
                "name": name,
                "manifest_hash": challenger.manifest_hash,
                "manifest_uri": store.uri(manifest_key),
                "decided_at": now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "decision": decision.reasons,
                "previous_version": compared,
                "previous": previous,
            },
            otherwise=_FIRST,
        )
        try:
            store.compare_and_swap(key, successor.to_bytes(), expected_etag=None if found is None else found[2])
        except PreconditionFailed:
            time.sleep(random.uniform(0, 0.02 * (attempt + 1)))  # noqa: S311 - so that racers do not meet again
            continue
        return ChampionMove(True, True, decision, compared)
    raise StoreUnavailableError(
        f"{store.uri(key)}: other publishers moved the champion {attempts} times meanwhile; the version is published, so "
        "try again"
    )


def _read(store: Store, name: str) -> tuple[ChampionPointer, bytes, str] | None:
    key = champion_key(name)
    found = store.get_bytes_with_etag(key)
    if found is None:
        return None
    pointer = ChampionPointer.parse(found[0], source=store.uri(key))
    if pointer.name != name:
        raise IntegrityError(
            f"{store.uri(key)}: is the pointer of the model {pointer.name!r}, expected {name!r}; restore it from the history"
        )
    return pointer, found[0], found[1]


def _history_key(name: str, digest: str) -> str:
    return f"{model_prefix(name)}/history/{digest}.json"
