"""Array work on ragged data, against the same in plain Python."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hopline.datasets.ragged import expand, first_of_run, offsets_of, rank_in_run, width_in_bits, within

counts = st.lists(st.integers(0, 4), max_size=20)


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(counts)
def test_runs_by_their_counts(sizes: list[int]) -> None:
    assert offsets_of(ints(sizes)).tolist() == [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    assert within(ints(sizes)).tolist() == [place for size in sizes for place in range(size)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), max_size=20))
def test_expand_lists_every_index_of_every_owner(runs: list[tuple[int, int]]) -> None:
    owner, index = expand(ints([first for first, _ in runs]), ints([count for _, count in runs]))
    expected = [(number, first + place) for number, (first, count) in enumerate(runs) for place in range(count)]
    assert list(zip(owner.tolist(), index.tolist(), strict=True)) == expected


@given(st.lists(st.integers(0, 3), max_size=30))
def test_runs_of_equal_values(values: list[int]) -> None:
    runs = [len(list(group)) for _, group in groupby(values)]
    assert first_of_run(ints(values)).tolist() == [place == 0 for size in runs for place in range(size)]
    assert rank_in_run(ints(values)).tolist() == [place for size in runs for place in range(size)]


@given(st.integers(1, 1 << 40))
def test_bits_hold_every_integer_below_the_bound(bound: int) -> None:
    assert bound - 1 < 1 << width_in_bits(bound)
    assert bound <= 2 or bound > 1 << (width_in_bits(bound) - 1)
