"""Trainings that kill themselves: ``killed_training.py DATASET FOLDER PLACE...``; the tests run it.

Each place has a process of its own, forked before torch has started any thread, and a folder ``FOLDER/PLACE``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from conftest import Bench

from hopline.datasets import Dataset
from hopline.training import Checkpoints, candidate


def die(states: Checkpoints) -> None:
    """Be killed, once there is a state: it is written beside the steps that follow it."""
    while not states.committed():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def when(module: Any, name: str, calls: int, states: Checkpoints) -> None:
    """Die at a call of a function, counted from 1."""
    original = getattr(module, name)
    count = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == calls:
            die(states)
        return original(*arguments, **options)

    setattr(module, name, counted)


def train(dataset: str, folder: Path, place: str) -> None:
    bench = Bench(Dataset.open(Path(dataset)), folder)
    states, options = bench.states(), dict[str, Any]()
    if place == "step":
        options["on_step"] = lambda output: die(states) if output.step == 6 else None
    elif place == "evaluation":
        options["score"] = lambda step: die(states) if step == 8 else (step * 7 % 11) / 11
    elif place == "candidate":
        when(candidate, "sha256_file", 7, states)  # amid the second candidate
    elif place == "write":
        when(Checkpoints, "put", 6, states)  # amid the files of the second state; each has four
    elif place == "commit":
        when(Checkpoints, "commit", 2, states)  # the files of the second state are there, and its index is not
    elif place == "retention":
        when(Checkpoints, "delete", 1, states)  # the last state is committed, the first one is still there
    bench.run(bench.config(max_steps=12), **options)


def main(dataset: str, folder: str, *places: str) -> None:
    for place in places:
        child = os.fork()
        if not child:
            train(dataset, Path(folder) / place, place)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise SystemExit(f"{place}: was not killed, status {status}")


if __name__ == "__main__":
    main(*sys.argv[1:])
