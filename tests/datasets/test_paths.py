"""Candidate paths: walks of the right kind, in a fixed order, found without the answer."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.datasets import Dataset, Rule, RuleBook, Vocabulary, candidate_paths
from hopline.datasets.adjacency import Adjacency
from hopline.datasets.paths import walks_between
from hopline.graph import AnswerMode, ExampleGraph, Query

R = 3
VOCABULARY = Vocabulary(relations=("a", "b", "c"))


def names(graph: ExampleGraph, path: tuple[int, ...], start: int) -> list[tuple[int, int, int]]:
    """The path as (node, signed relation, node)."""
    hops, node = [], start
    for step in path:
        edge, backwards = step >> 1, step & 1
        head, tail = graph.edge_index[:, edge].tolist()
        here, there = (tail, head) if backwards else (head, tail)
        assert here == node
        hops.append((node, int(graph.edge_type_ids[edge]) + R * backwards, there))
        node = there
    return hops


def test_a_chain_gives_its_walks_then_walks_that_leave_it_once(make_graph) -> None:
    graph = make_graph(6, [(0, 0, 1), (1, 1, 2), (1, 2, 3), (1, 2, 2), (0, 2, 4), (4, 1, 5), (2, 0, 5)])
    query = Query((0,), ((0, 1),), AnswerMode.COUNT)
    paths = candidate_paths(graph, query, rules=(), num_relations=R, max_paths=8)
    walks = [names(graph, path, 0) for path in paths]
    assert walks[0] == [(0, 0, 1), (1, 1, 2)]
    others = walks[1:]
    # Leaving at the last hop: to the same node by another relation before all others; leaving at the first: it goes on.
    assert others[0] == [(0, 0, 1), (1, 2, 2)]
    assert [(0, 0, 1), (1, 2, 3)] in others
    assert [(0, 2, 4), (4, 1, 5)] in others
    assert len(walks) == 4


def test_a_walk_that_cannot_go_on_ends_where_it_is(make_graph) -> None:
    graph = make_graph(3, [(0, 2, 1), (0, 0, 2)])
    query = Query((0,), ((0, 1),), AnswerMode.COUNT)
    paths = candidate_paths(graph, query, rules=(), num_relations=R, max_paths=8)
    assert [names(graph, path, 0) for path in paths] == [[(0, 2, 1)]]


def test_a_boolean_puts_the_walks_to_its_second_anchor_first(make_graph) -> None:
    graph = make_graph(4, [(0, 0, 1), (0, 0, 2), (0, 0, 3)])
    query = Query((0, 3), ((0,),), AnswerMode.BOOLEAN)
    paths = candidate_paths(graph, query, rules=(), num_relations=R, max_paths=2)
    assert names(graph, paths[0], 0) == [(0, 0, 3)]


def test_the_two_chains_of_an_aggregate_share_the_places(make_graph) -> None:
    facts = [(0, 0, node) for node in range(2, 12)] + [(1, 1, node) for node in range(2, 12)]
    graph = make_graph(12, facts)
    query = Query((0, 1), ((0,), (1,)), AnswerMode.AGGREGATE)
    paths = candidate_paths(graph, query, rules=(), num_relations=R, max_paths=8)
    starts = [int(graph.edge_index[0, path[0] >> 1]) for path in paths]
    assert sorted(starts) == [0] * 4 + [1] * 4


def test_a_link_query_follows_rules_and_the_best_node_comes_first(make_graph) -> None:
    facts = [(0, 1, 1), (1, 1, 2), (0, 1, 3), (3, 1, 4), (5, 2, 4), (0, 2, 5), (0, 0, 5)]
    graph = make_graph(6, facts)
    rules = [
        Rule(relation=0, chain=(1, 1), confidence=0.3),
        Rule(relation=0, chain=(2, 2), confidence=0.2),
    ]
    query = Query((0,), ((0,),), AnswerMode.ENTITIES)
    paths = candidate_paths(graph, query, rules=rules, num_relations=R, max_paths=8)
    walks = [names(graph, path, 0) for path in paths]
    assert walks[0] == [(0, 0, 5)]
    assert walks[1] == [(0, 1, 3), (3, 1, 4)], "two rules vote for node 4"
    assert walks[2] == [(0, 1, 1), (1, 1, 2)]
    assert walks[3] == [(0, 2, 5), (5, 2, 4)]
    assert all(len(walk) == 1 for walk in walks[4:])


def test_a_rule_book_and_its_rules_give_the_same(nations: Dataset) -> None:
    book = RuleBook.of(nations.vocabulary)
    split = nations.split("test")
    for unit in range(0, len(split), 9):
        example = split.example(unit)
        by_rules, by_book = (
            candidate_paths(example.graph, example.query, rules=rules, num_relations=book.num_relations, max_paths=16)
            for rules in (nations.vocabulary.rules, book)
        )
        assert by_rules == by_book


@pytest.mark.parametrize("fixture", ["synthetic", "nations"])
def test_the_candidates_of_every_example_are_those_that_a_user_would_get(request, fixture: str) -> None:
    """The same enumerator, blind to the answer: what an example holds is found again from its graph and query."""
    found = request.getfixturevalue(fixture)
    dataset = found if isinstance(found, Dataset) else Dataset.open(found)
    book = RuleBook.of(dataset.vocabulary)
    assert "answer" not in str(inspect.signature(candidate_paths))
    split = dataset.split("train")
    rng = np.random.default_rng(0)
    for unit in rng.integers(0, len(split), 150).tolist():
        example = split.example(unit)
        for row in (example, example.pair):
            if row is None:
                continue
            paths = candidate_paths(row.graph, row.query, rules=book, num_relations=book.num_relations, max_paths=16)
            assert sorted(paths) == sorted((*row.supporting_paths, *row.competing_paths))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 20))
def test_candidates_are_different_walks_from_an_anchor_and_not_too_many(make_example, seed: int, most: int) -> None:
    example = make_example(seed, VOCABULARY)
    paths = candidate_paths(example.graph, example.query, rules=(), num_relations=R, max_paths=most)
    assert len(paths) <= most
    for path in paths:
        assert path
        head, tail = example.graph.edge_index[:, path[0] >> 1].tolist()
        start = tail if path[0] & 1 else head
        assert start in example.query.anchors
        names(example.graph, path, start)
    if example.query.answer_mode is not AnswerMode.AGGREGATE:
        assert len(set(paths)) == len(paths)


def test_walks_between_two_anchors_are_simple_and_shortest_first(make_graph) -> None:
    facts = [(0, 0, 1), (1, 0, 2), (0, 1, 2), (2, 2, 3), (3, 1, 0), (1, 1, 3)]
    graph = make_graph(4, facts)
    walks = list(walks_between(Adjacency(graph, R), 0, 2))
    lengths = [len(walk.steps) for walk in walks]
    assert lengths == sorted(lengths)
    assert lengths[0] == 1
    assert len({walk.steps for walk in walks}) == len(walks)
    for walk in walks:
        hops = names(graph, walk.steps, 0)
        visited = [0, *(hop[2] for hop in hops)]
        assert len(set(visited)) == len(visited)
        assert tuple(hop[1] for hop in hops) == walk.relations
        assert visited[-1] == walk.end == 2
    # By hand: 0-2; 0-1-2, 0-3-2; 0-1-3-2, 0-3-1-2.
    assert len(walks) == 5
    assert [len(walk.steps) for walk in walks_between(Adjacency(graph, R), 0, 2, 2)] == [1, 2, 2]


def test_no_walk_joins_what_is_apart(make_graph) -> None:
    adjacency = Adjacency(make_graph(3, [(0, 0, 1)]), R)
    assert list(walks_between(adjacency, 0, 2)) == []
    assert list(walks_between(adjacency, 0, 0)) == []


def test_a_huge_dense_graph_ends_after_a_fixed_amount_of_work(make_graph) -> None:
    facts = [(h, r, t) for h in range(60) for t in range(60) for r in range(2) if h != t]
    adjacency = Adjacency(make_graph(60, facts), R)
    walks = list(walks_between(adjacency, 0, 1))
    assert 4 < len(walks) < 100_000
