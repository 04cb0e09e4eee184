"""Code identity: the digest of the sources that a stage's result depends on.

Editing the report retrains nothing, because a run depends on other packages than the report. Versions of torch and friends
are recorded in the manifest, not hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import hopline

__all__ = ["STAGE_PACKAGES", "code_digest", "stage_code"]

_DATA: Final = ("graph", "datasets")
_RUN: Final = (*_DATA, "model", "evaluation", "training")

STAGE_PACKAGES: Final = {
    "generate": _DATA,
    "train": _RUN,
    "evaluate": (*_RUN, "report"),
    "publish": ("lineage",),
}
"""Which packages of ``hopline`` decide what a stage produces from its inputs."""


def stage_code(stage: str) -> str:
    """The code digest of a stage."""
    return code_digest(STAGE_PACKAGES[stage])


def code_digest(packages: Iterable[str]) -> str:
    """sha256 over the relative path and bytes of every source file of some packages of ``hopline``, in sorted order."""
    return _digest(tuple(sorted(packages)))


@cache
def _digest(packages: tuple[str, ...]) -> str:
    root = Path(hopline.__file__).parent
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and path.suffix in {".py", ".j2", ".css", ".json"}:
                data = path.read_bytes()
                digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
                digest.update(data)
    return digest.hexdigest()
