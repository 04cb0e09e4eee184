"""Where the rules for a relation lead to in a graph: the entities that answer a link query, as far as rules can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hopline.datasets.rulebook import Chain, RuleBook
from hopline.datasets.train_graph import Neighbourhood, TrainGraph

__all__ = ["Reach", "RuleReach"]

_FAN_OUT: Final = 48
"""Entities that one hop of a rule is followed to from one entity."""
_REMEMBERED: Final = 500_000
"""Reached entities that are remembered, of all anchors together."""

Way = tuple[int, Chain, int]
"""The place of a rule among those for the relation, its chain, and the entity in the middle (-1: one hop)."""


class Reach(NamedTuple):
    """The entities that rules lead to.

    Attributes:
        scores: for each entity the sum of the confidences of the rules that lead to it, in millionths.
        ways: one way to each, along the best rule.
    """

    scores: dict[int, int]
    ways: dict[int, Way]


class RuleReach:
    """Follows the rules of a rule book in a graph.

    What does not depend on the single query - which fact it must not use, which of very many entities it looks at - is
    remembered for each anchor and relation.
    """

    def __init__(self, graph: TrainGraph, rules: RuleBook) -> None:
        self._graph = graph
        self._rules = rules
        self._known: dict[tuple[int, int], tuple[Reach, tuple[tuple[int, Chain, int], ...]]] = {}
        self._room = _REMEMBERED

    def reach(self, near: Neighbourhood, anchor: int, signed: int, turn: int) -> Reach:
        """The entities that the rules for a signed relation lead to from an anchor, beside the anchor itself.

        Args:
            near: says which facts must not be used: none but facts of this relation.
            anchor, signed: the query.
            turn: chooses among very many entities of one hop.
        """
        (scores, ways), rest = self._lasting(anchor, signed)
        scores, ways = scores.copy(), ways.copy()
        for place, chain, weight in rest:
            for end, middle in self._ends(near, anchor, chain, turn).items():
                scores[end] = scores.get(end, 0) + weight
                if end not in ways or place < ways[end][0]:
                    ways[end] = (place, chain, middle)
        scores.pop(anchor, None)
        return Reach(scores, ways)

    def _lasting(self, anchor: int, signed: int) -> tuple[Reach, tuple[tuple[int, Chain, int], ...]]:
        """What is the same for every query of this anchor and relation, and the rules that have to be followed anew."""
        known = self._known.get((anchor, signed))
        if known is not None:
            return known
        relations = self._graph.num_relations
        back = signed + relations if signed < relations else signed - relations
        has_loop = bool(self._graph.between(anchor, anchor))
        scores: dict[int, int] = {}
        ways: dict[int, Way] = {}
        rest: list[tuple[int, Chain, int]] = []
        for place, (chain, confidence) in enumerate(self._rules.chains_for(signed)):
            weight = int(confidence * 1_000_000)
            # The query's own fact leads from the anchor to the answer. A chain can cross it at its first hop; backwards at
            # its second, but then it ends at the anchor, which is no answer; otherwise only after a loop at the anchor.
            may_cross = chain[0] == signed or (has_loop and (signed in chain or back in chain))
            ends = None if may_cross else self._lasting_ends(anchor, chain)
            if ends is None:
                rest.append((place, chain, weight))
                continue
            for end, middle in ends.items():
                if end in scores:
                    scores[end] += weight
                else:
                    scores[end] = weight
                    ways[end] = (place, chain, middle)
        if len(scores) > self._room:
            self._known.clear()
            self._room = _REMEMBERED
        self._room -= len(scores)
        self._known[anchor, signed] = found = Reach(scores, ways), tuple(rest)
        return found

    def _lasting_ends(self, anchor: int, chain: Chain) -> dict[int, int] | None:
        """The entities that a chain leads to, each with the first one in the middle; None if they are very many."""
        follow = self._graph.follow
        firsts = follow(anchor, chain[0])
        if len(firsts) > _FAN_OUT:
            return None
        if len(chain) == 1:
            return dict.fromkeys(firsts, -1)
        ends: dict[int, int] = {}
        for middle in reversed(firsts):
            others = follow(middle, chain[1])
            if len(others) > _FAN_OUT:
                return None
            ends.update(dict.fromkeys(others, middle))
        return ends

    def _ends(self, near: Neighbourhood, anchor: int, chain: Chain, turn: int) -> dict[int, int]:
        """As :meth:`_lasting_ends`, without the facts that must stay out; of very many entities, some."""
        firsts = self._follow(near, anchor, chain[0], turn)
        if len(chain) == 1:
            return dict.fromkeys(firsts, -1)
        ends: dict[int, int] = {}
        for middle in reversed(firsts):
            ends.update(dict.fromkeys(self._follow(near, middle, chain[1], turn), middle))
        return ends

    def _follow(self, near: Neighbourhood, start: int, relation: int, turn: int) -> Sequence[int]:
        others = self._graph.follow(start, relation)
        if len(others) > _FAN_OUT:
            first = turn % len(others)
            others = [*others[first:], *others[:first]][:_FAN_OUT]
        if near.is_blocked(start, relation):
            return [other for other in others if near.may_cross(start, relation, other)]
        return others
