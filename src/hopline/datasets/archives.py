"""Archives of data files, unpacked without trust: only plain files, only under their folder, only so many bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast

from hopline.datasets.index import SourceFile
from hopline.datasets.textfile import MAX_RATIO, too_dense
from hopline.errors import DataError
from hopline.storage.keys import is_key

__all__ = ["ARCHIVE_SUFFIXES", "MAX_BYTES", "MAX_MEMBERS", "unpack"]

ARCHIVE_SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz")
MAX_BYTES: Final = 32 << 30
"""Most bytes that an archive is unpacked to."""
MAX_MEMBERS: Final = 100_000
"""Most files and folders that are looked at in one."""

_CHUNK: Final = 1 << 20
_MAX_READ: Final = 16 << 20
_ENCRYPTED: Final = 0x1


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    size: int
    problem: str | None
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path, folder: Path, *, wanted: Callable[[str], bool], name: str | None = None
) -> tuple[SourceFile, ...]:
    """Unpack the wanted files of an archive into a folder, each under its path in the archive.

    Every member is looked at before any is written. Nothing is taken from the archive but names and bytes: no owner, no
    mode, no time.

    Args:
        archive: the file; its name says what it is (``ARCHIVE_SUFFIXES``).
        folder: an empty folder.
        wanted: by the path of a member, whether to unpack it.
        name: what errors call the archive.

    Returns:
        What was unpacked, in the order of names, with digests taken while it was written.

    Raises:
        DataError: the archive is damaged or encrypted; a member is a link or device, has a path that leads out of the
            folder, or stands twice; or it unpacks to more bytes than its size explains, or than ``MAX_BYTES``. The message
            names the member.
    """
    name = name or str(archive)
    with _reading(archive, name) as members:
        plain = [member for member in members if _checked(member, name)]
        chosen = [member for member in plain if wanted(member.name)]
        names = Counter(member.name for member in chosen)
        if twice := [member for member, count in names.items() if count > 1]:
            raise DataError(f"{name}: member '{twice[0]}' stands twice; pack each file once")
        packed = archive.stat().st_size
        declared = sum(member.size for member in chosen)
        if declared > MAX_BYTES or too_dense(packed, declared):
            largest = max(chosen, key=lambda member: member.size)
            raise _bomb(name, largest.name, packed, declared)
        found = []
        left = MAX_BYTES
        total = 0
        # In the order of the archive: to go back in a compressed one is to unpack it again from its beginning.
        for member in chosen:
            done = _write(member, folder, name, packed, total, left)
            total += done.bytes
            left -= done.bytes
            found.append(done)
    return tuple(sorted(found, key=lambda file: file.path))


def _write(member: _Member, folder: Path, name: str, packed: int, total: int, left: int) -> SourceFile:
    path = folder.joinpath(*PurePosixPath(member.name).parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    size = 0
    source = member.open()
    if source is None:
        raise DataError(f"{name}: member '{member.name}' cannot be read")
    with source, path.open("xb") as file:
        while data := source.read(_CHUNK):
            size += len(data)
            # What the archive says of its sizes is not believed.
            if size > left or too_dense(packed, total + size):
                raise _bomb(name, member.name, packed, total + size)
            digest.update(data)
            file.write(data)
    if size != member.size:
        raise DataError(
            f"{name}: member '{member.name}' has {size} bytes, expected {member.size}; the archive is damaged"
        )
    return SourceFile(path=member.name, bytes=size, sha256=digest.hexdigest())


class _Bounded:
    """The bytes of a tar, of which nobody reads very many at a time, or past what its size explains.

    The library reads some headers (long names, extended attributes) whole, however long they say that they are.
    """

    def __init__(self, raw: gzip.GzipFile | io.BufferedReader, archive: Path, name: str) -> None:
        self._raw = raw
        self._packed = archive.stat().st_size
        self._name = name

    def read(self, size: int = -1) -> bytes:
        """As of a file."""
        if not 0 <= size <= _MAX_READ:
            raise DataError(f"{self._name}: holds a header of {size} bytes; refused: the archive is damaged or hostile")
        return self._raw.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        """As of a file."""
        if whence == 0 and (too_dense(self._packed, position) or position > 2 * MAX_BYTES):
            raise _bomb(self._name, "(not reached)", self._packed, position)
        return self._raw.seek(position, whence)

    def tell(self) -> int:
        """As of a file."""
        return self._raw.tell()


@contextmanager
def _reading(archive: Path, name: str) -> Iterator[list[_Member]]:
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as packed:
                yield _zip_members(packed, name)
        else:
            with archive.open("rb") as file:
                raw = gzip.GzipFile(fileobj=file) if archive.name.endswith("gz") else file
                with tarfile.open(fileobj=cast(IO[bytes], _Bounded(raw, archive, name)), mode="r:") as tar:
                    yield _tar_members(tar, name)
                _read_to_the_end(raw, archive.stat().st_size, name)
    except FileNotFoundError:
        raise DataError(f"{name}: no such file; expected an archive of triples or examples") from None
    except (zipfile.BadZipFile, gzip.BadGzipFile, tarfile.TarError, EOFError, zlib.error, NotImplementedError) as error:
        raise DataError(
            f"{name}: cannot be unpacked: {error}; expected a whole {', '.join(ARCHIVE_SUFFIXES)}"
        ) from None
    except OSError as error:
        raise DataError(f"{name}: cannot be unpacked: {error.strerror or error}") from None


def _read_to_the_end(raw: gzip.GzipFile | io.BufferedReader, packed: int, name: str) -> None:
    """To the checksum of a compressed archive, which is behind all members."""
    while raw.read(_CHUNK):
        if too_dense(packed, raw.tell()):
            raise _bomb(name, "(after the last)", packed, raw.tell())


def _zip_members(packed: zipfile.ZipFile, name: str) -> list[_Member]:
    found: list[_Member] = []
    for info in packed.infolist():
        _count(found, name)
        if info.is_dir():
            continue
        mode = info.external_attr >> 28 if info.create_system == 3 else 0  # the file type of Unix
        problem = None
        if info.flag_bits & _ENCRYPTED:
            problem = "is encrypted"
        elif mode not in (0, 0o10):
            problem = "is a link or a device"
        found.append(_Member(_name(info.filename), info.file_size, problem, partial(packed.open, info)))
    return found


def _tar_members(tar: tarfile.TarFile, name: str) -> list[_Member]:
    found: list[_Member] = []
    for info in tar:
        _count(found, name)
        if info.isdir():
            continue
        problem = None if info.isfile() and not info.issparse() else "is a link or a device"
        found.append(_Member(_name(info.name), info.size, problem, partial(tar.extractfile, info)))
    return found


def _name(path: str) -> str:
    """The path of a member as most archives write it; many a tar has it with ``./`` in front."""
    return path.removeprefix("./")


def _count(found: list[_Member], name: str) -> None:
    if len(found) >= MAX_MEMBERS:
        raise DataError(f"{name}: more than {MAX_MEMBERS} files, from '{found[-1].name}' on; pack the data files alone")


def _checked(member: _Member, name: str) -> bool:
    """Refuse what no honest archive of data holds; True otherwise."""
    if member.problem is not None:
        raise DataError(f"{name}: member '{member.name}' {member.problem}; expected plain files")
    if not is_key(member.name):
        raise DataError(f"{name}: member {member.name!r} has a path that leads out of its folder, or is no path")
    return True


def _bomb(name: str, member: str, packed: int, unpacked: int) -> DataError:
    return DataError(
        f"{name}: member '{member}' takes it to {unpacked} bytes from {packed}; refused: more than {MAX_RATIO} times "
        f"its size, or than {MAX_BYTES >> 30} GiB"
    )
