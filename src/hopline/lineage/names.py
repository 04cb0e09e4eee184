"""What a published file may be called. The names come from a manifest that a stranger may have written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hopline.errors import DataError
from hopline.storage import validate_key

__all__ = ["ENVELOPE", "MANIFEST", "path_problem", "paths_problem", "validate_paths"]

MANIFEST: Final = "manifest.json"
ENVELOPE: Final = "manifest.dsse.json"
"""The signature beside the manifest. Neither file can hold its own digest, so neither is a subject."""

# ASCII alone: a letter that looks like another one cannot stand in for it, and no file system folds or composes names.
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_WINDOWS: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def path_problem(path: str) -> str | None:
    """Say why ``path`` cannot be the path of a published file, None if it can."""
    if path.lower() in (MANIFEST, ENVELOPE):
        return "this name is kept for the manifest and its signature"
    for segment in path.split("/"):
        if not _SEGMENT.fullmatch(segment):
            return "a path is made of letters a-z, digits, '_', '-', '.' and '/', and no part begins with '-' or '.'"
        if segment.endswith(".") or _WINDOWS.fullmatch(segment):
            return f"{segment!r} cannot be a file's name on every system"
    return None


def paths_problem(paths: Iterable[str]) -> str | None:
    """Say why ``paths`` cannot be the files of one folder on every file system, None if they can."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        if problem := path_problem(path):
            return f"{path!r}: {problem}"
        if (key := path.lower()) in files:
            return f"{path!r} and {files[key]!r}: two files that are one where case does not count"
        files[key] = path
        parts = path.split("/")
        for folder in ("/".join(parts[:end]) for end in range(1, len(parts))):
            if folders.setdefault(folder.lower(), folder) != folder:
                return f"{folder!r} and {folders[folder.lower()]!r}: two folders that are one where case does not count"
    if both := sorted(files.keys() & folders.keys()):
        return f"{files[both[0]]!r} is a file, and another file needs a folder of that name"
    return None


def validate_paths(paths: Iterable[str], *, source: str) -> None:
    """Raise ``DataError``, naming ``source``, unless every path can be published, and all of them together."""
    paths = list(paths)
    if problem := paths_problem(paths):
        raise DataError(f"{source}: {problem}; rename the file")
    for path in paths:
        validate_key(path)
