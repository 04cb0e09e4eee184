"""Draws of many items: pure functions of their counters, fixed for ever."""

from __future__ import annotations

import numpy as np
import pytest

from hopline.datasets.synthetic.counters import Counters, high, low, scaled


def counters(indices: list[int], *, seed: int = 0, stream: int = 0, attempt: int = 1) -> Counters:
    streams = np.full(len(indices), stream, dtype=np.int64)
    return Counters(seed, "test", streams, np.array(indices, dtype=np.int64), attempt)


def test_the_words_are_fixed_for_ever() -> None:
    words = counters([0, 1, 1 << 40]).words(3, places=2)
    assert words.tolist() == [5267802928177212085, 12178773941930653339, 16176224000211331459]


def test_a_word_depends_on_its_own_counter_alone() -> None:
    many, few = counters(list(range(100))), counters([70, 3])
    np.testing.assert_array_equal(many.words(5)[[70, 3]], few.words(5))
    np.testing.assert_array_equal(few.words(5, np.array([1])), few.words(5)[1:])
    places = np.array([0, 9, 4])
    ragged = few.words(5, np.array([0, 0, 1]), places)
    assert ragged.tolist() == [int(few.words(5, places=place)[item]) for item, place in ((0, 0), (0, 9), (1, 4))]


def test_whatever_differs_in_the_counter_gives_other_words() -> None:
    words = [
        *counters([4]).words(0), *counters([5]).words(0), *counters([4], seed=1).words(0), *counters([4], stream=1).words(0),
        *counters([4], attempt=2).words(0), *counters([4]).words(1), *counters([4]).words(0, places=1),
    ]  # fmt: skip
    assert len(set(words)) == len(words)


def test_both_halves_cover_a_range_evenly_and_apart() -> None:
    words = counters(list(range(6000))).words(0)
    upper, lower = scaled(high(words), 5), scaled(low(words), np.full(6000, 3))
    table = np.zeros((5, 3), dtype=np.int64)
    np.add.at(table, (upper, lower), 1)
    assert table.sum() == 6000
    assert table.min() == pytest.approx(400, rel=0.2)
    assert table.max() == pytest.approx(400, rel=0.2)
