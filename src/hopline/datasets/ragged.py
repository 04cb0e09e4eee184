"""Array work on ragged data: many short runs of values, one after the other, with the offsets at which they begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Ints", "expand", "first_of_run", "offsets_of", "rank_in_run", "width_in_bits", "within"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def offsets_of(counts: Ints) -> Ints:
    """Where each run begins and the last one ends, ``[n + 1]``."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def within(counts: Ints) -> Ints:
    """0 to count - 1 for each count in turn."""
    offsets = offsets_of(counts)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)


def expand(first: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """For each owner ``i`` the indices ``first[i]`` to ``first[i] + counts[i] - 1``: owners and indices, flat."""
    offsets = offsets_of(counts)
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], counts)


def first_of_run(values: Ints) -> Bools:
    """Whether each value differs from the one before it."""
    first = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def rank_in_run(values: Ints) -> Ints:
    """How many equal values stand directly before each value."""
    places = np.arange(len(values))
    return places - np.maximum.accumulate(np.where(first_of_run(values), places, 0))


def width_in_bits(bound: int) -> int:
    """Bits that hold every integer in ``[0, bound)``."""
    return max(bound - 1, 1).bit_length()
