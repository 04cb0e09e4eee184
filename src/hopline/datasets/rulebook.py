"""Rules looked up: which chains lead to a relation, and which relations a chain leads to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from hopline.datasets.vocabulary import Rule, Vocabulary

__all__ = ["Chain", "RuleBook", "invert_chain"]

Chain = tuple[int, ...]


def invert_chain(chain: Chain, num_relations: int) -> Chain:
    """The chain that leads back: in reverse order, each relation read the other way."""
    return tuple((relation + num_relations) % (2 * num_relations) for relation in reversed(chain))


class RuleBook:
    """The rules of a dataset, in both reading directions.

    A rule for ``r`` is one for ``r + R`` too, with the chain inverted, unless rules for ``r + R`` are given.

    Args:
        rules: ids in ``[0, 2R)``.
        num_relations: R.
        composes: rules hold without exception, so that conclusions may be premises: a chain of any length is then
            reduced by the rules of one and two hops.

    Attributes:
        longest: hops of the longest chain of a rule.
    """

    def __init__(self, rules: Iterable[Rule], num_relations: int, *, composes: bool = False) -> None:
        self.num_relations = num_relations
        self.composes = composes
        chains: dict[int, dict[Chain, float]] = defaultdict(dict)
        for rule in rules:
            chains[rule.relation][rule.chain] = rule.confidence
        for relation in list(chains):
            inverse = (relation + num_relations) % (2 * num_relations)
            if inverse not in chains:
                flipped = {invert_chain(chain, num_relations): c for chain, c in chains[relation].items()}
                chains[inverse] = flipped
        self._chains = {
            relation: tuple(sorted(table.items(), key=lambda item: (-item[1], len(item[0]), item[0])))
            for relation, table in chains.items()
        }
        self._tables: Mapping[int, Mapping[Chain, float]] = chains
        self._heads: dict[Chain, dict[int, float]] = defaultdict(dict)
        for relation, table in chains.items():
            for chain, confidence in table.items():
                self._heads[chain][relation] = confidence
        self.longest = max(map(len, self._heads), default=0)
        self._reduced: dict[Chain, frozenset[int]] = {}

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> RuleBook:
        """The rules of a vocabulary."""
        return cls(vocabulary.rules, vocabulary.num_relations, composes=vocabulary.rules_compose)

    def chains_for(self, relation: int) -> tuple[tuple[Chain, float], ...]:
        """The chains that lead to a relation in ``[0, 2R)``, with confidence, best first."""
        return self._chains.get(relation, ())

    def leads_to(self, relation: int, chain: Chain) -> bool:
        """Whether a rule leads from this chain to the relation at once."""
        return chain in self._tables.get(relation, {})

    def conclusions(self, chain: Chain) -> dict[int, float]:
        """The relations in ``[0, 2R)`` that a chain leads to, with confidence."""
        if not self.composes:
            return self._heads.get(chain, {})
        return dict.fromkeys(self._reduce(chain), 1.0)

    def _reduce(self, chain: Chain) -> frozenset[int]:
        """Every relation that the chain can be replaced by, as in CYK parsing; remembered for each chain."""
        known = self._reduced.get(chain)
        if known is not None:
            return known
        found: set[int] = {chain[0]} if len(chain) == 1 else set()
        for cut in range(1, len(chain)):
            for left in self._reduce(chain[:cut]):
                for right in self._reduce(chain[cut:]):
                    found.update(self._heads.get((left, right), ()))
        for relation in list(found):
            found.update(self._heads.get((relation,), ()))
        if len(self._reduced) > 10_000:
            self._reduced.clear()
        self._reduced[chain] = result = frozenset(found)
        return result
