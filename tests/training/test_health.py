"""How a training does."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from hopline.training import World
from hopline.training.health import Clock


class Pair(World):
    """This process beside one whose figures are known."""

    def gather(self, item: Any) -> list[Any]:
        return [item, (30, 0.5, 3.0, 0)]


def clock(world: World, **options: Any) -> Clock:
    return Clock(torch.device("cpu"), world, **{"message_bytes": 100, "bandwidth": 1000.0, **options})


def at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: seconds)


def test_figures_are_those_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """G61: speed of all together, the longest wait for data, and how far apart the processes are."""
    at(monkeypatch, 100.0)
    watched = clock(Pair(size=2))
    for messages in (4, 6):
        watched.step_done(examples=16, messages=messages, own_seconds=0.5)
    at(monkeypatch, 110.0)
    assert watched.figures(6) == {
        "examples_per_second": 3.2,
        "messages_per_second": 4.0,
        "data_wait": 0.05,
        "straggler_spread": 1.0,
        "eta_seconds": 30.0,
        "bandwidth_share": 0.3,
    }
    at(monkeypatch, 120.0)
    watched.step_done(examples=50, messages=0, own_seconds=3.0)
    assert watched.figures(0)["examples_per_second"] == 5.0
    assert "bandwidth_share" not in clock(Pair(size=2), bandwidth=0.0).figures(0)


def test_waiting_is_waiting_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """G61: what passes inside the block, as a share of all."""
    at(monkeypatch, 0.0)
    watched = clock(World())
    at(monkeypatch, 3.0)
    with watched.waiting():
        at(monkeypatch, 4.0)
    at(monkeypatch, 8.0)
    watched.step_done(examples=1, messages=1, own_seconds=1.0)
    figures = watched.figures(0)
    assert (figures["data_wait"], figures["straggler_spread"]) == (0.125, 0.0)


@pytest.mark.parametrize("chunk", [4, 1000])
def test_own_time_is_that_of_computing_and_not_of_the_exchange(bench, chunk: int) -> None:
    """G61: who is slow is seen by what it does before gradients travel, in a step of one part as of many."""
    trainer = bench.trainer(bench.config(backward_chunk_size=chunk))
    batches = bench.batches(trainer.config).step(0)
    assert (len(batches.chunks) > 1) == (chunk < 1000)
    trainer.model.register_forward_pre_hook(lambda *_: time.sleep(0.05))
    parameter = next(p for p in trainer.model.parameters() if p.requires_grad)
    exchanged: list[float] = []

    def exchange(grad: torch.Tensor) -> None:
        exchanged.append(time.monotonic())
        if len(exchanged) == len(batches.chunks):
            time.sleep(0.4)

    parameter.register_hook(exchange)
    begin = time.monotonic()
    own = trainer.train_step(batches).own_seconds
    passed = time.monotonic() - begin
    assert 0.05 * len(batches.chunks) <= own <= passed - 0.4
