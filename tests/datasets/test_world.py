"""The synthetic world: a group behind its relations, so that rules never contradict each other."""

from __future__ import annotations

import itertools

import pytest

from hopline.datasets.world import World, group_table


@pytest.mark.parametrize("order", range(2, 40))
def test_a_table_is_a_group(order: int) -> None:
    table = group_table(order)
    elements = range(order)
    assert table[0] == list(elements)
    assert [row[0] for row in table] == list(elements)
    for row, column in zip(table, zip(*table, strict=True), strict=True):
        assert sorted(row) == sorted(column) == list(elements)
    for x, y, z in itertools.product(elements, elements, (1, order - 1, order // 2)):
        assert table[table[x][y]][z] == table[x][table[y][z]]


def test_order_matters_where_it_can() -> None:
    table = group_table(21)
    assert any(table[x][y] != table[y][x] for x in range(21) for y in range(21))


@pytest.mark.parametrize("relations", [4, 5, 12, 20, 46])
def test_every_rule_of_a_world_holds_in_it(relations: int) -> None:
    world = World(3, relations)
    assert world.vocabulary.num_relations == relations
    for rule in world.vocabulary.rules:
        for state in range(world.num_states):
            end = state
            for hop in rule.chain:
                end = world.follow(end, hop)
            assert end == world.follow(state, rule.relation)
    heads = {rule.relation for rule in world.vocabulary.rules if len(rule.chain) == 2}
    assert heads == set(range(relations))


def test_relations_invert_and_compose() -> None:
    world = World(0, 20)
    for relation in range(20):
        inverse = world.inverse[relation]
        assert world.inverse[inverse] == relation
        for state in range(world.num_states):
            there = world.follow(state, relation)
            assert world.relation_between(state, there) == relation
            assert world.follow(there, inverse) == world.follow(there, relation + 20) == state
    assert world.relation_between(5, 5) == -1


def test_patterns_are_those_of_the_group() -> None:
    world = World(0, 20)
    assert len(world.patterns.functional) == 5
    assert world.patterns.asymmetric == {r for r in range(20) if world.inverse[r] != r}
    for relation, partners in world.patterns.partners.items():
        assert partners == (world.inverse[relation],)


def test_seeds_differ_in_their_rules() -> None:
    assert World(0, 20).vocabulary == World(0, 20).vocabulary
    assert World(0, 20).vocabulary != World(1, 20).vocabulary
