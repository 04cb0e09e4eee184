"""Moves of the champion pointer by a person: to a version that verifies, or back to one that was champion before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from hopline.errors import ClaimError, NotFoundError, StoreError, StoreUnavailableError, UserError
from hopline.lineage.champion import (
    ChampionPointer,
    champion_key,
    find_pointer,
    history_before,
    replace_pointer,
    version_manifest_key,
    wait_for_racers,
)
from hopline.lineage.manifest import Manifest
from hopline.lineage.verify import verify
from hopline.storage import PreconditionFailed, Store

__all__ = ["HandMove", "promote", "roll_back"]

_ATTEMPTS: Final = 20
_LONGEST: Final = 1000


@dataclass(frozen=True, slots=True)
class HandMove:
    """The outcome. ``moved`` is false where the version was the champion already, and nothing was written."""

    pointer: ChampionPointer
    moved: bool


def promote(
    store: Store,
    name: str,
    manifest_hash: str,
    *,
    reason: str,
    by: str,
    keys: Sequence[Path] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    attempts: int = _ATTEMPTS,
) -> HandMove:
    """Make a version the champion, whatever the gate says. Who loses a race moves the pointer after the winner.

    Args:
        reason, by: why, and who; both are kept in the pointer.
        keys: files with public keys of the publisher; with one, the version has to be signed.

    Raises:
        NotFoundError: there is no such version.
        ClaimError: it does not verify.
        UserError: reason or name is no line of text.
        DataError, IntegrityError: the pointer is damaged.
        StoreUnavailableError: the pointer kept changing, ``attempts`` times.
    """
    decided = _decided(manifest_hash, "promote", reason, by)
    _check(store, name, manifest_hash, keys)
    for attempt in range(attempts):
        found = find_pointer(store, name)
        if found is not None and found.pointer.manifest_hash == manifest_hash:
            return HandMove(found.pointer, False)
        withdrawn = () if found is None else tuple(v for v in found.pointer.withdrawn if v != manifest_hash)
        try:
            return HandMove(replace_pointer(store, name, found, {**decided, "withdrawn": withdrawn}, now=now), True)
        except PreconditionFailed:
            wait_for_racers(attempt)
    raise StoreUnavailableError(
        f"{store.uri(champion_key(name))}: others moved the champion {attempts} times meanwhile; try again"
    )


def roll_back(
    store: Store,
    name: str,
    *,
    reason: str,
    by: str,
    to: str | None = None,
    keys: Sequence[Path] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> HandMove:
    """Make an earlier champion the champion again.

    The versions between are withdrawn: publishing one of them again does not make it champion, and the next rollback goes
    further back. A rollback is decided on what was read, so who loses a race does nothing.

    Args:
        reason, by: why, and who; both are kept in the pointer.
        to: hash of an earlier champion, or the first digits of it; None = the newest that was not withdrawn.
        keys: as for ``promote``.

    Raises:
        NotFoundError: there is no champion, no earlier one, or none of that hash; or its version is gone.
        ClaimError: that version does not verify.
        UserError: reason or name is no line of text, or several earlier champions begin with ``to``.
        DataError, IntegrityError: the pointer or its history is damaged.
        StoreError: somebody else moved the pointer meanwhile.
    """
    found = find_pointer(store, name)
    if found is None:
        raise NotFoundError(f"{store.uri(champion_key(name))}: the model {name!r} has no champion to go back from")
    pointer = found.pointer
    chain = [pointer, *history_before(store, pointer)]
    target = _earlier(store, chain, to)
    decided = _decided(target, "rollback", reason, by)
    if target == pointer.manifest_hash:
        return HandMove(pointer, False)
    _check(store, name, target, keys)
    place = next(number for number, entry in enumerate(chain) if entry.manifest_hash == target)
    left = {*pointer.withdrawn, *(entry.manifest_hash for entry in chain[:place])} - {target}
    try:
        return HandMove(
            replace_pointer(store, name, found, {**decided, "withdrawn": tuple(sorted(left))}, now=now), True
        )
    except PreconditionFailed:
        raise StoreError(
            f"{store.uri(champion_key(name))}: somebody else moved the champion meanwhile, and nothing was rolled back; "
            f"look at `hopline champion show {name}` and try again"
        ) from None


def _earlier(store: Store, chain: Sequence[ChampionPointer], to: str | None) -> str:
    """The version to go back to."""
    now, key = chain[0], store.uri(champion_key(chain[0].name))
    versions = list(dict.fromkeys(entry.manifest_hash for entry in chain))
    if to is None:
        before = [version for version in versions if version not in (now.manifest_hash, *now.withdrawn)]
        if not before:
            raise NotFoundError(
                f"{key}: there is no champion before {now.manifest_hash[:12]} to go back to; promote another version"
            )
        return before[0]
    matching = [version for version in versions if to and version.startswith(to)]
    if not matching:
        raise NotFoundError(
            f"{key}: no version {to!r} was champion; see `hopline champion history {now.name}`, or promote that version"
        )
    if len(matching) > 1:
        raise UserError(f"{key}: {len(matching)} earlier champions begin with {to}; give more digits of the hash")
    return matching[0]


def _check(store: Store, name: str, manifest_hash: str, keys: Sequence[Path]) -> None:
    """Refuse a version that is gone, is another model's, or does not verify."""
    key = version_manifest_key(name, manifest_hash)
    uri = store.uri(key)
    manifest = Manifest.parse(store.get_bytes(key, sha256=manifest_hash), source=uri)
    if manifest.name != name:
        raise ClaimError(f"{uri}: is a version of the model {manifest.name!r}, not of {name!r}; promote it there")
    failed = [claim for claim in verify(uri, keys=keys).claims if claim.status == "FAIL"]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise ClaimError(
            f"{uri}: does not verify, so it cannot be champion: {failed[0].name}: {failed[0].detail}{more}"
        )


def _decided(manifest_hash: str, action: Literal["promote", "rollback"], reason: str, by: str) -> dict[str, Any]:
    for what, text in (("reason", reason), ("name of who does it", by)):
        if not text.strip() or len(text.strip().splitlines()) != 1 or len(text) > _LONGEST:
            raise UserError(f"the {what} is {text[:40]!r}; expected one line of at most {_LONGEST} characters")
    return {"manifest_hash": manifest_hash, "decision": (reason.strip(),), "action": action, "by": by.strip()}
