"""A published version's folder, local or in a store, as the verifier sees it: what is there, and its bytes on demand."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from hopline.errors import DataError, NotFoundError
from hopline.lineage.names import MANIFEST
from hopline.storage import Store, open_object, open_store, split_uri
from hopline.storage.canonical import MAX_JSON_BYTES
from hopline.storage.keys import TEMPORARY_PREFIX
from hopline.storage.local import os_errors

__all__ = ["Listing", "VersionFolder", "open_version"]

_POINTER: Final = "champion.json"


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies in a folder: ``sizes`` of the ordinary files by path, paths of ``odd`` things (symbolic links, pipes, empty
    folders), and of ``unfinished`` temporary files that a killed publisher left and that no reader looks at."""

    sizes: dict[str, int] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


class VersionFolder(Protocol):
    """Reads one version's folder."""

    uri: str
    """Where it is."""
    name: str
    """Its own name: the manifest's hash where it was published."""

    def manifest(self) -> bytes:
        """Return the bytes of ``manifest.json``. Raises ``NotFoundError`` or ``StoreError``."""

    def listing(self) -> Listing:
        """List everything in the folder. Raises ``StoreError``."""

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        """Give a file as a local one, for as long as the block lasts. Raises ``NotFoundError`` or ``StoreError``."""

    def pointer(self) -> tuple[str, bytes] | None:
        """Return URI and bytes of the champion pointer beside the folder, None if there is none."""


def open_version(target: str) -> VersionFolder:
    """Open a version by its folder or by its ``manifest.json``: a local path, ``file://`` or ``s3://``.

    Raises:
        NotFoundError: there is nothing.
        DataError: it is a file of another name.
        ConfigError: the target is no location.
    """
    if target.startswith("s3://"):
        target = target.rstrip("/")
        folder = split_uri(target)[0] if target.endswith(f"/{MANIFEST}") else target
        return _StoreFolder(folder)
    path = open_store(target).local_path(MANIFEST)
    if path is None:  # another kind of store than the two there are
        return _StoreFolder(target)
    path = path.parent
    if path.is_file():
        if path.name != MANIFEST:
            raise DataError(f"{path}: expected the folder of a version or its {MANIFEST}")
        path = path.parent
    if not path.is_dir():
        raise NotFoundError(f"{target}: there is no such folder; expected the folder of a version or its {MANIFEST}")
    return _LocalFolder(path.resolve())


class _LocalFolder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.uri, self.name = str(folder), folder.name

    def manifest(self) -> bytes:
        path = self._folder / MANIFEST
        if not path.is_file():
            raise NotFoundError(f"{path}: there is no such file; expected the folder of a published version")
        return _read_small(path)

    def listing(self) -> Listing:
        found = Listing()
        with os_errors("list", self._folder):
            for base, folders, files in os.walk(self._folder, onerror=_raise):
                here = Path(base)
                for name in (*folders, *files):
                    path = here / name
                    relative = path.relative_to(self._folder).as_posix()
                    if path.is_symlink() or not (path.is_file() or path.is_dir()):
                        found.odd.append(relative)
                    elif path.is_file() and name.startswith(TEMPORARY_PREFIX):
                        found.unfinished.append(relative)
                    elif path.is_file():
                        found.sizes[relative] = path.stat().st_size
                    elif not any(path.iterdir()):
                        found.odd.append(f"{relative}/")
        return found

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        yield self._folder / path

    def pointer(self) -> tuple[str, bytes] | None:
        path = self._folder.parent / _POINTER
        return (str(path), _read_small(path)) if path.is_file() else None


class _StoreFolder:
    def __init__(self, uri: str) -> None:
        self._store: Store = open_store(uri)
        self.uri = self._store.base_uri
        self.name = self.uri.rsplit("/", 1)[-1]

    def manifest(self) -> bytes:
        return self._store.get_bytes(MANIFEST, max_bytes=MAX_JSON_BYTES)

    def listing(self) -> Listing:
        return Listing({info.key: info.size for info in self._store.list()})

    @contextmanager
    def local(self, path: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="hopline-verify-") as temporary:
            copy = Path(temporary) / Path(path).name
            self._store.get_file(path, copy, sha256=None)
            yield copy

    def pointer(self) -> tuple[str, bytes] | None:
        if self.uri.count("/") < 4:  # directly in the bucket: nothing beside it can be its model's pointer
            return None
        store, key = open_object(f"{self.uri.rsplit('/', 1)[0]}/{_POINTER}")
        found = store.get_bytes_with_etag(key)
        return None if found is None else (store.uri(key), found[0])


def _read_small(path: Path) -> bytes:
    with os_errors("read", path):
        if path.stat().st_size > MAX_JSON_BYTES:
            raise DataError(f"{path}: has more than the {MAX_JSON_BYTES} bytes that such a file may have")
        return path.read_bytes()


def _raise(error: OSError) -> None:
    raise error
