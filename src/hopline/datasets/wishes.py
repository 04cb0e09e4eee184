"""What an example drawn from triples should be: its kind, its hops and its status, by the shares of the config."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from hopline.config import DatasetConfig
from hopline.datasets.draws import Draws, threshold
from hopline.graph import AnswerMode, QueryKind, Status

__all__ = ["Wish", "WishList"]

_PLAIN_AFTER: Final = 64
"""Attempts after which a supported example will do."""
_KIND_AFTER: Final = 192
"""Attempts after which another kind will do; so on every that many."""

_MODES: Final = {
    QueryKind.MULTI_HOP: AnswerMode.ENTITIES,
    QueryKind.COUNT: AnswerMode.COUNT,
    QueryKind.AGGREGATE: AnswerMode.AGGREGATE,
    QueryKind.BOOLEAN: AnswerMode.BOOLEAN,
    QueryKind.RELATION: AnswerMode.RELATION,
}


@dataclass(frozen=True, slots=True)
class Wish:
    """One example to make; ``second_hops`` is for the other chain of an aggregate."""

    kind: QueryKind
    hops: int
    second_hops: int
    status: Status

    @property
    def mode(self) -> AnswerMode:
        return _MODES[self.kind]

    def relaxed(self, attempt: int, wishes: WishList) -> Wish:
        """What will do after so many attempts: no cut and no contradiction, and in the end another kind."""
        if attempt < _PLAIN_AFTER:
            return self
        turn = wishes.kinds.index(self.kind) + attempt // _KIND_AFTER
        kind = wishes.kinds[turn % len(wishes.kinds)]
        return replace(self, kind=kind, status=Status.SUPPORTED, hops=wishes.allowed(kind, self.hops))


class WishList:
    """The shares of a config, but of link queries: those are not drawn, every triple is one.

    Attributes:
        kinds: the kinds with a share; empty if nothing is generated.
    """

    def __init__(self, config: DatasetConfig) -> None:
        shares = {kind: getattr(config.kinds, kind.value) for kind in QueryKind}
        self.kinds = tuple(kind for kind, share in shares.items() if share and kind is not QueryKind.LINK)
        self._cumulative = list(accumulate(int(shares[kind] * 1_000_000) + 1 for kind in self.kinds))
        self._config = config
        self._missing = threshold(config.missing_share)
        self._contradicted = threshold(min(1.0, config.missing_share + config.contradicted_share))

    def wish(self, draws: Draws, split: str) -> Wish:
        """Draw one."""
        kind = self.kinds[draws.weighted(self._cumulative)]
        low, high = self._config.hop_range(split)
        hops, second = draws.between(low, high), draws.between(low, high)
        word = draws.word()
        status = Status.SUPPORTED
        if word < self._contradicted:
            status = Status.MISSING if word < self._missing else Status.CONTRADICTED
        return Wish(kind, self.allowed(kind, hops), second, status)

    def allowed(self, kind: QueryKind, hops: int) -> int:
        """The hops that a kind takes: an entity query of one hop would be read as a link query."""
        if kind is QueryKind.MULTI_HOP and hops == 1 and self._config.max_hops > 1:
            return 2
        return hops
