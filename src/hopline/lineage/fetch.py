"""Bring a published version here, to be used: no file is handed out that is not the one in the manifest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopline.errors import IntegrityError, NotFoundError
from hopline.lineage.folder import open_version
from hopline.lineage.manifest import Manifest
from hopline.lineage.names import MANIFEST
from hopline.storage import open_store, sha256_bytes, sha256_file
from hopline.storage.local import check_content, os_errors
from hopline.storage.transfer import fetch_folder

__all__ = ["FetchedVersion", "fetch_version"]

_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FetchedVersion:
    """A version on this machine: every file that the manifest names lies in ``folder``, checked."""

    folder: Path
    manifest: Manifest
    manifest_hash: str


def fetch_version(target: str, cache: Path) -> FetchedVersion:
    """Check the files of the version at ``target`` (as for ``verify``), fetched to ``cache`` where they are not local.

    A local version is used in place. What an earlier call fetched is checked and kept.

    Raises:
        NotFoundError: there is no such version, or a file of it is missing.
        IntegrityError: the manifest is not the one that the folder is named after, or a file was altered.
        DataError: the manifest is damaged or foreign.
        StoreError: the store refuses or cannot be reached.
    """
    source = open_version(target)
    data = source.manifest()
    digest = sha256_bytes(data)
    if _HASH.fullmatch(source.name) and source.name != digest:
        raise IntegrityError(
            f"{source.uri}/{MANIFEST}: its sha256 is {digest}, expected {source.name}, the folder's name; it was altered, "
            "so fetch the version again"
        )
    manifest = Manifest.parse(data, source=f"{source.uri}/{MANIFEST}")
    store = open_store(source.uri)
    here = store.local_path(MANIFEST)
    folder = here.parent if here is not None else cache / digest
    files = [(file.path, file.sha256, file.size) for file in manifest.subjects.files]
    if here is None:
        fetch_folder(store, "", files, folder)
        return FetchedVersion(folder, manifest, digest)
    for path, sha256, size in files:
        _check(folder / path, sha256, size)
    return FetchedVersion(folder, manifest, digest)


def _check(path: Path, sha256: str, size: int) -> None:
    if not path.is_file():
        raise NotFoundError(f"{path}: is missing, and the manifest beside it names it; fetch the version again")
    with os_errors("read", path):
        check_content(str(path), sha256_file(path), path.stat().st_size, sha256=sha256, size=size)
