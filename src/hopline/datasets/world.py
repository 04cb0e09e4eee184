"""A synthetic world: relations that compose, invert and sometimes are functions, like kinship.

Behind the relations is a finite group of ``R + 1`` elements. Every entity has a hidden state in it, every relation is
one element other than the identity, and ``r(x, y)`` can hold only if ``state(x) * element(r) = state(y)``. So relations
are closed under composition and inversion, and no two facts of a world contradict each other. Where possible the group
is not commutative: the order of relations matters.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from hopline.datasets.draws import Draws, philox_key
from hopline.datasets.patterns import Patterns
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.vocabulary import Rule, Vocabulary

__all__ = ["World", "group_table"]

_RULES: Final = 4
"""Rules of two hops drawn for each relation; the inverse relation gets their inverses too."""


def group_table(order: int) -> list[list[int]]:
    """The multiplication table of a group of some order; 0 is the identity.

    It is a semidirect product of two cyclic groups where there is one that is not commutative, else the cyclic group.
    """
    for k in range(2, order):
        if order % k:
            continue
        m = order // k
        for unit in range(2, m):
            if pow(unit, k, m) == 1:
                powers = [pow(unit, i, m) for i in range(k)]
                return [
                    [((x // k + powers[x % k] * (y // k)) % m) * k + (x % k + y % k) % k for y in range(order)]
                    for x in range(order)
                ]
    return [[(x + y) % order for y in range(order)] for x in range(order)]


class World:
    """The world of a seed.

    Attributes:
        num_relations: R.
        inverse: the inverse of each relation; a relation that is its own inverse is symmetric.
        vocabulary: with the rules of the world.
        patterns: functional and asymmetric relations, and inverse pairs.
        pairs: for each relation, the pairs of relations that its rules compose it of.
    """

    def __init__(self, seed: int, num_relations: int) -> None:
        self.num_relations = num_relations
        self._table = group_table(num_relations + 1)
        order = num_relations + 1
        inverse_element = [row.index(0) for row in self._table]
        self._between = [[self._table[inverse_element[x]][y] - 1 for y in range(order)] for x in range(order)]
        self.inverse = [inverse_element[relation + 1] - 1 for relation in range(num_relations)]
        draws = Draws(philox_key(seed, "world"), 0, 0)
        relations = list(range(num_relations))
        draws.shuffle(relations)
        functional = relations[: num_relations // 4]
        asymmetric = [r for r in range(num_relations) if self.inverse[r] != r]
        self.patterns = Patterns(functional, asymmetric, ((r, self.inverse[r]) for r in asymmetric))
        self.pairs = self._draw_pairs(draws)
        self.vocabulary = Vocabulary(
            relations=tuple(f"relation_{relation:02d}" for relation in range(num_relations)),
            rules=self._rules(),
            rules_compose=True,
        )
        self.rules = RuleBook.of(self.vocabulary)

    @property
    def num_states(self) -> int:
        return self.num_relations + 1

    def relation_between(self, start: int, end: int) -> int:
        """The relation that leads from one state to another, -1 if they are equal."""
        return self._between[start][end]

    def follow(self, state: int, signed: int) -> int:
        """The state that a relation in ``[0, 2R)`` leads to."""
        relation = signed if signed < self.num_relations else self.inverse[signed - self.num_relations]
        return self._table[state][relation + 1]

    def _draw_pairs(self, draws: Draws) -> list[list[tuple[int, int]]]:
        """For each relation, the pairs of relations that its rules compose it of."""
        pairs: list[dict[tuple[int, int], None]] = [{} for _ in range(self.num_relations)]
        for relation in range(self.num_relations):
            firsts = [r for r in range(self.num_relations) if r != relation]
            draws.shuffle(firsts, _RULES)
            for first in firsts[:_RULES]:
                second = self.relation_between(first + 1, relation + 1)
                pairs[relation][first, second] = None
                pairs[self.inverse[relation]][self.inverse[second], self.inverse[first]] = None
        return [sorted(found) for found in pairs]

    def _rules(self) -> tuple[Rule, ...]:
        rules = []
        backwards = [self.inverse[relation] + self.num_relations for relation in range(self.num_relations)]
        for relation, pairs in enumerate(self.pairs):
            rules.append(Rule(relation=relation, chain=(backwards[relation],), confidence=1.0))
            for first, second in pairs:
                chains = product((first, backwards[first]), (second, backwards[second]))
                rules += [Rule(relation=relation, chain=chain, confidence=1.0) for chain in chains]
        return tuple(rules)
