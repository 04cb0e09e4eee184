"""Lines of a text file, compressed or not, hashed while they are read."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopline.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["MAX_RATIO", "numbered_lines", "too_dense"]

MAX_RATIO: Final = 200
"""Text grows at most so many times when it is unpacked; what grows more was made to fill a disk."""

_ALWAYS_ALLOWED: Final = 64 << 20
_MAX_LINE: Final = 64 << 20


def numbered_lines(path: Path, *, sha256: str | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1; those of a name that ends in ``.gz`` are unpacked.

    Args:
        path: the file.
        sha256: digest that the file has been asked for under. The bytes are hashed as they are read, so that what was
            parsed is what was hashed, also where somebody writes to the file meanwhile.

    Raises:
        DataError: the file is missing, cannot be read or unpacked, holds a line of more than 64 MiB, unpacks to more than
            ``MAX_RATIO`` times its size, or (after the last line) has another digest.
    """
    try:
        with path.open("rb", buffering=0) as raw:
            size = path.stat().st_size
            hashed = _HashedReader(raw)
            packed = path.suffix == ".gz"
            text = gzip.GzipFile(fileobj=hashed, mode="rb") if packed else io.BufferedReader(hashed, 1 << 20)
            unpacked = 0
            with text:
                number = 0
                while line := text.readline(_MAX_LINE + 1):
                    number += 1
                    unpacked += len(line)
                    if len(line) > _MAX_LINE:
                        raise DataError(f"{path}:{number}: a line of more than {_MAX_LINE >> 20} MiB; expected text")
                    if packed and too_dense(size, unpacked):
                        raise DataError(
                            f"{path}:{number}: unpacks to more than {MAX_RATIO} times its size; refused: no text does that"
                        )
                    yield number, line
            if sha256 is not None and (found := hashed.digest()) != sha256:
                raise DataError(
                    f"{path}: changed since it was hashed: found sha256 {found}, expected {sha256}; run again, and "
                    "remove it first if it is a copy in the cache"
                )
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked: {error}; expected a whole gzip file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def too_dense(packed: int, unpacked: int) -> bool:
    """Whether so many bytes cannot honestly come from so few."""
    return unpacked > _ALWAYS_ALLOWED and unpacked > MAX_RATIO * packed


class _HashedReader(io.RawIOBase):
    """Passes bytes on from a file, in order, and hashes them."""

    def __init__(self, raw: io.RawIOBase | io.FileIO) -> None:
        self._raw = raw
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = self._raw.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        return count

    def digest(self) -> str:
        """The digest of the whole file; reads what nobody has asked for."""
        while data := self._raw.read(1 << 20):
            self._digest.update(data)
        return self._digest.hexdigest()
