"""A world as arrays, to be looked up for many examples at once."""

from __future__ import annotations

import numpy as np

from hopline.datasets.ragged import Bools, Ints
from hopline.datasets.world import World

__all__ = ["WorldTables"]


class WorldTables:
    """What :class:`~hopline.datasets.world.World` answers, for arrays.

    Attributes:
        num_relations, num_states: R and R + 1.
        inverse: ``[R]``, the inverse of each relation.
        opposite: ``[2R]``, each signed relation read the other way.
        follow: ``[R + 1, 2R]``, the state that a signed relation leads to.
        between: ``[R + 1, R + 1]``, the relation that leads from one state to another, -1 if they are equal.
        times: ``[R + 1, R + 1]``, the group's multiplication.
        element: ``[2R]``, the group element of a signed relation.
        composes: ``[R + 1, R + 1]``, whether a rule joins two elements to one.
        functional, asymmetric: ``[R]``.
        pairs, num_pairs: ``[R, most, 2]`` and ``[R]``: what the rules compose each relation of.
    """

    def __init__(self, world: World) -> None:
        relations = world.num_relations
        self.num_relations = relations
        self.num_states = world.num_states
        states, signed = range(world.num_states), range(2 * relations)
        self.inverse: Ints = np.array(world.inverse, dtype=np.int64)
        self.opposite: Ints = (np.arange(2 * relations) + relations) % (2 * relations)
        self.element: Ints = np.concatenate([np.arange(relations), self.inverse]) + 1
        self.between: Ints = np.array(
            [[world.relation_between(start, end) for end in states] for start in states], dtype=np.int64
        )
        self.follow: Ints = np.array(
            [[world.follow(state, relation) for relation in signed] for state in states], dtype=np.int64
        )
        self.times: Ints = np.concatenate([np.arange(world.num_states)[:, None], self.follow[:, :relations]], axis=1)
        self.functional = _members(world.patterns.functional, relations)
        self.asymmetric = _members(world.patterns.asymmetric, relations)
        self.num_pairs: Ints = np.array([len(pairs) for pairs in world.pairs], dtype=np.int64)
        self.pairs: Ints = np.zeros((relations, int(self.num_pairs.max()), 2), dtype=np.int64)
        self.composes: Bools = np.zeros((world.num_states, world.num_states), dtype=np.bool_)
        for relation, pairs in enumerate(world.pairs):
            self.pairs[relation, : len(pairs)] = pairs
            self.composes[self.pairs[relation, : len(pairs), 0] + 1, self.pairs[relation, : len(pairs), 1] + 1] = True
        self._index_rules(world)

    def rule_rank(self, relation: Ints, first: Ints, second: Ints) -> Ints:
        """The place of a chain among those that lead to a signed relation, best first; -1 if it does not.

        ``second`` is -1 for a chain of one hop.
        """
        keys = self._rule_key(relation, first, second)
        places = np.minimum(np.searchsorted(self._rule_keys, keys), len(self._rule_keys) - 1)
        return np.where(self._rule_keys[places] == keys, self._rule_ranks[places], -1)

    def _index_rules(self, world: World) -> None:
        rules = [
            (relation, chain[0], chain[1] if len(chain) > 1 else -1, rank)
            for relation in range(2 * self.num_relations)
            for rank, (chain, _) in enumerate(world.rules.chains_for(relation))
        ]
        relation, first, second, rank = np.array(rules, dtype=np.int64).T
        keys = self._rule_key(relation, first, second)
        order = np.argsort(keys)
        self._rule_keys, self._rule_ranks = keys[order], rank[order]
        self.most_rules = int(rank.max()) + 1

    def _rule_key(self, relation: Ints, first: Ints, second: Ints) -> Ints:
        width = 2 * self.num_relations
        return (relation * width + first) * (width + 1) + second + 1


def _members(relations: frozenset[int], size: int) -> Bools:
    table = np.zeros(size, dtype=np.bool_)
    table[sorted(relations)] = True
    return table
