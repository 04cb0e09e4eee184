"""Evidence laid into empty graphs: chains of the right length and meaning, each graph with nodes of its own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hopline.datasets.ragged import offsets_of
from hopline.datasets.synthetic.counters import Counters
from hopline.datasets.synthetic.laying import Scene, lay
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.synthetic.wishlist import AGGREGATE, BOOLEAN, LINK, MULTI_HOP, RELATION, SUPPORTED, Wishes
from hopline.datasets.world import World

WORLD = World(1, 20)
TABLES = WorldTables(WORLD)
EACH = 120


def laid(kind: int, hops: int, size: int = 40, second: int = 2) -> Scene:
    wishes = Wishes(*(np.full(EACH, value) for value in (kind, hops, second, SUPPORTED)))
    sizes = np.full(EACH, size)
    counters = Counters(0, "laying", np.zeros(EACH, dtype=np.int64), np.arange(EACH), 1)
    return lay(TABLES, wishes, sizes, offsets_of(sizes)[:-1], counters)


def facts(scene: Scene) -> list[tuple[int, int, int]]:
    return [fact for part in scene.facts for fact in zip(*(array.tolist() for array in part), strict=True)]


@pytest.mark.parametrize("kind", [LINK, MULTI_HOP, AGGREGATE, BOOLEAN, RELATION])
def test_every_fact_holds_in_the_world_and_joins_nodes_of_one_graph_that_are_in_use(kind: int) -> None:
    scene = laid(kind, 3)
    assert not scene.failed.any()
    for head, relation, tail in facts(scene):
        assert WORLD.follow(int(scene.states[head]), relation) == scene.states[tail]
        assert head // 40 == tail // 40
        assert max(head % 40, tail % 40) < scene.used[head // 40]
    functional = [(head, relation) for head, relation, _ in facts(scene) if relation in WORLD.patterns.functional]
    # Now and then the two goals of an aggregate, or a derivation that turns back, ask for a second value: that fact will
    # not stand, and the example is tried again if it needs it.
    assert len(functional) - len(set(functional)) <= (5 if kind in (AGGREGATE, RELATION) else 0)


@pytest.mark.parametrize("hops", [1, 2, 3, 5, 8, 10])
def test_a_relation_is_derived_by_a_chain_of_that_many_hops_that_the_rules_reduce_to_it(hops: int) -> None:
    scene = laid(RELATION, hops)
    chains: list[list[int]] = [[] for _ in range(EACH)]
    for part in scene.facts:  # one hop after the other, each to a new node
        for head, relation, tail in zip(*(array.tolist() for array in part), strict=True):
            chains[head // 40].append(relation if head < tail else relation + 20)
    for graph, chain in enumerate(chains):
        assert len(chain) == hops
        start, end = scene.states[scene.anchors[graph]].tolist()
        assert WORLD.relation_between(start, end) in WORLD.rules.conclusions(tuple(chain))
        assert hops > 1 or chain[0] >= 20, "the fact itself would be the answer"
    assert len({tuple(chain) for chain in chains}) > 15


def test_chains_have_their_length_and_never_turn_back_at_once() -> None:
    scene = laid(AGGREGATE, 3, second=2)
    assert scene.lengths.tolist() == [[3, 2]] * EACH
    for chain in scene.chains.reshape(-1, 3).tolist():
        relations = [r for r in chain if r >= 0]
        elements = [int(TABLES.element[r]) for r in relations]
        for before, after in itertools.pairwise(elements):
            assert TABLES.times[before, after] != 0


def test_links_ask_for_a_relation_that_two_hops_at_most_derive() -> None:
    scene = laid(LINK, 3)
    assert scene.lengths[:, 0].tolist() == [1] * EACH
    assert scene.chains[:, 0, 0].max() < 20
    assert (scene.chains[:, 0, 1:] == -1).all()
    assert (scene.used >= 3).all()


def test_a_graph_without_room_fails_and_keeps_to_its_own_nodes() -> None:
    scene = laid(AGGREGATE, 4, size=5, second=4)
    assert scene.failed.all()
    assert (scene.anchors // 5 == np.arange(EACH)[:, None]).all()
    assert all(head // 5 == tail // 5 for head, _, tail in facts(scene))
