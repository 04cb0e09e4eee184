"""Which units a step draws: a pure function of (seed, step), so that the cursor of a run is one integer.

The order of an epoch is a permutation without a table: a Feistel network over the next power of four, walked until it
falls inside (cycle walking; Black and Rogaway 2002). Any position is found in constant time and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopline.datasets.draws import philox_key
from hopline.errors import ConfigError

__all__ = ["BatchSampler", "Eligible", "UnitSet", "epoch_order", "permute"]

_ROUNDS: Final = 6
_BLOCK_BYTES: Final = 32


def epoch_order(seed: int, epoch: int, length: int) -> NDArray[np.int64]:
    """The whole order of one epoch, int64 ``[length]``: a permutation of ``[0, length)``."""
    return permute(np.arange(length, dtype=np.int64), length, seed=seed, epoch=epoch)


def permute(positions: NDArray[np.int64], length: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Where a permutation of ``[0, length)`` takes some positions.

    Args:
        positions: each in ``[0, length)``.
        length: size of the set, below 2^62.
        seed, epoch: choose the permutation.
    """
    if length < 2:
        return positions.copy()
    half = np.uint64(max(1, ((length - 1).bit_length() + 1) // 2))
    keys = np.random.Philox(key=philox_key(seed, "epoch-order"), counter=np.array([0, epoch, 0, 0], np.uint64))
    round_keys = keys.random_raw(_ROUNDS)
    values = positions.astype(np.uint64)
    pending = np.arange(len(values))
    while len(pending):
        values[pending] = _feistel(values[pending], half, round_keys)
        pending = pending[values[pending] >= length]
    return values.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class UnitSet:
    """Some of the units of a split, in one bit for each unit of the split.

    Attributes:
        bits: uint8 ``[blocks, 32]``; each row says of 256 units whether they are in the set.
        starts: int64 ``[blocks + 1]``; how many units of the set come before each block.
    """

    bits: NDArray[np.uint8]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, admitted: NDArray[np.bool_]) -> UnitSet:
        """The set of the units for which ``admitted``, bool ``[units]``, is true."""
        packed = np.packbits(admitted)
        bits = np.pad(packed, (0, -len(packed) % _BLOCK_BYTES)).reshape(-1, _BLOCK_BYTES)
        return cls(bits, np.cumsum([0, *np.bitwise_count(bits).sum(1, dtype=np.int64)]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def select(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The units at some positions of the set, which is sorted; int64 ``[.]``, each position in ``[0, len(self))``."""
        block = np.searchsorted(self.starts, positions, side="right") - 1
        count = np.cumsum(np.unpackbits(self.bits[block], axis=1), axis=1, dtype=np.int64)
        inside = np.argmax(count > (positions - self.starts[block])[:, None], axis=1)
        units: NDArray[np.int64] = block * (8 * _BLOCK_BYTES) + inside
        return units


@dataclass(frozen=True, slots=True, eq=False)
class Eligible:
    """Before step ``until_step`` only ``units`` are drawn, of which there is at least one."""

    until_step: int
    units: UnitSet


class BatchSampler:
    """Batches of units, epoch after epoch without end.

    A batch that the end of an epoch leaves short is completed from the next epoch, so that all have the same size.

    Args:
        length: units of the split.
        batch_size: units of a batch.
        seed: chooses the order.
        eligible: stages of a curriculum, by rising ``until_step``; after the last, every unit is drawn.

    Raises:
        ConfigError: there is nothing to draw.
    """

    def __init__(self, length: int, batch_size: int, seed: int, *, eligible: Sequence[Eligible] = ()) -> None:
        if length < 1 or batch_size < 1:
            raise ConfigError(f"nothing to draw: {length} examples in batches of {batch_size}")
        for stage in eligible:
            if not len(stage.units):
                raise ConfigError(
                    f"training.curriculum: the stage until step {stage.until_step} admits no example of the training split"
                )
        self.length = length
        self.batch_size = batch_size
        self._seed = seed
        self._eligible = tuple(eligible)

    def units(self, step: int) -> NDArray[np.int64]:
        """The units of one step, int64 ``[batch_size]``."""
        start = 0
        for number, stage in enumerate(self._eligible):
            if step < stage.until_step:
                return stage.units.select(self._positions(step - start, len(stage.units), number + 1))
            start = stage.until_step
        return self._positions(step - start, self.length, 0)

    def _positions(self, batch: int, length: int, stage: int) -> NDArray[np.int64]:
        index = batch * self.batch_size + np.arange(self.batch_size, dtype=np.int64)
        epochs, positions = np.divmod(index, length)
        drawn = np.empty_like(positions)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            drawn[here] = permute(positions[here], length, seed=self._seed, epoch=(stage << 40) + int(epoch))
        return drawn


def _feistel(values: NDArray[np.uint64], half: np.uint64, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One pass of a balanced Feistel network over ``2 * half`` bits; a bijection whatever the round function is."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right + key) & mask)
    return (left << half) | right


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014); arithmetic wraps around."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
