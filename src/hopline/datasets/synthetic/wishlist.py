"""What many examples should be: kinds, hops and statuses drawn by the shares of the config."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from hopline.config import DatasetConfig
from hopline.datasets.ragged import Ints
from hopline.datasets.synthetic.counters import Counters, high, low, scaled
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

_KIND, _HOPS, _STATUS = range(3)


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

    def wishes(self, counters: Counters, split: str) -> Wishes:
        """Draw one for each item."""
        point = high(counters.words(_KIND)).astype(np.int64)
        chosen = np.searchsorted(self._bounds[:-1], point, side="right")
        kind = self._kinds[chosen]
        least, most = self._config.hop_range(split)
        words = counters.words(_HOPS)
        hops, second = (least + scaled(half, most - least + 1) for half in (high(words), low(words)))
        part = high(counters.words(_STATUS)) / 2.0**32
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
