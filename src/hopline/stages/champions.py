"""The champion of a model as commands see it: named by the model or a URI, shown, and moved by a person."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from hopline.errors import IntegrityError, NotFoundError, UserError
from hopline.lineage import ChampionPointer, history, measured_at_publishing
from hopline.lineage.champion import champion_key, version_manifest_key
from hopline.lineage.champion_by_hand import HandMove, promote, roll_back
from hopline.lineage.names import MANIFEST
from hopline.lineage.publish import model_prefix
from hopline.stages.roots import open_root, resolve_root
from hopline.storage import Store

__all__ = [
    "ChampionEntry",
    "ChampionHistory",
    "ChampionMoved",
    "ChampionView",
    "champion_history",
    "promote_version",
    "roll_back_champion",
    "show_champion",
]

_MODEL: Final = re.compile(r"(?P<root>.+)/models/(?P<name>[^/]+)(?:/champion\.json)?")
_VERSION: Final = re.compile(
    rf"(?P<root>.+)/models/(?P<name>[^/]+)/(?P<version>[0-9a-f]{{64}})(?:/{re.escape(MANIFEST)})?"
)


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ChampionEntry(_View):
    """One pointer of the chain."""

    manifest_hash: str
    manifest_uri: str
    """Where the version lies in this root."""
    since: str
    """Time in UTC, ISO 8601."""
    action: Literal["publish", "promote", "rollback"]
    by: str
    grounds: tuple[str, ...]
    previous_version: str | None


class ChampionView(_View):
    """The champion of a model."""

    name: str
    champion: ChampionEntry
    state: Literal["there", "missing", "altered"]
    """Of its manifest; `hopline verify` checks the rest."""
    metrics: dict[str, float | None]
    """On test, when it was published; empty where the manifest is not there."""
    withdrawn: tuple[str, ...]
    """Versions that the gate does not make champion again."""


class ChampionHistory(_View):
    """Every move of the pointer, newest first."""

    name: str
    moves: tuple[ChampionEntry, ...]


class ChampionMoved(_View):
    """The outcome of a move by a person."""

    name: str
    champion: ChampionEntry
    moved: bool
    """False: it was the champion already."""


def show_champion(model: str, *, root: str | None = None) -> ChampionView:
    """The champion of a model.

    Args:
        model: its name in the root, or the URI of ``models/<name>`` or of the pointer in it.
        root: URI; None = the default one.

    Raises:
        NotFoundError: it has none.
        DataError, IntegrityError: the pointer is damaged.
    """
    store, name = _find_model(model, root)
    pointer = _chain(store, name)[0]
    state: Literal["there", "missing", "altered"] = "there"
    metrics: dict[str, float | None] = {}
    try:
        metrics = dict(measured_at_publishing(store, name, pointer.manifest_hash).metrics)
    except NotFoundError:
        state = "missing"
    except IntegrityError:
        state = "altered"
    return ChampionView(
        name=name,
        champion=_entry(store, pointer),
        state=state,
        metrics=metrics,
        withdrawn=pointer.withdrawn,
    )


def champion_history(model: str, *, root: str | None = None) -> ChampionHistory:
    """Every move of a model's pointer; arguments and errors as for :func:`show_champion`."""
    store, name = _find_model(model, root)
    return ChampionHistory(name=name, moves=tuple(_entry(store, pointer) for pointer in _chain(store, name)))


def promote_version(
    target: str,
    version: str | None = None,
    *,
    root: str | None = None,
    reason: str,
    by: str | None = None,
    keys: Sequence[Path] = (),
) -> ChampionMoved:
    """Make a version the champion; see :func:`hopline.lineage.champion_by_hand.promote`.

    Args:
        target: the model as for :func:`show_champion`, or the URI of a version's folder or manifest.json in a root.
        version: with a model, hash of the version or the first digits of it.
        by: who does it; None = this user on this machine.

    Raises:
        UserError: it is not said which version, or several begin like that.
    """
    if version is None:
        match = _VERSION.fullmatch(target.rstrip("/"))
        if match is None:
            raise UserError(
                f"{target}: which version? give its hash after the model, or the URI of its folder, "
                "<root>/models/<name>/<hash>"
            )
        store, name, digest = open_root(match["root"]), match["name"], match["version"]
    else:
        store, name = _find_model(target, root)
        digest = _find_version(store, name, version)
    return _moved(store, name, promote(store, name, digest, reason=reason, by=by or _this_user(), keys=keys))


def roll_back_champion(
    model: str,
    *,
    root: str | None = None,
    to: str | None = None,
    reason: str,
    by: str | None = None,
    keys: Sequence[Path] = (),
) -> ChampionMoved:
    """Make an earlier champion the champion again; see :func:`hopline.lineage.champion_by_hand.roll_back`."""
    store, name = _find_model(model, root)
    return _moved(store, name, roll_back(store, name, reason=reason, by=by or _this_user(), to=to, keys=keys))


def _find_model(model: str, root: str | None) -> tuple[Store, str]:
    if "/" not in model:
        return open_root(resolve_root(root)), model
    match = _MODEL.fullmatch(model.rstrip("/"))
    if match is None:
        raise UserError(f"{model}: expected the name of a model, or the URI of its folder, <root>/models/<name>")
    return open_root(match["root"]), match["name"]


def _find_version(store: Store, name: str, start: str) -> str:
    prefix = f"{model_prefix(name)}/"
    keys = (info.key.removeprefix(prefix).split("/") for info in store.list(prefix))
    found = sorted({parts[0] for parts in keys if parts[1:] == [MANIFEST] and start and parts[0].startswith(start)})
    if not found:
        raise NotFoundError(
            f"{store.uri(model_prefix(name))}: no version there begins with {start!r}; publish it first"
        )
    if len(found) > 1:
        raise UserError(
            f"{store.uri(model_prefix(name))}: {len(found)} versions begin with {start}; give more digits of the hash"
        )
    return found[0]


def _chain(store: Store, name: str) -> list[ChampionPointer]:
    chain = history(store, name)
    if not chain:
        raise NotFoundError(
            f"{store.uri(champion_key(name))}: the model {name!r} has no champion in this root; publish a version, or "
            "give another --root"
        )
    return chain


def _entry(store: Store, pointer: ChampionPointer) -> ChampionEntry:
    return ChampionEntry(
        manifest_hash=pointer.manifest_hash,
        manifest_uri=store.uri(version_manifest_key(pointer.name, pointer.manifest_hash)),
        since=pointer.decided_at,
        action=pointer.action,
        by=pointer.by,
        grounds=pointer.decision,
        previous_version=pointer.previous_version,
    )


def _moved(store: Store, name: str, move: HandMove) -> ChampionMoved:
    return ChampionMoved(name=name, champion=_entry(store, move.pointer), moved=move.moved)


def _this_user() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user that has no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
