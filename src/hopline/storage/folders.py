"""Folders in the store: written with one file last, which names the digests of all others; read with every byte checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.storage.canonical import canonical_json, parse_json
from hopline.storage.digest import sha256_bytes, sha256_file
from hopline.storage.store import Store
from hopline.storage.transfer import Upload, upload_files

__all__ = ["FolderFile", "FolderIndex", "check_files", "check_folder", "delete_folder", "put_folder", "read_file"]


class FolderFile(BaseModel):
    """One file of a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    sha256: str
    bytes: int


class FolderIndex(BaseModel):
    """The files of a folder, sorted by path; the index itself is not among them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    FILE: ClassVar[str] = "index.json"

    files: tuple[FolderFile, ...]

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> FolderIndex:
        """The index of some files by name."""
        return cls(
            files=tuple(
                FolderFile(path=name, sha256=sha256_bytes(data), bytes=len(data))
                for name, data in sorted(files.items())
            )
        )

    @classmethod
    def of_folder(cls, folder: Path) -> FolderIndex:
        """The index of a local folder."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / cls.FILE)
        return cls(
            files=tuple(
                FolderFile(
                    path=path.relative_to(folder).as_posix(), sha256=sha256_file(path), bytes=path.stat().st_size
                )
                for path in paths
            )
        )

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> FolderIndex:
        """Read an index. Raises DataError, naming ``source``."""
        try:
            return cls.model_validate(parse_json(data, source=source))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise DataError(f"{source}: no index of a folder: {where}: {first['msg']}; remove the folder") from None


def put_folder(store: Store, prefix: str, folder: Path, *, last: str = FolderIndex.FILE) -> None:
    """Copy a local folder to ``prefix``; the file ``last`` is written last.

    A folder in the store without ``last`` counts as not there: what an earlier copy left is removed first. One with the same
    ``last`` gets the files that it lacks.

    Raises:
        IntegrityError: the same folder is there, and a file of it was altered.
    """
    marker = (folder / last).read_bytes()
    found = store.get_bytes_with_etag(f"{prefix}/{last}")
    if found is None or found[0] != marker:
        delete_folder(store, prefix, last=last)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / last)
    upload_files(
        store,
        [
            Upload(f"{prefix}/{path.relative_to(folder).as_posix()}", path, sha256_file(path), path.stat().st_size)
            for path in files
        ],
    )
    store.put_bytes(f"{prefix}/{last}", marker)


def delete_folder(store: Store, prefix: str, *, last: str = FolderIndex.FILE) -> None:
    """Remove a folder, ``last`` first, so that a half removed one is never taken for whole."""
    store.delete(f"{prefix}/{last}")
    for info in list(store.list(f"{prefix}/")):
        store.delete(info.key)


def check_folder(store: Store, prefix: str) -> bool:
    """Whether a folder that is named by the digest of its index is complete: False if it, or a file of it, is gone.

    Raises:
        IntegrityError: a file was altered.
    """
    try:
        index = _named_index(store, prefix)
    except NotFoundError:
        return False
    return check_files(store, prefix, [(file.path, file.sha256, file.bytes) for file in index.files])


def check_files(store: Store, prefix: str, files: list[tuple[str, str, int]]) -> bool:
    """Whether files (path, sha256, bytes) are there under ``prefix``; the digest is checked where it costs no transfer.

    Raises:
        IntegrityError: one was altered.
    """
    infos = {info.key: info for info in store.list(f"{prefix}/")}
    for path, sha256, size in files:
        key = f"{prefix}/{path}"
        info = infos.get(key)
        if info is None:
            return False
        local = store.local_path(key)
        digest = sha256_file(local) if local is not None else info.sha256
        if info.size != size or digest not in (None, sha256):
            raise IntegrityError(
                f"{store.uri(key)}: found sha256 {digest or 'not known'} and {info.size} bytes, expected {sha256} and "
                f"{size} bytes; it was altered: remove {store.uri(prefix)} to make it again"
            )
    return True


def read_file(store: Store, prefix: str, path: str) -> bytes:
    """The bytes of one file of a folder that is named by the digest of its index, checked against that.

    Raises:
        NotFoundError: there is no such folder or file.
        IntegrityError: the file was altered.
    """
    for file in _named_index(store, prefix).files:
        if file.path == path:
            return store.get_bytes(f"{prefix}/{path}", sha256=file.sha256)
    raise DataError(f"{store.uri(prefix)}: its index names no {path}; remove the folder to make it again")


def _named_index(store: Store, prefix: str) -> FolderIndex:
    key = f"{prefix}/{FolderIndex.FILE}"
    return FolderIndex.parse(store.get_bytes(key, sha256=prefix.rpartition("/")[2]), source=store.uri(key))
