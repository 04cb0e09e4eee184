"""Batches made ahead in a thread."""

from __future__ import annotations

import threading
import time

import pytest

from hopline.training.prefetch import prefetch


def test_items_come_in_order_and_end() -> None:
    """D29: prefetch in a thread, in the exact order."""
    with prefetch(lambda index: index * index, 3, 50, depth=4) as items:
        assert list(items) == [index * index for index in range(3, 50)]


def test_no_more_than_the_depth_is_made_ahead() -> None:
    """D29: memory stays bounded."""
    made: list[int] = []
    with prefetch(lambda index: made.append(index) or index, 0, 1000, depth=2) as items:
        next(items)
        time.sleep(0.3)
        assert 3 <= len(made) <= 4


def test_an_error_comes_where_its_item_would_have_come() -> None:
    """D29."""

    def make(index: int) -> int:
        if index == 2:
            raise ValueError("no such item")
        return index

    with prefetch(make, 0, 9) as items:
        assert [next(items), next(items)] == [0, 1]
        with pytest.raises(ValueError, match="no such item"):
            next(items)


def test_the_thread_ends_with_the_block_also_when_nobody_takes_its_items() -> None:
    """D29: clean shutdown, also when the training fails."""

    def train() -> None:
        with prefetch(lambda index: index, 0, 1000):
            assert any(thread.name == "prefetch" for thread in threading.enumerate())
            raise KeyError("training failed")

    with pytest.raises(KeyError, match="training failed"):
        train()
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())
