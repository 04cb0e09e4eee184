"""SHA-256 of bytes and of files, as lower-case hex: the one digest that Hopline uses everywhere."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["CHUNK_BYTES", "sha256_bytes", "sha256_file"]

CHUNK_BYTES = 1 << 20
"""How many bytes are read, hashed and written at a time: memory stays bounded whatever the size of the object."""


def sha256_bytes(data: bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 of ``data`` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: str | os.PathLike[str], chunk: int = CHUNK_BYTES) -> str:
    """Return the SHA-256 of the file at ``path``, read ``chunk`` bytes at a time. Raises ``OSError``."""
    digest = hashlib.sha256()
    view = memoryview(bytearray(chunk))
    with Path(path).open("rb", buffering=0) as file:
        while count := file.readinto(view):
            digest.update(view[:count])
    return digest.hexdigest()
