"""The four splits, and which of them a query may belong to."""

from __future__ import annotations

from typing import Final

from hopline.datasets.draws import hash64, threshold

__all__ = ["SPLITS", "QuerySplits", "is_calibration"]

SPLITS: Final = ("train", "valid", "calibration", "test")
"""Every split, in canonical order."""

_BOUNDS: Final = (
    ("valid", threshold(0.1)),
    ("calibration", threshold(0.2)),
    ("test", threshold(0.3)),
    ("train", 2**64),
)


class QuerySplits:
    """Assigns generated queries to splits by a salted hash of their canonical form, so that no query is in two splits.

    Three tenths of all queries are kept for valid, calibration and test; how many examples each split gets is
    another matter.
    """

    def __init__(self, seed: int) -> None:
        self._salt = f"hopline-query-split:{seed}".encode()

    def key(self, *numbers: int) -> int:
        """The 64-bit key of a query in canonical form."""
        return hash64(self._salt, *numbers)

    @staticmethod
    def split(key: int) -> str:
        """The split that queries of this key belong to."""
        return next(name for name, bound in _BOUNDS if key < bound)


def is_calibration(seed: int, share: float, *numbers: int) -> bool:
    """Whether an item of valid, given as integers, is carved out for calibration."""
    return hash64(f"hopline-calibration:{seed}".encode(), *numbers) < threshold(share)
