"""The next batches, made in a thread while a step computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["prefetch"]

Item = TypeVar("Item")


@contextmanager
def prefetch(make: Callable[[int], Item], start: int, stop: int, *, depth: int = 2) -> Iterator[Iterator[Item]]:
    """Give ``make(start)``, ``make(start + 1)``, ... before ``stop``, in order, up to ``depth`` of them made ahead.

    An error of ``make`` is raised where its item would have come. The thread ends with the block.
    """
    ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(maxsize=depth)
    ended = threading.Event()

    def put(item: Item | None, error: BaseException | None) -> bool:
        while not ended.is_set():
            try:
                ready.put((item, error), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        for index in range(start, stop):
            try:
                item = make(index)
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that asks
                put(None, error)
                return
            if not put(item, None):
                return

    def items() -> Iterator[Item]:
        for _ in range(start, stop):
            item, error = ready.get()
            if error is not None:
                raise error
            yield item  # type: ignore[misc]  # None only beside an error

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        yield items()
    finally:
        ended.set()
        thread.join()
