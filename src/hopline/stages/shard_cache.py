"""Shards of a remote root on this machine: fetched in parallel, named by their digest, and bounded in size.

Several processes may share the cache, and any of them may be killed at any time. A shard appears under its digest only
when every byte of it is right. Who fetches or opens shards holds the cache shared; who makes room holds it alone, and
gives up where that is not possible at once. Once mapped, a shard can be removed: its map stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopline.datasets import ShardInfo
from hopline.errors import ConfigError, IntegrityError, NotFoundError, StoreError
from hopline.progress import Event, EventSink, NullSink
from hopline.stages.roots import CACHE_VARIABLE, cache_folder
from hopline.storage import Store, sha256_bytes
from hopline.storage.local import os_errors
from hopline.storage.transfer import Download, download_files

__all__ = ["CACHE_BYTES_VARIABLE", "CachedShards", "cache_limit"]

CACHE_BYTES_VARIABLE: Final = "HOPLINE_CACHE_BYTES"

_DEFAULT_LIMIT: Final = 200 << 30
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_LIMIT: Final = re.compile(r"(\d+)\s*(?:([KMGT])(i?))?B?", re.IGNORECASE)


def cache_limit() -> int:
    """How many bytes of shards the cache may keep: ``HOPLINE_CACHE_BYTES``, such as 500000000 or 200GiB; else 200 GiB.

    Raises:
        ConfigError: the variable is no size.
    """
    text = os.environ.get(CACHE_BYTES_VARIABLE, "")
    if not text.strip():
        return _DEFAULT_LIMIT
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{CACHE_BYTES_VARIABLE}: found '{text}', expected a size such as 500000000 or 200GiB")
    number, unit, binary = match.groups()
    power = " KMGT".index((unit or " ").upper())
    return int(number) * (1 << 10 * power if binary else 10 ** (3 * power))


class CachedShards:
    """The shards of one dataset of a remote root, for :meth:`hopline.datasets.Dataset.open`.

    Args:
        store, prefix: where the shards lie.
        folder: of the cache; None = that of this user.
        limit: bytes that the cache may keep; None = :func:`cache_limit`.
        sink, stage: who is told of a transfer, and on whose behalf.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        *,
        folder: Path | None = None,
        limit: int | None = None,
        sink: EventSink | None = None,
        stage: str = "train",
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._folder = folder
        self._limit = limit
        self._sink = sink or NullSink()
        self._stage = stage

    @contextmanager
    def files(self, shards: Sequence[ShardInfo]) -> Iterator[list[Path]]:
        """The local files of some shards, every byte checked; they stay at least until the block ends.

        Raises:
            IntegrityError: a shard is missing, truncated or altered.
            StoreError: they do not fit on the disk or into the cache, or the store refuses or cannot be reached.
        """
        folder = cache_folder("shards") if self._folder is None else self._folder
        limit = cache_limit() if self._limit is None else self._limit
        wanted = {shard.sha256: shard for shard in shards}
        paths = {digest: folder / digest[:2] / digest for digest in wanted}
        needed = sum(shard.bytes for shard in wanted.values())
        if needed > limit:
            raise StoreError(
                f"{self._store.base_uri}/{self._prefix}: {needed} bytes of shards are needed at once, and the cache may "
                f"keep {limit}; raise {CACHE_BYTES_VARIABLE}"
            )
        fetcher = sha256_bytes("".join(sorted(wanted)).encode())
        with self._alone(cache_folder("locks") / f"shards-{fetcher}.lock"):
            _make_room(folder, wanted, limit)
            with _lock(folder) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
                self._fetch(wanted, paths, folder)
                yield [paths[shard.sha256] for shard in shards]

    def _fetch(self, wanted: dict[str, ShardInfo], paths: dict[str, Path], folder: Path) -> None:
        missing = [shard for digest, shard in wanted.items() if not paths[digest].is_file()]
        size = sum(shard.bytes for shard in missing)
        if missing:
            free = shutil.disk_usage(folder).free
            if size > free:
                raise StoreError(
                    f"{folder}: {size} bytes of shards have to be fetched, and the disk has {free} free; set "
                    f"{CACHE_VARIABLE} to a folder on a larger disk, or make room"
                )
            self._say(f"fetches {len(missing)} shards, {size / 1e6:.1f} MB, into {folder}")
        downloads = [
            Download(f"{self._prefix}/{shard.file}".lstrip("/"), paths[digest], digest, shard.bytes)
            for digest, shard in wanted.items()
        ]
        try:
            download_files(self._store, downloads)
        except NotFoundError as error:
            raise IntegrityError(
                f"{error}; a shard of the dataset is missing: run `hopline generate`, which makes it again, or restore it"
            ) from error
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreError(
                    f"{error}; {size} bytes of shards were to be fetched: set {CACHE_VARIABLE} to a folder on a larger "
                    f"disk, or lower {CACHE_BYTES_VARIABLE}"
                ) from error
            raise
        for path in paths.values():
            with os_errors("mark", path):
                os.utime(path)

    @contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """Let one process fetch some shards, and the others find them."""
        with os_errors("open", path), path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("another process fetches the same shards; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _say(self, message: str) -> None:
        self._sink.emit(Event(self._stage, "note", message))


@dataclass(frozen=True, slots=True)
class _Kept:
    path: Path
    bytes: int
    used: float


def _make_room(folder: Path, wanted: dict[str, ShardInfo], limit: int) -> None:
    """Remove the shards that were used longest ago until those that are wanted fit, and what killed processes left.

    Does nothing while another process fetches or opens shards.
    """
    with _lock(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        kept: list[_Kept] = []
        with os_errors("read", folder):
            for path in folder.glob("??/*"):
                stat = path.stat()
                if not _DIGEST.fullmatch(path.name):
                    path.unlink()  # a transfer that was killed; nobody transfers now
                elif path.name not in wanted:
                    kept.append(_Kept(path, stat.st_size, stat.st_mtime))
            missing = sum(s.bytes for digest, s in wanted.items() if not (folder / digest[:2] / digest).is_file())
            room = limit - sum(shard.bytes for shard in wanted.values()) - sum(old.bytes for old in kept)
            room = min(room, shutil.disk_usage(folder).free - missing)
            for old in sorted(kept, key=lambda old: (old.used, old.path)):
                if room >= 0:
                    break
                old.path.unlink()
                room += old.bytes


@contextmanager
def _lock(folder: Path) -> Iterator[int]:
    path = folder / "lock"
    with os_errors("open", path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
