"""Sampling around entities of the training graph."""

from __future__ import annotations

import numpy as np
import pytest

from hopline.datasets.draws import Draws, philox_key
from hopline.datasets.train_graph import Neighbourhood, TrainGraph


@pytest.fixture
def graph() -> TrainGraph:
    rng = np.random.default_rng(1)
    triples = np.unique(rng.integers(0, [30, 3, 30], (200, 3)), axis=0)
    return TrainGraph(np.vstack([triples, [[30, 0, 31]]]), 40, 3)


def draws(index: int = 0) -> Draws:
    return Draws(philox_key(0, "test"), 0, index)


def test_both_directions_are_indexed(graph: TrainGraph) -> None:
    for head, relation, tail in graph.facts:
        assert tail in graph.follow(head, relation)
        assert head in graph.follow(tail, relation + 3)
        assert relation in graph.between(head, tail)
        assert relation + 3 in graph.between(tail, head)
        assert tail in graph.neighbours[head]
        assert (head, relation, tail) in graph.facts_from[head][tail]
    assert graph.follow(39, 0) == ()


def test_layers_give_up_when_a_hop_reaches_too_much(graph: TrainGraph) -> None:
    start = graph.facts[0][0]
    relation = graph.facts[0][1]
    reached = graph.layers(start, (relation,), 40)
    assert reached == [{start}, set(graph.follow(start, relation))]
    assert graph.layers(start, (relation,), 0) is None


def test_a_sample_has_the_size_asked_for_and_only_facts_of_the_graph(graph: TrainGraph) -> None:
    for index in range(30):
        near = Neighbourhood(graph)
        near.add(index)
        near.grow(15, index, draws(index))
        facts = near.sample_facts(index, draws(index))
        assert len(near) == len(set(near.entities)) == 15
        assert len(facts) == len(set(facts)) <= 3 * 15 + 15
        assert set(facts) <= set(graph.facts)
        assert {end for h, _, t in facts for end in (h, t)} <= set(near.entities)


def test_facts_that_must_stay_out_do(graph: TrainGraph) -> None:
    head, relation, tail = graph.facts[3]
    for index in range(20):
        near = Neighbourhood(graph, frozenset({(head, relation, tail)}))
        assert not near.may_cross(head, relation, tail)
        assert not near.may_cross(tail, relation + 3, head)
        near.add(head)
        near.add(tail)
        near.grow(30, head, draws(index))
        assert (head, relation, tail) not in near.sample_facts(head, draws(index))


def test_facts_that_must_be_held_are(graph: TrainGraph) -> None:
    head, relation, tail = graph.facts[3]
    near = Neighbourhood(graph)
    near.cross(tail, relation + 3, head)
    assert (head, relation, tail) in near.sample_facts(head, draws())
    assert near.entities == [tail, head]


def test_an_exhausted_neighbourhood_goes_on_elsewhere_and_a_small_source_gives_less(graph: TrainGraph) -> None:
    near = Neighbourhood(graph)
    near.add(30)
    near.grow(10, 30, draws())
    assert len(near) == 10
    alone = Neighbourhood(graph)
    alone.add(39)
    alone.grow(100, 39, draws())
    assert sorted(alone.entities) == list(range(40))
