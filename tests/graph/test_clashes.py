"""Signs that edges exclude each other."""

from __future__ import annotations

import numpy as np
import pytest

from hopline.graph.clashes import find_clashes

R = 3


def clashes(*facts: tuple[int, int, int]) -> set[tuple[tuple[int, int, int], int]]:
    """The facts (source, relation, target) with a sign, and its cell."""
    source, relation, target = (np.array([fact[i] for fact in facts], dtype=np.int64) for i in range(3))
    edge, cell = find_clashes(source, target, relation, nodes=9, num_relations=R)
    found = [(facts[e], c) for e, c in zip(edge.tolist(), cell.tolist(), strict=True)]
    assert len(found) == len(set(found))
    return set(found)


def pair(low: int, high: int, *, opposite: bool = False) -> int:
    return 2 * R + low * 2 * R + high + R * opposite


def test_several_edges_of_a_relation_at_one_node() -> None:
    """At the target by the relation, at the source by the relation's inverse."""
    assert clashes((0, 1, 5), (2, 1, 5)) == {((0, 1, 5), 1), ((2, 1, 5), 1)}
    assert clashes((5, 1, 0), (5, 1, 2)) == {((5, 1, 0), 1 + R), ((5, 1, 2), 1 + R)}
    assert clashes((0, 1, 5), (5, 1, 2), (0, 2, 5))  # the last: two relations between the same nodes
    assert clashes((0, 1, 5), (5, 1, 2), (2, 0, 3)) == set()


def test_edges_between_the_same_two_nodes() -> None:
    """A cell for each pair of relations and their directions; both edges have the sign."""
    assert clashes((0, 0, 1), (0, 2, 1)) == {((0, 0, 1), pair(0, 2)), ((0, 2, 1), pair(0, 2))}
    assert clashes((0, 2, 1), (1, 0, 0)) == {
        ((0, 2, 1), pair(0, 2, opposite=True)),
        ((1, 0, 0), pair(0, 2, opposite=True)),
    }
    assert clashes((4, 1, 3), (3, 1, 4)) == {
        ((4, 1, 3), pair(1, 1, opposite=True)),
        ((3, 1, 4), pair(1, 1, opposite=True)),
    }
    assert clashes((4, 1, 4), (4, 2, 4)) == set()


@pytest.mark.parametrize("seed", range(5))
def test_order_changes_nothing(seed: int) -> None:
    """Edges in another order, and nodes with other numbers, have the same signs."""
    rng = np.random.default_rng(seed)
    facts = sorted({(int(a), int(r), int(b)) for a, r, b in rng.integers(0, (6, R, 6), (30, 3))})
    shuffled = [facts[i] for i in rng.permutation(len(facts))]
    assert clashes(*facts) == clashes(*shuffled)
    number = rng.permutation(9)
    renamed = [(int(number[a]), r, int(number[b])) for a, r, b in facts]
    expected = {((int(number[a]), r, int(number[b])), cell) for (a, r, b), cell in clashes(*facts)}
    assert clashes(*renamed) == expected


def test_no_edges() -> None:
    assert clashes() == set()


@pytest.mark.parametrize("seed", range(20))
def test_a_table_and_sorting_find_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them is used depends on the number of relations, and changes nothing."""
    rng = np.random.default_rng(seed)
    edges = int(rng.integers(0, 80))
    source, target = rng.integers(0, 9, (2, edges))
    relation = rng.integers(0, R, edges)
    by_table = find_clashes(source, target, relation, nodes=9, num_relations=R)
    monkeypatch.setattr("hopline.graph.clashes._MOST_CELLS", 0)
    by_sorting = find_clashes(source, target, relation, nodes=9, num_relations=R)
    for found, expected in zip(by_sorting, by_table, strict=True):
        np.testing.assert_array_equal(found, expected)
