"""Work in progress: where it lies, and who may touch it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hopline.progress import Event, EventSink
from hopline.stages.requests import Request
from hopline.stages.roots import cache_folder, make_folder
from hopline.storage import Store, sha256_bytes

__all__ = ["exclusive", "held_here", "work_folder"]


@contextmanager
def exclusive(store: Store, request: Request, sink: EventSink) -> Iterator[None]:
    """Hold the request alone among the processes of this machine; a second one waits, and then finds the record.

    The lock is released when the process ends, however it ends.
    """
    with _lock_path(store, request.hash).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sink.emit(Event(request.stage, "note", "another process is doing the same work; waiting for it"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def held_here(store: Store, request_hash: str, *, since: float) -> bool | None:
    """Whether a process of this machine holds a request; None if none has tried after the time ``since``."""
    try:
        with _lock_path(store, request_hash).open() as lock:
            if os.fstat(lock.fileno()).st_mtime < since:
                return None
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return None


def work_folder(store: Store, request: Request) -> Path:
    """The local folder for work in progress: inside the root where that is a local one, else in the cache.

    It outlives a killed process, so that the next one continues.
    """
    local = store.local_path(request.work_prefix)
    if local is None:
        return cache_folder("work", request.stage, sha256_bytes(f"{store.base_uri}\n{request.hash}".encode()))
    return make_folder(local, "check the permissions of the root, or choose another with --root")


def _lock_path(store: Store, request_hash: str) -> Path:
    name = sha256_bytes(f"{store.base_uri}\n{request_hash}".encode())
    return cache_folder("locks") / f"{name}.lock"
