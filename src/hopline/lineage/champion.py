"""The champion pointer: which version of a model is in use, moved by compare-and-swap, with its whole history kept.

``models/<name>/champion.json`` is the one object that changes. Before it is replaced, its bytes are kept under
``models/<name>/history/<their sha256>.json``, and its successor names that digest: the chain cannot be cut unseen.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self

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
    "FoundPointer",
    "champion_key",
    "find_pointer",
    "history",
    "history_before",
    "measured_at_publishing",
    "move_champion",
    "read_champion",
    "replace_pointer",
    "version_manifest_key",
    "wait_for_racers",
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
    """The gate's grounds, or the reason that a person gave."""
    action: Literal["publish", "promote", "rollback"] = "publish"
    """What moved the pointer: the gate after a publication, or a person."""
    by: Text = "the gate"
    """Who moved it."""
    withdrawn: tuple[Sha256, ...] = ()
    """Versions that a person went back from, sorted: the gate does not make them champion again, a promotion does."""
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


@dataclass(frozen=True, slots=True)
class FoundPointer:
    """A pointer as it was read: with its bytes, and the etag by which it can be replaced."""

    pointer: ChampionPointer
    data: bytes
    etag: str


def champion_key(name: str) -> str:
    """Key of a model's champion pointer."""
    return f"{model_prefix(name)}/champion.json"


def version_manifest_key(name: str, manifest_hash: str) -> str:
    """Key of a version's manifest."""
    return f"{version_prefix(name, manifest_hash)}/{MANIFEST}"


def read_champion(store: Store, name: str) -> ChampionPointer | None:
    """Return a model's champion pointer, None if it has none. Raises ``DataError`` if it is damaged or another model's."""
    found = find_pointer(store, name)
    return None if found is None else found.pointer


def history(store: Store, name: str) -> list[ChampionPointer]:
    """Follow the chain of pointers from the champion back to the first, newest first; empty if there is no champion.

    Raises:
        NotFoundError: a pointer of the chain is missing.
        IntegrityError: its bytes do not have the digest that its successor names.
        DataError: it is damaged.
    """
    pointer = read_champion(store, name)
    return [] if pointer is None else [pointer, *history_before(store, pointer)]


def history_before(store: Store, pointer: ChampionPointer) -> list[ChampionPointer]:
    """Follow the chain from the one before a pointer back to the first, newest first. Raises as ``history``."""
    chain: list[ChampionPointer] = []
    while (digest := pointer.previous) is not None:
        key = _history_key(pointer.name, digest)
        data = store.get_bytes(key, sha256=digest, max_bytes=_MAX_POINTER_BYTES)
        pointer = ChampionPointer.parse(data, source=store.uri(key))
        chain.append(pointer)
    return chain


def measured_at_publishing(store: Store, name: str, manifest_hash: str) -> Measured:
    """Read a published version's metrics from its manifest, whose bytes must have the hash.

    Raises:
        NotFoundError: there is no such version.
        IntegrityError: its manifest was altered.
    """
    key = version_manifest_key(name, manifest_hash)
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
    it, and one that a person went back from is refused. ``measure`` gives the champion's metrics, for instance measured
    again on the challenger's test split; by default those of its manifest.

    Raises:
        NotFoundError: the challenger, or the champion's manifest, is not in the store.
        DataError, IntegrityError: the pointer or the champion's manifest is damaged.
        StoreUnavailableError: the pointer kept changing, ``attempts`` times.
    """
    key = champion_key(name)
    manifest_key = version_manifest_key(name, challenger.manifest_hash)
    if store.head(manifest_key) is None:
        raise NotFoundError(f"{store.uri(manifest_key)}: there is no such version to make champion; publish it first")
    for attempt in range(attempts):
        found = find_pointer(store, name)
        pointer = None if found is None else found.pointer
        if pointer is not None and pointer.manifest_hash == challenger.manifest_hash:
            return ChampionMove(True, False, GateDecision(True, pointer.decision), pointer.previous_version)
        compared = None if pointer is None else pointer.manifest_hash
        if pointer is not None and challenger.manifest_hash in pointer.withdrawn:
            why = f"the champion was rolled back from version {challenger.manifest_hash[:12]}; promote it to have it again"
            return ChampionMove(False, False, GateDecision(False, (why,)), compared)
        champion = None
        if pointer is not None:
            champion = measure(pointer) if measure else measured_at_publishing(store, name, pointer.manifest_hash)
        decision = decide(gate, challenger, champion)
        if not decision.accepted:
            return ChampionMove(False, False, decision, compared)
        try:
            replace_pointer(
                store,
                name,
                found,
                {
                    "manifest_hash": challenger.manifest_hash,
                    "decision": decision.reasons,
                    "withdrawn": () if pointer is None else pointer.withdrawn,
                },
                now=now,
            )
        except PreconditionFailed:
            wait_for_racers(attempt)
            continue
        return ChampionMove(True, True, decision, compared)
    raise StoreUnavailableError(
        f"{store.uri(key)}: other publishers moved the champion {attempts} times meanwhile; the version is published, so "
        "try again"
    )


def replace_pointer(
    store: Store,
    name: str,
    found: FoundPointer | None,
    decided: Mapping[str, Any],
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ChampionPointer:
    """Put a new pointer in the place of the one that was found (None: of none), which goes to the history first.

    Args:
        decided: fields of the new pointer: ``manifest_hash``, ``decision``, and those about a move by a person.

    Raises:
        PreconditionFailed: another writer came first, and nothing was moved.
    """
    previous = None
    if found is not None:
        previous = sha256_bytes(found.data)
        store.put_bytes(_history_key(name, previous), found.data, if_absent=True)
    successor = ChampionPointer.known(
        {
            **decided,
            "name": name,
            "manifest_uri": store.uri(version_manifest_key(name, decided["manifest_hash"])),
            "decided_at": now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "previous_version": None if found is None else found.pointer.manifest_hash,
            "previous": previous,
        },
        otherwise=_FIRST,
    )
    data = successor.to_bytes()
    try:
        store.compare_and_swap(champion_key(name), data, expected_etag=None if found is None else found.etag)
    except PreconditionFailed:
        # A swap whose answer was lost is sent again, and then loses against itself.
        there = find_pointer(store, name)
        if there is None or there.data != data:
            raise
    return successor


def wait_for_racers(attempt: int) -> None:
    """Wait a moment, so that those who raced do not meet again."""
    time.sleep(random.uniform(0, 0.02 * (attempt + 1)))  # noqa: S311


def find_pointer(store: Store, name: str) -> FoundPointer | None:
    """As ``read_champion``, with what is needed to replace it."""
    key = champion_key(name)
    found = store.get_bytes_with_etag(key)
    if found is None:
        return None
    pointer = ChampionPointer.parse(found[0], source=store.uri(key))
    if pointer.name != name:
        raise IntegrityError(
            f"{store.uri(key)}: is the pointer of the model {pointer.name!r}, expected {name!r}; restore it from the history"
        )
    return FoundPointer(pointer, found[0], found[1])


def _history_key(name: str, digest: str) -> str:
    return f"{model_prefix(name)}/history/{digest}.json"
