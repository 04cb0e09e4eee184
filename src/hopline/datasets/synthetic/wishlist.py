"""What many examples should be: kinds, hops and statuses by the shares of the config.

Wishes are not drawn at random but spread evenly: example ``i`` takes point ``i`` of a low-discrepancy sequence (R4 of
Roberts 2018), shifted by a random amount for each split. So also a small split holds each kind, length and status, and
each of their combinations, nearly in the shares that the config gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from hopline.config import DatasetConfig
from hopline.datasets.ragged import Ints
from hopline.datasets.splits import SPLITS
from hopline.datasets.synthetic.counters import Counters, Words, high, scaled
from hopline.graph import KINDS, STATUSES, QueryKind, Status

__all__ = [
    "AGGREGATE",
    "BOOLEAN",
    "CONTRADICTED",
    "LINK",
    "MISSING",
    "MULTI_HOP",
    "RELATION",
    "SUPPORTED",
    "WishDrawer",
    "Wishes",
]

LINK, MULTI_HOP, AGGREGATE, BOOLEAN, RELATION = (
    KINDS.index(kind)
    for kind in (QueryKind.LINK, QueryKind.MULTI_HOP, QueryKind.AGGREGATE, QueryKind.BOOLEAN, QueryKind.RELATION)
)
SUPPORTED, MISSING, CONTRADICTED = (
    STATUSES.index(status) for status in (Status.SUPPORTED, Status.MISSING, Status.CONTRADICTED)
)

PLAIN_AFTER: Final = 16
"""Attempts after which a supported example will do."""
KIND_AFTER: Final = 32
"""Attempts after which another kind will do; so on every that many."""

_STEPS: Final[Words] = np.array(
    [0xDB4F0B9175AE2165, 0xBBE0563303A4615F, 0xA0F2EC75A1FE1575, 0x89E182857D9ED689], dtype=np.uint64
)
"""2^64 / x, / x^2, / x^3 and / x^4, where x^5 = x + 1: one step along the sequence in each of its four dimensions."""


@dataclass(frozen=True, slots=True, eq=False)
class Wishes:
    """Some examples to make, each array ``[B]``: indices into KINDS, hops, hops of the second chain, into STATUSES."""

    kind: Ints
    hops: Ints
    second_hops: Ints
    status: Ints

    def take(self, items: Ints) -> Wishes:
        """Some of them."""
        return Wishes(self.kind[items], self.hops[items], self.second_hops[items], self.status[items])


class WishDrawer:
    """Draws wishes by the shares of a config."""

    def __init__(self, config: DatasetConfig) -> None:
        shares = {KINDS.index(kind): getattr(config.kinds, kind.value) for kind in QueryKind}
        self._kinds = np.array([kind for kind, share in shares.items() if share], dtype=np.int64)
        total = sum(shares.values())
        self._bounds = np.array(
            [min(int(bound / total * 2.0**32), 2**32) for bound in accumulate(shares[kind] for kind in self._kinds)]
        )
        self._config = config

    def wishes(self, split: str, indices: Ints, versions: Ints) -> Wishes:
        """One for each of some examples of a split; another version is another point of the sequence."""
        stream = np.array([SPLITS.index(split)], dtype=np.int64)
        shift = Counters(self._config.seed, "wishes", stream, np.zeros_like(stream), 0)
        places = indices.astype(np.uint64) + (versions.astype(np.uint64) << np.uint64(32))
        shifts = shift.words(0, np.zeros(len(_STEPS), dtype=np.int64), np.arange(len(_STEPS)))
        for_kind, for_hops, for_second, for_status = high(shifts[:, None] + _STEPS[:, None] * places)
        kind = self._kinds[np.searchsorted(self._bounds[:-1], for_kind.astype(np.int64), side="right")]
        least, most = self._config.hop_range(split)
        hops, second = (least + scaled(half, most - least + 1) for half in (for_hops, for_second))
        part = for_status / 2.0**32
        missing = self._config.missing_share
        excluded = part < min(1.0, missing + self._config.contradicted_share)
        status = np.where(excluded, np.where(part < missing, MISSING, CONTRADICTED), SUPPORTED)
        return Wishes(kind, self._allowed(kind, hops), second, status)

    def relaxed(self, wishes: Wishes, attempt: int) -> Wishes:
        """What will do after so many attempts: no cut and no contradiction, and in the end another kind."""
        if attempt < PLAIN_AFTER:
            return wishes
        turns = np.searchsorted(self._kinds, wishes.kind) + attempt // KIND_AFTER
        kind = self._kinds[turns % len(self._kinds)]
        plain = np.full_like(wishes.status, SUPPORTED)
        return Wishes(kind, self._allowed(kind, wishes.hops), wishes.second_hops, plain)

    def _allowed(self, kind: Ints, hops: Ints) -> Ints:
        """The hops that a kind takes: an entity query of one hop would be read as a link query."""
        short = (kind == MULTI_HOP) & (hops == 1) & (self._config.max_hops > 1)
        return np.where(short, 2, hops)
