"""Local files, written all at once or not at all, and operating system errors in one clear sentence."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hopline.errors import IntegrityError, NotFoundError, StoreAccessError, StoreError
from hopline.storage.digest import CHUNK_BYTES
from hopline.storage.keys import TEMPORARY_PREFIX

__all__ = [
    "StagedFile",
    "check_content",
    "copy_verified",
    "open_source",
    "os_errors",
    "read_chunks",
    "stage_file",
    "sync_folder",
]

_REASONS: dict[int, tuple[type[StoreError], str]] = {
    errno.EACCES: (StoreAccessError, "permission denied; give this user the right, or choose another root"),
    errno.EPERM: (StoreAccessError, "the operation is not permitted; give this user the right, or choose another root"),
    errno.EROFS: (StoreAccessError, "the file system is read-only; choose another root"),
    errno.ENOTDIR: (StoreAccessError, "a part of this path is a file, not a folder; choose another root"),
    errno.EEXIST: (StoreAccessError, "a part of this path is a file, not a folder; choose another root"),
    errno.EISDIR: (StoreError, "it is a folder, and a file was expected"),
    errno.ENOSPC: (StoreError, "the disk is full; free some space or choose another root"),
    errno.EDQUOT: (StoreError, "the disk quota is used up; free some space or choose another root"),
    errno.EFBIG: (StoreError, "the file is larger than this file system or this user's limit allows"),
    errno.ENAMETOOLONG: (StoreError, "the path is too long for this file system; choose a shorter root"),
    errno.ELOOP: (StoreAccessError, "its symbolic links lead in a circle"),
    errno.EIO: (StoreError, "the disk failed to read or write (input/output error); check the disk"),
}


_CREATE_TRIES = 50


@contextmanager
def os_errors(action: str, where: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into a ``StoreError`` of one line: what was tried, where, why, what to do."""
    try:
        yield
    except OSError as error:
        kind, reason = _REASONS.get(error.errno or 0, (StoreError, error.strerror or str(error)))
        raise kind(f"cannot {action} {os.fspath(where)}: {reason}") from error


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable: a rename survives a power cut only after this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder, and need not
            raise
    finally:
        os.close(descriptor)


def open_source(path: Path) -> BinaryIO:
    """Open a file that is to be stored. Raises ``NotFoundError`` or ``StoreError``."""
    try:
        with os_errors("read", path):
            return path.open("rb", buffering=0)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise NotFoundError(f"{path}: there is no such file to store") from error
        raise


class StagedFile:
    """A file under a temporary name beside its destination, until ``replace`` or ``link`` gives it its own name."""

    def __init__(self, file: BinaryIO, temporary: Path, destination: Path) -> None:
        self.file = file
        self._temporary = temporary
        self._destination = destination

    def replace(self) -> None:
        """Give the file its name, in place of what had it."""
        self._sync()
        self._temporary.replace(self._destination)
        self._sync_name()

    def link(self) -> bool:
        """Give the file its name unless that is taken: True if it was free. Atomic, with no lock."""
        self._sync()
        try:
            os.link(self._temporary, self._destination, follow_symlinks=False)
        except FileExistsError:
            return False
        self._sync_name()
        return True

    def _sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())

    def _sync_name(self) -> None:
        with suppress(FileNotFoundError):  # another writer deleted the file already, and its folder with it
            sync_folder(self._destination.parent)


@contextmanager
def stage_file(destination: Path) -> Iterator[StagedFile]:
    """Open a temporary file beside ``destination`` (its folder is made); it is gone at the end unless it was given its name.

    Raises ``OSError``; the caller knows what to call the thing it writes (``os_errors``).
    """
    temporary = destination.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    descriptor = _create(temporary)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield StagedFile(file, temporary, destination)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def copy_verified(
    chunks: Iterator[bytes | memoryview], file: BinaryIO, *, name: str, sha256: str | None, size: int | None = None
) -> tuple[str, int]:
    """Write ``chunks`` to ``file`` and return digest and size. Raises ``IntegrityError`` if they are not those expected."""
    digest = hashlib.sha256()
    written = 0
    for chunk in chunks:
        digest.update(chunk)
        file.write(chunk)
        written += len(chunk)
    check_content(name, digest.hexdigest(), written, sha256=sha256, size=size)
    return digest.hexdigest(), written


def check_content(name: str, found: str, found_size: int, *, sha256: str | None, size: int | None = None) -> None:
    """Raise ``IntegrityError`` if an object's digest or size is not the expected one (None: not checked)."""
    if size is not None and found_size != size:
        state = "truncated" if found_size < size else "altered"
        raise IntegrityError(
            f"{name} is {state}: {found_size} bytes, expected {size}; restore it from where it came, or make it again"
        )
    if sha256 is not None and found != sha256:
        raise IntegrityError(
            f"{name} is altered: its sha256 is {found}, expected {sha256}; restore it from where it came, or make it again"
        )


def read_chunks(file: BinaryIO) -> Iterator[memoryview]:
    """Yield what ``file`` holds, up to 1 MiB at a time. Each view is valid until the next is asked for."""
    view = memoryview(bytearray(CHUNK_BYTES))
    while count := file.readinto(view):  # type: ignore[attr-defined]
        yield view[:count]


def _create(temporary: Path) -> int:
    # Another writer may be removing a folder that its last object left; then the folder is made again.
    for attempt in range(1, _CREATE_TRIES + 1):
        try:
            _make_folder(temporary.parent)
            return os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            if attempt == _CREATE_TRIES:
                raise
    raise AssertionError("the loop returns or raises")


def _make_folder(folder: Path) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)
