"""How a training does: speed, waiting, memory, and how far apart its processes are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hopline.training.distributed import World

__all__ = ["Clock", "Stopwatch"]


class Stopwatch:
    """Seconds between two places of a step, by the device's own clock where it works behind the host's back."""

    def __init__(self, device: torch.device) -> None:
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        if device.type == "cuda":
            first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            self._events = first, second
        self._start = self._stop = 0.0

    def start(self) -> None:
        """The first place."""
        self._start = time.monotonic()
        if self._events is not None:
            self._events[0].record()

    def stop(self) -> None:
        """The second place."""
        self._stop = time.monotonic()
        if self._events is not None:
            self._events[1].record()

    def seconds(self) -> float:
        """How long it took. On CUDA something has to have been read back since: this waits for nothing."""
        if self._events is not None:
            return float(self._events[0].elapsed_time(self._events[1])) / 1000
        return self._stop - self._start


class Clock:
    """Figures of the steps since the last time they were asked for.

    Args:
        device: of this process.
        world: the processes.
        message_bytes: bytes that a message of a graph moves in a step, over all layers.
        bandwidth: bytes a second that this device can copy; 0 = not known.
    """

    def __init__(self, device: torch.device, world: World, *, message_bytes: int, bandwidth: float) -> None:
        self._device = device
        self._world = world
        self._message_bytes = message_bytes
        self._bandwidth = bandwidth
        self.reset()

    def reset(self) -> None:
        """Start anew; what came before was no training."""
        self._start = time.monotonic()
        self._wait = self._own = 0.0
        self._examples = self._messages = self._steps = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting for data."""
        start = time.monotonic()
        yield
        self._wait += time.monotonic() - start

    def step_done(self, *, examples: int, messages: int, own_seconds: float) -> None:
        """Count a step.

        Args:
            examples: scored rows of all processes.
            messages: messages of this process.
            own_seconds: what this process computed before the backward pass in which gradients are exchanged.
        """
        self._examples += examples
        self._messages += messages
        self._own += own_seconds
        self._steps += 1

    def figures(self, steps_to_go: int) -> dict[str, float]:
        """Figures of all processes, and start anew; collective.

        ``examples_per_second`` and ``messages_per_second`` of all together; ``bandwidth_share``, the part of what memory
        can copy that the messages need at least; ``data_wait``, the share of the time that the slowest loader was waited
        for; ``straggler_spread``, by how much of their mean the slowest and the fastest process differ in their own
        computing (those of a sharded model wait for each other while they compute); ``eta_seconds``; ``memory_bytes``,
        the most that a GPU held.
        """
        elapsed = max(time.monotonic() - self._start, 1e-9)
        memory = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else 0
        everywhere = self._world.gather((self._messages, self._wait, self._own, memory))
        messages, waits, own, memories = zip(*everywhere, strict=True)
        mean = sum(own) / len(own)
        values = {
            "examples_per_second": round(self._examples / elapsed, 1),
            "messages_per_second": round(sum(messages) / elapsed, 1),
            "data_wait": round(max(waits) / elapsed, 4),
            "straggler_spread": round((max(own) - min(own)) / mean, 4) if mean > 0 else 0.0,
            "eta_seconds": round(steps_to_go * elapsed / max(self._steps, 1), 1),
        }
        if self._bandwidth > 0:
            moved = max(messages) * self._message_bytes / elapsed
            values["bandwidth_share"] = round(moved / self._bandwidth, 4)
        if self._device.type == "cuda":
            values["memory_bytes"] = float(max(memories))
        self.reset()
        return values
