"""A store in a local folder: files appear whole, are durable once stored, and never lie outside the root."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from hopline.errors import IntegrityError, NotFoundError, StoreAccessError, StoreError
from hopline.storage.digest import sha256_bytes, sha256_file
from hopline.storage.keys import TEMPORARY_PREFIX, is_key, validate_key, validate_prefix
from hopline.storage.local import (
    StagedFile,
    check_content,
    copy_verified,
    open_source,
    os_errors,
    read_chunks,
    stage_file,
)
from hopline.storage.store import ObjectInfo, PreconditionFailed

__all__ = ["FileStore"]

# An etag is the sha256 of the content. Pointers and records are small and get theirs with `head`; weights do not.
_ETAG_BYTES = 1 << 20


class FileStore:
    """The ``Store`` of a local folder. The folder is made by the first write.

    A file is written under a temporary name (``.tmp-…``) in its own folder, synced, given its name, and the folder
    synced; what a killed process leaves has a temporary name and is never listed or read. The etag is the sha256 of the
    content. Replacing, deleting and compare-and-swap take a lock file: they exclude each other between processes too.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 - resolve() would follow the root's own symbolic links

    @property
    def base_uri(self) -> str:
        return self.root.as_uri()

    def uri(self, key: str) -> str:
        return f"{self.base_uri.rstrip('/')}/{quote(validate_key(key))}"

    def put_file(self, key: str, path: Path, *, sha256: str, if_absent: bool = True) -> None:
        target = self._path(key)
        with open_source(Path(path)) as source:
            if if_absent and self._holds(target, sha256, os.fstat(source.fileno()).st_size):
                return
            with os_errors("write", target), stage_file(target) as staged:
                _, size = copy_verified(read_chunks(source), staged.file, name=str(path), sha256=sha256)
                self._name(staged, target, sha256, size, if_absent=if_absent)

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        target = self._path(key)
        with os_errors("write", target), stage_file(target) as staged:
            staged.file.write(data)
            self._name(staged, target, sha256_bytes(data), len(data), if_absent=if_absent)

    def get_bytes(self, key: str, *, sha256: str | None = None, max_bytes: int | None = None) -> bytes:
        target = self._path(key)
        data = _read(target, max_bytes)
        if data is None:
            raise _missing(target)
        if sha256 is not None:
            check_content(str(target), sha256_bytes(data), len(data), sha256=sha256)
        return data

    def get_bytes_with_etag(self, key: str) -> tuple[bytes, str] | None:
        data = _read(self._path(key), None)
        return None if data is None else (data, sha256_bytes(data))

    def get_file(self, key: str, path: Path, *, sha256: str | None, size: int | None = None) -> None:
        target, path = self._path(key), Path(path)
        with os_errors("read", target):
            try:
                source = target.open("rb", buffering=0)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
                raise _missing(target) from error
        with source, os_errors("write", path), stage_file(path) as staged:
            copy_verified(read_chunks(source), staged.file, name=str(target), sha256=sha256, size=size)
            staged.replace()

    def head(self, key: str) -> ObjectInfo | None:
        target = self._path(key)
        with os_errors("read", target):
            try:
                if not target.is_file():
                    return None
                size = target.stat().st_size
                etag = sha256_file(target) if size <= _ETAG_BYTES else None
            except FileNotFoundError:  # deleted between two looks
                return None
        return ObjectInfo(key, size, etag, etag)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        validate_prefix(prefix)
        folder, slash, _ = prefix.rpartition("/")
        start = self._path(folder) if folder else self.root
        yield from self._walk(start, folder + slash, prefix)

    def delete(self, key: str) -> None:
        target = self._path(key)
        with os_errors("delete", target):
            if not target.is_file() and not target.is_symlink():
                return
            try:
                with self._locked(target):
                    target.unlink(missing_ok=True)
            except FileNotFoundError:  # another process deleted it, and then its empty folder
                return
            self._prune(target.parent)

    def compare_and_swap(self, key: str, data: bytes, *, expected_etag: str | None) -> str:
        target = self._path(key)
        with os_errors("write", target), stage_file(target) as staged:
            staged.file.write(data)
            with self._locked(target):
                current = _read(target, None)
                found = None if current is None else sha256_bytes(current)
                if found != expected_etag:
                    raise PreconditionFailed(
                        f"{target} was changed by another writer: its etag is {found}, expected {expected_etag}; "
                        "read it again and decide again"
                    )
                staged.replace()
        return sha256_bytes(data)

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def _path(self, key: str) -> Path:
        path = self.root / validate_key(key)
        self._inside(path)
        return path

    def _inside(self, path: Path) -> None:
        root, real = os.path.realpath(self.root), os.path.realpath(path)
        if os.path.commonpath([root, real]) != root:
            raise StoreAccessError(
                f"{path} is a symbolic link out of the root {self.root} (to {real}); it is not followed"
            )

    def _name(self, staged: StagedFile, target: Path, sha256: str, size: int, *, if_absent: bool) -> None:
        if not if_absent:
            with self._locked(target):
                staged.replace()
            return
        try:
            free = staged.link()
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            # A file system without hard links (FAT, some network mounts): look, then rename, under the lock.
            with self._locked(target):
                free = not target.exists()
                if free:
                    staged.replace()
        if not free and not self._holds(target, sha256, size):
            raise StoreError(f"{target} was deleted while it was being stored; try again")

    def _holds(self, target: Path, sha256: str, size: int) -> bool:
        """Whether the object is there, whole; raises ``IntegrityError`` if something else is there."""
        with os_errors("read", target):
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            try:
                found_size, found = target.stat().st_size, ""
                if found_size == size:
                    found = sha256_file(target)
            except (FileNotFoundError, NotADirectoryError):
                return False
        if found == sha256:
            return True
        found = found or sha256_file(target)
        raise IntegrityError(
            f"{target} already holds other bytes: sha256 {found} ({found_size} bytes), expected {sha256} ({size} bytes); "
            "it is immutable, so delete it only if you know that it is broken"
        )

    @contextmanager
    def _locked(self, target: Path) -> Iterator[None]:
        lock = target.parent / f"{TEMPORARY_PREFIX}lock-{sha256_bytes(target.name.encode())[:16]}"
        while True:
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # The previous holder removed the file that we waited for: a lock on a nameless file locks nothing.
                if _is_same(descriptor, lock):
                    try:
                        yield
                    finally:
                        with suppress(FileNotFoundError):
                            lock.unlink()
                    return
            finally:
                os.close(descriptor)

    def _walk(self, folder: Path, start: str, prefix: str) -> Iterator[ObjectInfo]:
        with os_errors("list", folder):
            try:
                entries = [(entry.name, entry.is_dir(), entry.is_symlink()) for entry in os.scandir(folder)]
            except (FileNotFoundError, NotADirectoryError):
                return
        # A folder sorts as its keys do: with the slash that follows its name.
        for name, is_folder, is_link in sorted(entries, key=lambda entry: entry[0] + "/" if entry[1] else entry[0]):
            key = start + name
            if not is_key(key) or not (key.startswith(prefix) or prefix.startswith(f"{key}/")):
                continue
            path = folder / name
            if is_link:
                self._inside(path)
            if is_folder:
                real = os.path.realpath(path)
                if is_link and os.path.commonpath([os.path.realpath(folder), real]) == real:
                    raise StoreAccessError(f"{path} is a symbolic link to a folder that it lies in; remove it")
                yield from self._walk(path, f"{key}/", prefix)
            else:
                with os_errors("list", path):
                    try:
                        size = path.stat().st_size
                    except FileNotFoundError:  # deleted meanwhile
                        continue
                yield ObjectInfo(key, size, None)

    def _prune(self, folder: Path) -> None:
        """Remove the folders that a delete left empty: other stores have no folders."""
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _missing(target: Path) -> NotFoundError:
    return NotFoundError(f"{target}: there is no such object; check the root and the name")


def _read(target: Path, max_bytes: int | None) -> bytes | None:
    with os_errors("read", target):
        try:
            with target.open("rb") as file:
                if max_bytes is None:
                    return file.read()
                data = file.read(max_bytes + 1)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
    if len(data) > max_bytes:
        raise IntegrityError(f"{target} is larger than the {max_bytes} bytes that it may have")
    return data
