"""The ``Store`` protocol: what the rest of Hopline may ask of a place that keeps bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from hopline.errors import StoreError

__all__ = ["ObjectInfo", "PreconditionFailed", "Store"]


class PreconditionFailed(StoreError):  # noqa: N818 - the name that HTTP gives it (412 Precondition Failed)
    """A compare-and-swap lost its race: the object is no longer what the caller had read. Read again, decide again."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of one object without sending its bytes.

    ``etag`` names the content for ``compare_and_swap``; it is None where finding it would mean to read a large object
    (``get_bytes_with_etag`` always has it). ``sha256`` is hex, and None where the store does not know it.
    """

    key: str
    size: int
    etag: str | None
    sha256: str | None = None


@runtime_checkable
class Store(Protocol):
    """Objects under one base URI. Keys are relative POSIX paths (``validate_key``). Safe to use from several threads.

    Every method may raise ``StoreAccessError`` (the store refuses: rights, bucket, region), ``StoreUnavailableError``
    (no answer after every retry), ``StoreError`` (anything else that the store cannot do) and ``ConfigError`` (a key that
    is none).
    """

    @property
    def base_uri(self) -> str:
        """The URI under which all keys of this store lie, without a trailing slash."""

    def uri(self, key: str) -> str:
        """Return the full URI of ``key``; ``open_object`` leads back from it."""

    def put_file(self, key: str, path: Path, *, sha256: str, if_absent: bool = True) -> None:
        """Store the file at ``path`` under ``key``, streamed; visible all at once or not at all.

        With ``if_absent`` an object that is already there with the same bytes is success, and with other bytes an
        ``IntegrityError``; without it the object is replaced. Raises ``IntegrityError`` if the bytes do not have ``sha256``
        (nothing is stored then) and ``NotFoundError`` if there is no such file.
        """

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Store ``data`` under ``key``, all at once. ``if_absent`` as for ``put_file``."""

    def get_bytes(self, key: str, *, sha256: str | None = None, max_bytes: int | None = None) -> bytes:
        """Return the object's bytes.

        Raises ``NotFoundError``, and ``IntegrityError`` if they do not have ``sha256`` or are more than ``max_bytes``.
        """

    def get_bytes_with_etag(self, key: str) -> tuple[bytes, str] | None:
        """Return the object's bytes with the etag for ``compare_and_swap``, or None if there is no such object."""

    def get_file(self, key: str, path: Path, *, sha256: str | None, size: int | None = None) -> None:
        """Write the object to ``path``, streamed and checked; ``path`` appears only when every byte is right.

        Raises ``NotFoundError``, and ``IntegrityError`` if digest or size are not those asked for (None: not checked).
        """

    def head(self, key: str) -> ObjectInfo | None:
        """Return what is known of the object, or None if there is none."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose key begins with ``prefix`` (any string that may begin a key), sorted by key."""

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there is no error."""

    def compare_and_swap(self, key: str, data: bytes, *, expected_etag: str | None) -> str:
        """Store ``data`` if the object still has ``expected_etag`` (None: if there is none), and return the new etag.

        Raises ``PreconditionFailed`` if another writer came first.
        """

    def local_path(self, key: str) -> Path | None:
        """Return the object's own path where it is a local file, so that it can be memory-mapped in place; else None."""
