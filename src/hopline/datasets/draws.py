"""Random draws as a pure function of a counter: (seed, purpose, stream, index, attempt) -> Philox words.

Only raw 64-bit words of Philox4x64-10 are used (Salmon et al. 2011), never the distributions of a library, whose
algorithms may change from version to version: the same counter gives the same example on every machine.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import MutableSequence, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draws", "hash64", "philox_key", "threshold"]

T = TypeVar("T")

_FIRST: Final = 96
_MORE: Final = 192


def philox_key(seed: int, purpose: str) -> NDArray[np.uint64]:
    """The Philox key of one purpose under a seed."""
    return np.frombuffer(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:16], dtype="<u8")


def hash64(salt: bytes, *numbers: int) -> int:
    """A salted 64-bit hash of some integers: the same on every machine and in every process."""
    data = struct.pack(f"<{len(numbers)}q", *numbers)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=salt[:64]).digest(), "little")


def threshold(share: float) -> int:
    """The bound below which a word of 64 bits falls with probability ``share``."""
    return min(int(share * 2.0**64), 2**64)


class Draws:
    """The stream of draws made for one item; equal arguments give equal draws.

    Args:
        key: from :func:`philox_key`.
        stream, index, attempt: the counter, each in ``[0, 2^64)``.
    """

    __slots__ = ("_bits", "_position", "_words")

    def __init__(self, key: NDArray[np.uint64], stream: int, index: int, attempt: int = 0) -> None:
        self._bits = np.random.Philox(key=key, counter=np.array([0, index, stream, attempt], dtype=np.uint64))
        self._words: list[int] = self._bits.random_raw(_FIRST).tolist()
        self._position = 0

    def word(self) -> int:
        """The next 64 random bits."""
        if self._position == len(self._words):
            self._words = self._bits.random_raw(_MORE).tolist()
            self._position = 0
        self._position += 1
        return self._words[self._position - 1]

    def below(self, bound: int) -> int:
        """An integer in ``[0, bound)``; the bias is below bound / 2^64."""
        return (self.word() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        """An integer in ``[low, high]``."""
        return low + ((self.word() * (high - low + 1)) >> 64)

    def choice(self, items: Sequence[T]) -> T:
        """One of the items, which must not be empty."""
        return items[(self.word() * len(items)) >> 64]

    def weighted(self, cumulative: Sequence[int]) -> int:
        """An index, by cumulative integer weights."""
        point = self.below(cumulative[-1])
        return next(index for index, bound in enumerate(cumulative) if point < bound)

    def shuffle(self, items: MutableSequence[T], count: int | None = None) -> None:
        """Bring a uniform sample to the first ``count`` places (all places by default), in random order."""
        last = len(items) - 1
        for i in range(last if count is None else min(count, last)):
            j = i + self.below(last - i + 1)
            items[i], items[j] = items[j], items[i]
