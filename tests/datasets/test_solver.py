"""The solver and the patterns, on graphs small enough to solve by hand."""

from __future__ import annotations

import pytest

from hopline.datasets import Patterns, Rule, RuleBook, Verdict
from hopline.datasets.adjacency import Adjacency
from hopline.datasets.solver import solve
from hopline.graph import AnswerMode, Query, QueryKind, Status

R = 4
NO_RULES = RuleBook((), R)
ENTITIES, COUNT, AGGREGATE = AnswerMode.ENTITIES, AnswerMode.COUNT, AnswerMode.AGGREGATE


def verdict(
    graph, query: Query, kind: QueryKind, rules: RuleBook = NO_RULES, patterns: Patterns | None = None
) -> Verdict:
    return solve(Adjacency(graph, R), query, kind, rules=rules, patterns=patterns or Patterns())


def test_chains_are_followed_forwards_and_backwards(make_graph) -> None:
    graph = make_graph(5, [(0, 0, 1), (0, 0, 2), (3, 1, 1), (4, 1, 2)])
    found = verdict(graph, Query((0,), ((0, 1 + R),), ENTITIES), QueryKind.MULTI_HOP)
    assert found == Verdict(Status.SUPPORTED, (3, 4))
    assert verdict(graph, Query((0,), ((1,),), COUNT), QueryKind.COUNT) == Verdict(Status.MISSING)


def test_an_aggregate_intersects_and_a_boolean_asks_for_one(make_graph) -> None:
    graph = make_graph(4, [(0, 0, 2), (0, 0, 3), (1, 1, 3)])
    both = Query((0, 1), ((0,), (1,)), AGGREGATE)
    assert verdict(graph, both, QueryKind.AGGREGATE) == Verdict(Status.SUPPORTED, (3,))
    yes, no = (Query((0, b), ((0,),), AnswerMode.BOOLEAN) for b in (2, 1))
    assert verdict(graph, yes, QueryKind.BOOLEAN) == Verdict(Status.SUPPORTED, (2,))
    assert verdict(graph, no, QueryKind.BOOLEAN) == Verdict(Status.MISSING)


def test_a_link_follows_rules_only(make_graph) -> None:
    rules = RuleBook([Rule(relation=0, chain=(1, 2), confidence=1.0)], R)
    graph = make_graph(4, [(0, 1, 1), (1, 2, 2), (0, 0, 3)])
    assert verdict(graph, Query((0,), ((0,),), ENTITIES), QueryKind.LINK, rules) == Verdict(Status.SUPPORTED, (2,))
    back = Query((2,), ((0 + R,),), ENTITIES)
    assert verdict(graph, back, QueryKind.LINK, rules) == Verdict(Status.SUPPORTED, (0,))


def test_a_relation_query_takes_the_surest_conclusion_and_ties_answer_nothing(make_graph) -> None:
    def rules(second: float) -> RuleBook:
        return RuleBook(
            [Rule(relation=0, chain=(1, 2), confidence=0.8), Rule(relation=3, chain=(1, 1), confidence=second)], R
        )

    graph = make_graph(4, [(0, 1, 1), (1, 2, 2), (0, 1, 3), (3, 1, 2)])
    query = Query((0, 2), (), AnswerMode.RELATION)
    assert verdict(graph, query, QueryKind.RELATION, rules(0.5)) == Verdict(Status.SUPPORTED, relation=0)
    assert verdict(graph, query, QueryKind.RELATION, rules(0.9)) == Verdict(Status.SUPPORTED, relation=3)
    assert verdict(graph, query, QueryKind.RELATION, rules(0.8)) == Verdict(Status.MISSING)
    assert verdict(graph, query, QueryKind.RELATION) == Verdict(Status.MISSING)


@pytest.mark.parametrize(
    ("patterns", "planted"),
    [
        (Patterns(functional=[1]), (1, 1, 3)),
        (Patterns(asymmetric=[1]), (2, 1, 1)),
        (Patterns(inverse=[(1, 2)]), (1, 2, 2)),
        (Patterns(inverse=[(2, 1)]), (1, 2, 2)),
    ],
)
def test_a_violation_on_the_way_contradicts_the_query_and_elsewhere_does_not(make_graph, patterns, planted) -> None:
    facts = [(0, 0, 1), (1, 1, 2), (3, 0, 4)]
    query = Query((0,), ((0, 1),), ENTITIES)
    assert verdict(make_graph(5, facts), query, QueryKind.MULTI_HOP, patterns=patterns).status is Status.SUPPORTED
    broken = make_graph(5, [*facts, planted])
    assert verdict(broken, query, QueryKind.MULTI_HOP, patterns=patterns) == Verdict(Status.CONTRADICTED)
    elsewhere = Query((3,), ((0,),), ENTITIES)
    assert verdict(broken, elsewhere, QueryKind.MULTI_HOP, patterns=patterns) == Verdict(Status.SUPPORTED, (4,))


def test_patterns_and_what_the_index_records_of_them() -> None:
    patterns = Patterns(functional=[3, 1], asymmetric=[2], inverse=[(3, 0), (0, 3)])
    assert patterns.info().model_dump() == {"functional": (1, 3), "asymmetric": (2,), "inverse": ((0, 3),)}
    again = Patterns.of(patterns.info())
    assert (again.functional, again.asymmetric, again.partners) == ({1, 3}, {2}, {0: (3,), 3: (0,)})
