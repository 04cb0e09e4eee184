"""Draws are a pure function of their counter."""

from __future__ import annotations

import numpy as np
import pytest

from hopline.datasets.draws import Draws, hash64, philox_key, threshold


def test_the_stream_is_fixed_for_ever() -> None:
    draws = Draws(philox_key(0, "test"), 1, 2, 3)
    assert [draws.word() for _ in range(3)] == [8656149814515081284, 15029335946140878032, 10197999462652243394]


def test_equal_counters_give_equal_draws_and_others_do_not() -> None:
    key = philox_key(7, "a")

    def first(*counter: int) -> list[int]:
        draws = Draws(key, *counter)
        return [draws.word() for _ in range(300)]

    assert first(1, 2, 3) == first(1, 2, 3)
    streams = [first(1, 2, 3), first(2, 2, 3), first(1, 3, 3), first(1, 2, 4)]
    assert len({tuple(words) for words in streams}) == 4
    assert not np.array_equal(philox_key(7, "a"), philox_key(7, "b"))
    assert not np.array_equal(philox_key(7, "a"), philox_key(8, "a"))


def test_below_and_between_cover_their_range_evenly() -> None:
    draws = Draws(philox_key(0, "range"), 0, 0)
    counts = np.bincount([draws.below(5) for _ in range(5000)], minlength=5)
    assert counts.sum() == 5000
    assert counts.min() > 850
    assert {draws.between(3, 5) for _ in range(100)} == {3, 4, 5}


def test_shuffle_permutes_and_a_partial_shuffle_samples() -> None:
    draws = Draws(philox_key(0, "shuffle"), 0, 0)
    items = list(range(20))
    draws.shuffle(items)
    assert sorted(items) == list(range(20))
    assert items != list(range(20))
    seen = set()
    for _ in range(200):
        items = list(range(10))
        draws.shuffle(items, 2)
        assert sorted(items) == list(range(10))
        seen.update(items[:2])
    assert seen == set(range(10))


def test_weighted_follows_cumulative_weights() -> None:
    draws = Draws(philox_key(0, "weights"), 0, 0)
    counts = np.bincount([draws.weighted([1, 1, 4]) for _ in range(4000)], minlength=3)
    assert counts[1] == 0
    assert counts[0] == pytest.approx(1000, rel=0.15)


def test_hash64_depends_on_salt_and_numbers_alone() -> None:
    assert hash64(b"salt", 1, 2) == hash64(b"salt", 1, 2) == 8221593050060448704
    assert len({hash64(b"salt", 1, 2), hash64(b"salt", 2, 1), hash64(b"other", 1, 2)}) == 3


def test_threshold_is_the_share_of_all_words() -> None:
    assert (threshold(0.0), threshold(0.5), threshold(1.0)) == (0, 2**63, 2**64)
