"""Where rules lead to: the same as following every rule anew, whatever is remembered."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.datasets import Rule, RuleBook, rule_reach
from hopline.datasets.rule_reach import RuleReach
from hopline.datasets.train_graph import Neighbourhood, TrainGraph

ENTITIES, RELATIONS = 6, 2

facts = st.lists(
    st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)),
    min_size=1, max_size=24, unique=True,
)  # fmt: skip
signed = st.integers(0, 2 * RELATIONS - 1)
rules = st.lists(
    st.builds(
        Rule, relation=signed, chain=st.lists(signed, min_size=1, max_size=2).map(tuple),
        confidence=st.sampled_from([0.25, 0.5, 1.0]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


def anew(graph: TrainGraph, near: Neighbourhood, book: RuleBook, anchor: int, relation: int, turn: int, most: int):
    """Every rule followed step by step, without the facts that must stay out."""

    def follow(start: int, one: int) -> list[int]:
        others = list(graph.follow(start, one))
        if len(others) > most:
            first = turn % len(others)
            others = [*others[first:], *others[:first]][:most]
        return [other for other in others if near.may_cross(start, one, other)]

    scores: dict[int, int] = {}
    ways: dict[int, tuple[int, ...]] = {}
    for chain, confidence in book.chains_for(relation):
        walks = [(anchor,)]
        for one in chain:
            walks = [(*walk, other) for walk in walks for other in follow(walk[-1], one)]
        for end in dict.fromkeys(walk[-1] for walk in walks):
            if end != anchor:
                scores[end] = scores.get(end, 0) + int(confidence * 1_000_000)
                ways.setdefault(end, (*chain, next(walk for walk in walks if walk[-1] == end)))
    return scores, ways


@settings(max_examples=300, deadline=None)
@given(facts, rules, st.integers(0, 2**64 - 1), st.sampled_from([2, 48]))
def test_what_is_remembered_changes_nothing(facts, rules, turn: int, most: int) -> None:
    """Every fact of the graph is asked for in both directions, one after the other, without its own fact."""
    graph = TrainGraph(np.array(facts, dtype=np.int64), ENTITIES, RELATIONS)
    book = RuleBook([rule for rule in rules if rule.chain != (rule.relation,)], RELATIONS)
    before, rule_reach._FAN_OUT = rule_reach._FAN_OUT, most
    try:
        reach = RuleReach(graph, book)
        for head, relation, tail in facts:
            for own in (frozenset({(head, relation, tail)}), frozenset[tuple[int, int, int]]()):
                near = Neighbourhood(graph, own)
                for anchor, one in ((head, relation), (tail, relation + RELATIONS)):
                    scores, ways = anew(graph, near, book, anchor, one, turn, most)
                    found = reach.reach(near, anchor, one, turn)
                    assert found.scores == scores
                    for end, way in ways.items():
                        _, chain, middle = found.ways[end]
                        walk = (anchor, end) if middle < 0 else (anchor, middle, end)
                        assert (*chain, walk) == way
    finally:
        rule_reach._FAN_OUT = before


def test_memory_of_reached_entities_is_bounded() -> None:
    graph = TrainGraph(np.array([(a, 0, (a + 1) % ENTITIES) for a in range(ENTITIES)]), ENTITIES, RELATIONS)
    reach = RuleReach(graph, RuleBook([Rule(relation=1, chain=(0, 0), confidence=1.0)], RELATIONS))
    reach._room = 2
    for anchor in range(ENTITIES):
        assert reach.reach(Neighbourhood(graph), anchor, 1, 0).scores == {(anchor + 2) % ENTITIES: 1_000_000}
    assert reach._room == rule_reach._REMEMBERED - (ENTITIES - 2)
    assert len(reach._known) == ENTITIES - 2
