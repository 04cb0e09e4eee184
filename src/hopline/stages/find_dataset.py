"""A dataset by what a person calls it: its folder, the URI of that, or its hash."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hopline.datasets import INDEX_FILE, Dataset, DatasetIndex
from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.progress import EventSink
from hopline.stages.roots import dataset_prefix, open_root, resolve_root
from hopline.stages.shard_cache import CachedShards
from hopline.storage import Store, open_store

__all__ = ["DatasetPlace", "find_dataset"]

_HASH: Final = re.compile("[0-9a-f]{8,64}")
_WHOLE: Final = 64


class DatasetPlace:
    """Where a dataset lies.

    Args:
        store: of the dataset's folder.
        expected_hash: what it is named after, if that is a hash.

    Attributes:
        uri: of its folder.
    """

    def __init__(self, store: Store, expected_hash: str | None) -> None:
        self.uri = store.base_uri
        self._store = store
        self._expected = expected_hash

    def open(self, *, cache: Path | None = None, sink: EventSink | None = None) -> Dataset:
        """Open it, its index checked.

        Args:
            cache: where shards of a remote dataset go; None = the cache of this user.
            sink: is told of a transfer.

        Raises:
            NotFoundError: there is no index.
            DataError, IntegrityError: it is none, or was altered, or another dataset's.
        """
        local = self._store.local_path(INDEX_FILE)
        if local is not None:
            return Dataset.open(local.parent, expected_hash=self._expected)
        index = DatasetIndex.load(self._store.get_bytes(INDEX_FILE), name=f"{self.uri}/{INDEX_FILE}")
        if self._expected not in (None, index.dataset_hash):
            raise IntegrityError(
                f"{self.uri}/{INDEX_FILE}: found dataset hash {index.dataset_hash}, expected {self._expected}"
            )
        return Dataset(index, CachedShards(self._store, "", folder=cache, sink=sink, stage="generate"), name=self.uri)


def find_dataset(target: str, *, root: str | None = None) -> DatasetPlace:
    """Find a dataset.

    Args:
        target: a path, ``file://`` or ``s3://`` URI of its folder or its ``index.json``; or its hash, or the first digits
            of it, eight or more, under the root.
        root: where a hash is looked for; None = the default one.

    Raises:
        NotFoundError: no dataset of the root has such a hash.
        DataError: several have.
    """
    if _HASH.fullmatch(target) and not Path(target).exists():
        return _by_hash(target, resolve_root(root))
    folder = target.rstrip("/").removesuffix(f"/{INDEX_FILE}")
    name = folder.rpartition("/")[2]
    return DatasetPlace(open_store(folder), name if len(name) == _WHOLE and _HASH.fullmatch(name) else None)


def _by_hash(start: str, root: str) -> DatasetPlace:
    store = open_root(root)
    keys = (info.key.split("/") for info in store.list(dataset_prefix(start)))
    found = sorted({parts[1] for parts in keys if parts[2:] == [INDEX_FILE]})
    if not found:
        raise NotFoundError(
            f"{root}: no dataset has a hash that begins with {start}; give its folder, or another --root"
        )
    if len(found) > 1:
        raise DataError(f"{root}: {len(found)} datasets have a hash that begins with {start}; give more digits of it")
    return DatasetPlace(open_store(store.uri(dataset_prefix(found[0]))), found[0])
