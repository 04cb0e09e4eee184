"""The arrays of a world say what the world says."""

from __future__ import annotations

import numpy as np
import pytest

from hopline.datasets.synthetic.relations import reduced
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.world import World


@pytest.fixture(scope="module", params=[4, 9, 20])
def world(request: pytest.FixtureRequest) -> World:
    return World(2, request.param)


def test_states_relations_and_patterns(world: World) -> None:
    tables, relations = WorldTables(world), world.num_relations
    for start in range(world.num_states):
        for end in range(world.num_states):
            assert tables.between[start, end] == world.relation_between(start, end)
        assert tables.times[start, 0] == start
        for relation in range(2 * relations):
            assert tables.follow[start, relation] == world.follow(start, relation)
            assert tables.times[start, tables.element[relation]] == world.follow(start, relation)
    assert set(np.flatnonzero(tables.functional)) == world.patterns.functional
    assert set(np.flatnonzero(tables.asymmetric)) == world.patterns.asymmetric


def test_rules_have_the_ranks_of_the_rule_book(world: World) -> None:
    tables, width = WorldTables(world), 2 * world.num_relations
    for relation in range(width):
        ranks = {chain: rank for rank, (chain, _) in enumerate(world.rules.chains_for(relation))}
        chains = [(first, second) for first in range(width) for second in range(-1, width)]
        first, second = np.array(chains).T
        found = tables.rule_rank(np.full(len(chains), relation), first, second)
        expected = [ranks.get((a,) if b < 0 else (a, b), -1) for a, b in chains]
        assert found.tolist() == expected


@pytest.mark.parametrize("hops", [1, 2, 3, 5, 7])
def test_chains_are_reduced_as_by_the_rule_book(world: World, hops: int) -> None:
    tables = WorldTables(world)
    chains = np.random.default_rng(hops).integers(0, 2 * world.num_relations, (300, hops))
    found = reduced(tables, tables.element[chains]).tolist()
    for chain, relation in zip(chains.tolist(), found, strict=True):
        concluded = {r for r in world.rules.conclusions(tuple(chain)) if r < world.num_relations}
        assert concluded == ({relation} if relation >= 0 else set())
    assert hops < 3 or len(set(found)) > 2
