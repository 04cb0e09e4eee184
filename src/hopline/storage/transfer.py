"""Many files at once, to a store and from it: in parallel, every byte checked, and the first error stops the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hopline.errors import DataError
from hopline.storage.digest import sha256_file
from hopline.storage.keys import validate_key
from hopline.storage.local import os_errors
from hopline.storage.store import Store

__all__ = ["Download", "Upload", "download_files", "fetch_folder", "upload_files"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Upload:
    """A local file to store: its key there, where it is, its SHA-256 (hex) and its size in bytes."""

    key: str
    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Download:
    """An object to fetch: its key, where to write it, and the SHA-256 (hex) and size in bytes that it must have."""

    key: str
    path: Path
    sha256: str
    size: int


def upload_files(
    store: Store, items: Iterable[Upload], *, workers: int = 8, on_bytes: Callable[[int], None] | None = None
) -> None:
    """Store every file, each only if absent. ``on_bytes`` gets a file's size when it is stored, from one thread at a time.

    Raises the first error of ``Store.put_file``; transfers not yet begun are dropped then. What was stored stays: it is
    complete, and a second call finds it.
    """

    def send(item: Upload) -> int:
        store.put_file(item.key, item.path, sha256=item.sha256, if_absent=True)
        return item.size

    _in_parallel(send, list(items), workers, on_bytes)


def download_files(
    store: Store, items: Iterable[Download], *, workers: int = 8, on_bytes: Callable[[int], None] | None = None
) -> None:
    """Fetch every object to its path; a file that is already there with the right bytes is kept. ``on_bytes`` as above.

    Raises the first error of ``Store.get_file`` (missing, truncated, altered); transfers not yet begun are dropped then.
    """

    def receive(item: Download) -> int:
        if not _is_whole(item):
            store.get_file(item.key, item.path, sha256=item.sha256, size=item.size)
        return item.size

    _in_parallel(receive, list(items), workers, on_bytes)


def fetch_folder(
    store: Store,
    prefix: str,
    index: Sequence[tuple[str, str, int]],
    dest: Path,
    *,
    workers: int = 8,
    on_bytes: Callable[[int], None] | None = None,
) -> None:
    """Fetch the files of ``index`` - (name, sha256, size) each - from under ``prefix`` into the folder ``dest``.

    The names come from a manifest that somebody else may have written: each must be a key, so none can leave ``dest``.
    Raises ``ConfigError`` for one that is none, ``DataError`` for one that stands twice, and what ``download_files`` raises.
    """
    start = f"{prefix.rstrip('/')}/" if prefix else ""
    items = [Download(start + name, Path(dest) / validate_key(name), sha256, size) for name, sha256, size in index]
    names = [name for name, _, _ in index]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{store.uri(start + twice)} stands twice in the list of files; expected each name once")
    download_files(store, items, workers=workers, on_bytes=on_bytes)


def _is_whole(item: Download) -> bool:
    with os_errors("read", item.path):
        return item.path.is_file() and item.path.stat().st_size == item.size and sha256_file(item.path) == item.sha256


def _in_parallel(
    work: Callable[[T], int], items: Sequence[T], workers: int, on_bytes: Callable[[int], None] | None
) -> None:
    stop, report = threading.Event(), threading.Lock()

    def one(item: T) -> None:
        if stop.is_set():
            return
        try:
            done = work(item)
            if on_bytes is not None:
                with report:
                    on_bytes(done)
        except BaseException:
            stop.set()  # here, so that this thread does not begin another before the caller looks
            raise

    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(items))), thread_name_prefix="transfer") as pool:
        futures: list[Future[None]] = [pool.submit(one, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # also when the user interrupts: what runs is finished, what waits is dropped
            stop.set()
            for future in futures:
                future.cancel()
    for future in futures:
        if not future.cancelled():
            future.result()
