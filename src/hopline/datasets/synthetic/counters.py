"""Draws of many items at once, each a pure function of its counter: (seed, purpose, stream, index, attempt, slot).

The counter of an item is mixed to a 64-bit state; the word of a slot is that of SplitMix64 (Steele et al. 2014) as many
steps on. So any word of any item is found by itself, whatever else is drawn.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopline.datasets.draws import philox_key
from hopline.datasets.ragged import Ints

__all__ = ["Counters", "Words", "high", "low", "scaled"]

Words = NDArray[np.uint64]

_STEP: Final = 0x9E3779B97F4A7C15
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)
_FIELD_BITS: Final = 20


class Counters:
    """The draws of some items.

    Args:
        seed, purpose: as for :func:`hopline.datasets.draws.philox_key`.
        streams, indices: the counter of each item, int64 ``[items]``.
        attempt: drawn anew for another attempt.
    """

    def __init__(self, seed: int, purpose: str, streams: Ints, indices: Ints, attempt: int) -> None:
        first, second = philox_key(seed, purpose)
        state = _mix(first + indices.astype(np.uint64) * np.uint64(_STEP))
        state = _mix((state ^ second) + streams.astype(np.uint64) * np.uint64(_STEP))
        self._state = _mix(state + np.uint64((attempt + 1) * _STEP % 2**64))

    def words(self, field: int, items: Ints | None = None, places: Ints | int = 0) -> Words:
        """64 random bits for some items (all, in order, by default), at ``places`` in ``[0, 2^20)`` of a field."""
        state = self._state if items is None else self._state[items]
        if isinstance(places, int):
            return _mix(state + np.uint64(((field << _FIELD_BITS) + places + 1) * _STEP % 2**64))
        slots = places.astype(np.uint64) + np.uint64((field << _FIELD_BITS) + 1)
        return _mix(state + slots * np.uint64(_STEP))


def high(words: Words) -> Words:
    """The upper 32 bits."""
    return words >> _HALF


def low(words: Words) -> Words:
    """The lower 32 bits."""
    return words & _LOW


def scaled(halves: Words, bound: Ints | int) -> Ints:
    """Integers in ``[0, bound)`` from 32 random bits each; the bias is below bound / 2^32."""
    bounds = np.uint64(bound) if isinstance(bound, int) else bound.astype(np.uint64)
    return ((halves * bounds) >> _HALF).astype(np.int64)


def _mix(x: Words) -> Words:
    """The finaliser of SplitMix64; arithmetic wraps around."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
