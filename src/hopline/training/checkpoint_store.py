"""Training states in a store: several processes put their files, and one of them commits the state by writing its index.

::

    <prefix>/step-00000250/<token>/...    what the processes put; the token is new for each try
    <prefix>/step-00000250/index.json     written last: the digest of every file

A state without an index does not exist. One that is saved again at the same step is replaced at once, by the new index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hopline.errors import DataError
from hopline.storage import Store, sha256_bytes, sha256_file
from hopline.storage.folders import FolderFile, FolderIndex, delete_folder

__all__ = ["Checkpoints"]

_INDEX_KEY: Final = re.compile(rf"step-(\d+)/{re.escape(FolderIndex.FILE)}")


class Checkpoints:
    """Training states under one prefix of a store; several processes may use the same.

    Methods raise StoreError where the store refuses, is full or cannot be reached.
    """

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.prefix = prefix

    def committed(self) -> list[int]:
        """Steps of the states, rising."""
        start = f"{self.prefix}/"
        matches = (_INDEX_KEY.fullmatch(info.key.removeprefix(start)) for info in self.store.list(start))
        return sorted(int(match[1]) for match in matches if match)

    def uri(self, step: int) -> str:
        """Where the state of a step lies."""
        return self.store.uri(self._folder(step))

    def put(self, step: int, name: str, path: Path) -> FolderFile:
        """Store a file of a state that is not committed yet; ``name`` begins with the token of this try."""
        file = FolderFile(path=name, sha256=sha256_file(path), bytes=path.stat().st_size)
        self.store.put_file(f"{self._folder(step)}/{name}", path, sha256=file.sha256)
        return file

    def commit(self, step: int, files: Iterable[FolderFile]) -> None:
        """Make these files the state of ``step``, and remove what earlier tries left there."""
        index = FolderIndex(files=tuple(sorted(files, key=lambda file: file.path)))
        self.store.put_bytes(self._index(step), index.to_bytes())
        self._clear(step, {self._index(step), *(f"{self._folder(step)}/{file.path}" for file in index.files)})

    def index(self, step: int) -> tuple[FolderIndex, str]:
        """The files of a committed state, and the state's digest, which is that of the index.

        Raises:
            NotFoundError: there is no such state.
            DataError: its index is damaged.
        """
        data = self.store.get_bytes(self._index(step))
        return FolderIndex.parse(data, source=self.store.uri(self._index(step))), sha256_bytes(data)

    def read(self, step: int, file: FolderFile) -> bytes:
        """The bytes of a file of a state, checked.

        Raises:
            NotFoundError, IntegrityError: it is missing or altered.
        """
        return self.store.get_bytes(f"{self._folder(step)}/{file.path}", sha256=file.sha256)

    def fetch(self, step: int, file: FolderFile, path: Path) -> None:
        """Copy a file of a state to a local path, checked as :meth:`read`."""
        self.store.get_file(f"{self._folder(step)}/{file.path}", path, sha256=file.sha256, size=file.bytes)

    def delete(self, step: int) -> None:
        """Remove a state: first its index, so that half of it is never taken for whole."""
        delete_folder(self.store, self._folder(step))

    def sweep(self) -> None:
        """Remove the files that belong to no committed state: what a killed process left. Nobody may be saving meanwhile.

        A state whose index is damaged is left as it is: whoever restores it says so.
        """
        whole: set[str] = set()
        damaged: list[str] = []
        for step in self.committed():
            try:
                files = self.index(step)[0].files
            except DataError:
                damaged.append(f"{self._folder(step)}/")
                continue
            whole |= {self._index(step), *(f"{self._folder(step)}/{file.path}" for file in files)}
        for info in list(self.store.list(f"{self.prefix}/")):
            if info.key not in whole and not info.key.startswith(tuple(damaged)):
                self.store.delete(info.key)

    def _clear(self, step: int, keep: set[str]) -> None:
        for info in list(self.store.list(f"{self._folder(step)}/")):
            if info.key not in keep:
                self.store.delete(info.key)

    def _folder(self, step: int) -> str:
        return f"{self.prefix}/step-{step:08d}"

    def _index(self, step: int) -> str:
        return f"{self._folder(step)}/{FolderIndex.FILE}"
