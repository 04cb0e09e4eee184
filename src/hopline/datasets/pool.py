"""Worker processes: each takes one shard at a time, from the largest on."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hopline import errors
from hopline.datasets.plan import Plan
from hopline.datasets.tasks import ShardResult, ShardTask, run_task
from hopline.errors import DataError, HoplineError

__all__ = ["run_tasks"]


def run_tasks(
    plan: Plan, tasks: Sequence[ShardTask], out: Path, work: Path, workers: int, made: Callable[[int], None]
) -> Iterator[tuple[ShardTask, ShardResult]]:
    """Make shards, and hand each over as it is done.

    Args:
        plan: has been saved to ``work``.
        tasks: the shards to make.
        out, work: folders of the shards and of the work area.
        workers: processes; 1 makes the shards in this one.
        made: hears how many units were made since it last did, in the thread of the caller.

    Raises:
        HoplineError: what went wrong in a worker.
    """
    if workers <= 1:
        for task in tasks:
            yield task, run_task(plan, task, out, work, made)
        return
    waiting: queue.SimpleQueue[ShardTask] = queue.SimpleQueue()
    for task in sorted(tasks, key=lambda task: task.first - task.made):
        waiting.put(task)
    heard: queue.SimpleQueue[int | tuple[ShardTask, ShardResult] | Exception] = queue.SimpleQueue()
    pool = [_Worker(out, work, waiting, heard) for _ in range(min(workers, len(tasks)))]
    try:
        left = len(tasks)
        while left:
            message = heard.get()
            if isinstance(message, int):
                made(message)
            elif isinstance(message, Exception):
                raise message
            else:
                left -= 1
                yield message
    finally:
        for worker in pool:
            worker.stop()


class _Worker:
    """A process, and the thread that feeds it and listens to it."""

    def __init__(
        self,
        out: Path,
        work: Path,
        waiting: queue.SimpleQueue[ShardTask],
        heard: queue.SimpleQueue[int | tuple[ShardTask, ShardResult] | Exception],
    ) -> None:
        self._waiting = waiting
        self._heard = heard
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and our own module
            [sys.executable, "-m", "hopline.datasets.worker", str(work), str(out)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            encoding="utf-8",
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process, whatever it is doing, and wait for it and its thread."""
        self._process.kill()
        self._thread.join()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _serve(self) -> None:
        while True:
            try:
                task = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                self._heard.put((task, self._run(task)))
            except (HoplineError, OSError, ValueError) as error:
                self._heard.put(error)
                return

    def _run(self, task: ShardTask) -> ShardResult:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(task.model_dump_json() + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(task) from None
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "made" in message:
                self._heard.put(int(message["made"]))
            elif "error" in message:
                raise _error(message["error"], message["message"])
            else:
                return ShardResult.model_validate(message["result"])
        raise self._ended(task)

    def _ended(self, task: ShardTask) -> DataError:
        code = self._process.wait()
        return DataError(
            f"{task.file}: the process that made it ended with code {code}; if memory ran out, lower dataset.workers or "
            "dataset.shard_size, and run again to continue"
        )


def _error(name: str, message: str) -> HoplineError:
    kind = getattr(errors, name, DataError)
    if isinstance(kind, type) and issubclass(kind, HoplineError):
        return kind(message)
    return DataError(message)
