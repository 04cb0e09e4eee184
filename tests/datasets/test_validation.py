"""The checks of finished examples: each finds its own fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hopline.datasets import Patterns, Rule, RuleBook, check_solution, check_structure
from hopline.errors import DataError
from hopline.graph import AnswerMode, ExampleGraph, Query, QueryKind, ReasoningExample, Status

R = 3


@pytest.fixture
def good(make_graph) -> ReasoningExample:
    return ReasoningExample(
        example_id=7,
        graph=make_graph(4, [(0, 0, 1), (1, 1, 2), (3, 2, 2)]),
        query=Query((0,), ((0, 1),), AnswerMode.ENTITIES),
        kind=QueryKind.MULTI_HOP,
        status=Status.SUPPORTED,
        answers=(2,),
        supporting_paths=((0, 2),),
        hops=2,
    )


def missing(good: ReasoningExample) -> ReasoningExample:
    graph = ExampleGraph(good.graph.node_entities, good.graph.edge_index[:, 1:], good.graph.edge_type_ids[1:])
    return replace(good, graph=graph, status=Status.MISSING, answers=(), supporting_paths=(), pair=good)


def test_good_examples_pass(good: ReasoningExample) -> None:
    for example in (good, missing(good)):
        check_structure(example, R)
        check_solution(example, RuleBook((), R), Patterns())


def graph_with(good: ReasoningExample, **arrays: list) -> ReasoningExample:
    graph = replace(good.graph, **{name: np.array(value) for name, value in arrays.items()})
    return replace(good, graph=graph)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda e: graph_with(e, edge_index=[[0, 1, 9], [1, 2, 2]]), "an edge leads to a node that is not there"),
        (lambda e: graph_with(e, edge_type_ids=[0, 1, 3]), r"relation ids must be in \[0, 3\)"),
        (lambda e: graph_with(e, edge_index=[[1, 0, 3], [2, 1, 2]]), "not sorted by target"),
        (lambda e: replace(e, answers=(4,)), "node 4 is not there"),
        (lambda e: replace(e, query=replace(e.query, anchors=(-1,))), "node -1 is not there"),
        (lambda e: replace(e, query=replace(e.query, chains=((6,),))), r"relation ids in \[0, 6\)"),
        (lambda e: replace(e, query=replace(e.query, chains=((),))), r"relation ids in \[0, 6\)"),
        (lambda e: replace(e, supporting_paths=((6,),)), "crosses edge 3"),
        (lambda e: replace(e, competing_paths=((2,),)), "no walk from an anchor"),
        (lambda e: replace(e, competing_paths=((0, 4),)), "no walk from an anchor"),
        (lambda e: replace(e, status=Status.MISSING), "status missing with an answer"),
        (lambda e: replace(e, pair=e), "only a missing example has a twin"),
        (lambda e: replace(missing(e), pair=replace(e, query=replace(e.query, anchors=(1,)))), "asks something else"),
        (
            lambda e: replace(missing(e), pair=replace(missing(e), status=Status.SUPPORTED, pair=None)),
            "differs by more",
        ),
        (lambda e: replace(missing(e), pair=graph_with(e, edge_type_ids=[0, 2, 2])), "differs by more"),
    ],
)
def test_every_fault_of_structure_is_found(good: ReasoningExample, fault, message: str) -> None:
    with pytest.raises(DataError, match=f"example 7 .*{message}"):
        check_structure(fault(good), R)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda e: replace(e, answers=(2, 3)), r"answers \(2, 3\), but its graph says \(2,\)"),
        (lambda e: replace(e, status=Status.MISSING, answers=()), "status missing, but its graph says supported"),
        (lambda e: replace(e, supporting_paths=((0,),)), "does not end in an answer"),
        (lambda e: replace(missing(e), pair=replace(e, answers=(1,))), r"answers \(1,\), but its graph says"),
    ],
)
def test_every_label_that_the_graph_does_not_bear_is_found(good: ReasoningExample, fault, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_solution(fault(good), RuleBook((), R), Patterns())


def test_a_wrong_relation_is_found(make_graph) -> None:
    example = ReasoningExample(
        example_id=1,
        graph=make_graph(3, [(0, 0, 1), (1, 1, 2)]),
        query=Query((0, 2), (), AnswerMode.RELATION),
        kind=QueryKind.RELATION,
        status=Status.SUPPORTED,
        answer_relation=1,
        supporting_paths=((0, 2),),
    )
    rules = RuleBook([Rule(relation=2, chain=(0, 1), confidence=1.0)], R)
    with pytest.raises(DataError, match="relation 1, but its graph says 2"):
        check_solution(example, rules, Patterns())
    check_solution(replace(example, answer_relation=2), rules, Patterns())
