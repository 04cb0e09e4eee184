"""In what two manifests differ, and which of it any two runs differ in, however equal what they did was."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from hopline.lineage.folder import open_version
from hopline.lineage.manifest import Manifest
from hopline.lineage.names import MANIFEST

__all__ = ["RUN_FACTS", "Difference", "compare_manifests", "read_manifest"]

RUN_FACTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "training.attempts": "when training ran, and how often it was begun",
        "evaluation.candidates[*].uri": "where the root was",
        "evaluation.chosen.uri": "where the root was",
        "dataset.source.uri": "where the source files were",
        "pipeline": "which pipeline run it was",
    }
)
"""The parts of a manifest that are facts of one run, and of what: they differ between two runs of one config on one machine.
``*`` stands for the name of a list's item, and a part includes everything below it."""

_NAMES: Final = ("path", "file", "step", "name", "key")
"""The field that names an item of a list, if the items have one."""
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs.

    ``path`` leads to it, such as ``evaluation.candidates[200].score``; ``before`` and ``after`` are its JSON values,
    ``in_before`` and ``in_after`` say whether it is there at all; ``run_fact`` says of what it is a fact, None of nothing.
    """

    path: str
    before: Any
    after: Any
    in_before: bool
    in_after: bool
    run_fact: str | None

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object; a side where the value is absent is left out."""
        record: dict[str, Any] = {"path": self.path, "run_fact": self.run_fact}
        if self.in_before:
            record["before"] = self.before
        if self.in_after:
            record["after"] = self.after
        return record


def compare_manifests(before: Manifest, after: Manifest) -> tuple[Difference, ...]:
    """List every value that differs, in the order of the parts. Items of lists are compared by name, not by position."""
    found = _compare("", before.model_dump(mode="json"), after.model_dump(mode="json"))
    return tuple(
        Difference(
            path,
            None if a is _ABSENT else a,
            None if b is _ABSENT else b,
            a is not _ABSENT,
            b is not _ABSENT,
            _fact(path),
        )
        for path, a, b in found
    )


def read_manifest(target: str) -> Manifest:
    """Read the manifest of a version: its folder or manifest.json, as a path, ``file://`` or ``s3://``.

    Raises:
        NotFoundError: there is no such version.
        DataError: the manifest is damaged or foreign.
        StoreError: the store refuses or cannot be reached.
    """
    folder = open_version(target)
    return Manifest.parse(folder.manifest(), source=f"{folder.uri}/{MANIFEST}")


def _compare(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            below = f"{path}.{key}" if path else str(key)
            yield from _compare(below, before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        left, right = _by_name(before, after)
        for name in (*left, *(name for name in right if name not in left)):
            yield from _compare(f"{path}[{name}]", left.get(name, _ABSENT), right.get(name, _ABSENT))
    elif type(before) is not type(after) or before != after:
        yield path, before, after


def _by_name(before: list[Any], after: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The items by the field that names each on both sides, else by position."""
    for field in _NAMES:
        named = [
            {str(item[field]): item for item in items if isinstance(item, dict) and field in item}
            for items in (before, after)
        ]
        if len(named[0]) == len(before) and len(named[1]) == len(after):
            return named[0], named[1]
    return {str(i): item for i, item in enumerate(before)}, {str(i): item for i, item in enumerate(after)}


def _fact(path: str) -> str | None:
    general = re.sub(r"\[[^]]*\]", "[*]", path)
    for place, meaning in RUN_FACTS.items():
        if general == place or general.startswith((f"{place}.", f"{place}[")):
            return meaning
    return None
