"""Rules and patterns mined from triples in which they are known to hold."""

from __future__ import annotations

import numpy as np

from hopline.datasets.mining import mine_patterns, mine_rules
from hopline.datasets.train_graph import TrainGraph

PARENT, CHILD, GRANDPARENT, SPOUSE, FRIEND = range(5)


def family() -> TrainGraph:
    """Twenty lines of four generations; friendship is random."""
    facts = []
    for line in range(20):
        a, b, c, d = range(4 * line, 4 * line + 4)
        for older, younger in ((a, b), (b, c), (c, d)):
            facts += [(older, PARENT, younger), (younger, CHILD, older)]
        facts += [(a, GRANDPARENT, c), (b, GRANDPARENT, d)]
        facts += [(a, SPOUSE, (4 * line + 41) % 80), ((4 * line + 41) % 80, SPOUSE, a)]
    rng = np.random.default_rng(0)
    facts += [(int(h), FRIEND, int(t)) for h, t in rng.integers(0, 80, (60, 2))]
    return TrainGraph(np.array(sorted(set(facts))), 80, 5)


def test_rules_that_hold_are_found_with_high_confidence() -> None:
    rules = {(rule.relation, rule.chain): rule.confidence for rule in mine_rules(family(), 0)}
    assert rules[GRANDPARENT, (PARENT, PARENT)] > 0.85
    assert rules[PARENT, (CHILD + 5,)] > 0.9
    assert rules[SPOUSE, (SPOUSE + 5,)] > 0.8
    assert rules[GRANDPARENT + 5, (CHILD, CHILD)] > 0.85
    assert max((c for (r, _), c in rules.items() if r == FRIEND), default=0.0) < 0.3


def test_no_relation_is_its_own_rule_and_the_best_come_first() -> None:
    rules = mine_rules(family(), 0)
    assert all(rule.chain != (rule.relation,) for rule in rules)
    for relation in range(10):
        confidences = [rule.confidence for rule in rules if rule.relation == relation]
        assert confidences == sorted(confidences, reverse=True)
        assert len(confidences) <= 8


def test_rules_are_a_function_of_graph_and_seed() -> None:
    assert mine_rules(family(), 0) == mine_rules(family(), 0)


def test_patterns_hold_without_exception() -> None:
    patterns = mine_patterns(family())
    assert {PARENT, CHILD, GRANDPARENT} <= patterns.functional
    assert {PARENT, CHILD, GRANDPARENT} <= patterns.asymmetric
    assert SPOUSE not in patterns.asymmetric
    assert FRIEND not in patterns.functional
    assert patterns.partners == {PARENT: (CHILD,), CHILD: (PARENT,)}


def test_few_facts_make_no_pattern() -> None:
    graph = TrainGraph(np.array([(i, 0, i + 1) for i in range(9)]), 10, 1)
    assert mine_patterns(graph).info().model_dump() == {"functional": (), "asymmetric": (), "inverse": ()}


def test_a_fact_about_itself_is_not_asymmetric() -> None:
    graph = TrainGraph(np.array([(i, 0, i + 1) for i in range(12)] + [(5, 0, 5)]), 13, 1)
    assert not mine_patterns(graph).asymmetric
