"""The checks of rows by array work find what the checks of single examples find, and what those leave out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.datasets import Dataset, Vocabulary, check_structure, columns_from_examples, examples_from_columns
from hopline.datasets.column_checks import check_rows
from hopline.datasets.convert import slice_rows, take_rows
from hopline.errors import DataError
from hopline.graph import AnswerMode, ExampleColumns, ExampleGraph, Query, QueryKind, ReasoningExample, Status

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
        competing_paths=((0, 2, 5),),
        hops=2,
    )


def missing(good: ReasoningExample, kept: list[int] | None = None) -> ReasoningExample:
    edges = kept if kept is not None else [1, 2]
    graph = ExampleGraph(good.graph.node_entities, good.graph.edge_index[:, edges], good.graph.edge_type_ids[edges])
    return replace(
        good, graph=graph, status=Status.MISSING, answers=(), supporting_paths=(), competing_paths=(), pair=good
    )


def graph_with(good: ReasoningExample, **arrays: list) -> ReasoningExample:
    return replace(good, graph=replace(good.graph, **{name: np.array(value) for name, value in arrays.items()}))


def check(*examples: ReasoningExample) -> None:
    check_rows(columns_from_examples(examples), R, paths_end_in_answers=True)


def test_good_rows_pass(good: ReasoningExample) -> None:
    check(good, missing(good), good, missing(good, []))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda e: graph_with(e, edge_type_ids=[0, 1, 3]), r"relation ids must be in \[0, 3\)"),
        (lambda e: graph_with(e, edge_index=[[1, 0, 3], [2, 1, 2]]), "not sorted by target"),
        (lambda e: replace(e, answers=(4,)), "node 4 is not there"),
        (lambda e: replace(e, query=replace(e.query, anchors=(-1,))), "node -1 is not there"),
        (lambda e: replace(e, query=replace(e.query, chains=((6,),))), r"relation ids in \[0, 6\)"),
        (lambda e: replace(e, supporting_paths=((6,),)), "crosses edge 3"),
        (lambda e: replace(e, competing_paths=((2,),)), "no walk from an anchor"),
        (lambda e: replace(e, competing_paths=((0, 4),)), "no walk from an anchor"),
        (lambda e: replace(e, status=Status.MISSING), "status missing with an answer"),
        (lambda e: replace(e, status=Status.CONTRADICTED, answers=()), "status contradicted with an answer"),
        (lambda e: replace(e, pair=e), "only a missing example has a twin"),
        (
            lambda e: replace(missing(e), pair=replace(e, query=replace(e.query, anchors=(1,)))),
            "no walk|something else",
        ),
        (lambda e: replace(missing(e), pair=replace(e, query=replace(e.query, chains=((0,),)))), "something else"),
        (lambda e: replace(missing(e), pair=graph_with(e, edge_type_ids=[0, 2, 2])), "differs by more"),
        (lambda e: replace(missing(e), graph=e.graph), "differs by more"),
        (lambda e: replace(e, supporting_paths=((0,),)), "does not end in an answer"),
    ],
)
def test_every_fault_is_found_among_good_rows(good: ReasoningExample, fault, message: str) -> None:
    bad = replace(fault(good), example_id=8)
    with pytest.raises(DataError, match=f"example 8 .*({message})"):
        check(good, missing(good), bad, good)


def test_paths_of_what_people_import_end_where_they_like(good: ReasoningExample) -> None:
    check_rows(columns_from_examples([replace(good, supporting_paths=((0,),))]), R)


def test_a_second_twin_and_a_supporting_path_behind_another_are_found(good: ReasoningExample) -> None:
    columns = columns_from_examples([missing(good)])
    with pytest.raises(DataError, match="example 7: more than one twin"):
        check_rows(take_rows(columns.values, columns.offsets, np.array([0, 1, 1])), R)
    columns = columns_from_examples([good])
    columns.values["path_label"][:] = [0, 1]
    with pytest.raises(DataError, match="behind a competing one"):
        check_rows(columns, R)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4), st.data())
def test_rows_are_wrong_where_an_example_is(
    make_example: Callable[[int, Vocabulary], ReasoningExample], seeds: list[int], data: st.DataObject
) -> None:
    """One number of arbitrary rows is altered: both checks find it, or neither does."""
    vocabulary = Vocabulary(relations=("a", "b", "c"))
    columns = columns_from_examples([make_example(seed, vocabulary) for seed in seeds])
    name = data.draw(
        st.sampled_from(
            [
                "edge_source",
                "edge_target",
                "edge_relation",
                "anchor",
                "token_relation",
                "step",
                "answer",
                "status",
                "answer_relation",
            ]
        )
    )
    values = columns.values[name]
    if len(values):
        place = data.draw(st.integers(0, len(values) - 1))
        values[place] = data.draw(st.integers(0, 2) if name == "status" else st.integers(-1, 9))
    assert fails(lambda: check_rows(columns, R)) == fails(lambda: check_all(columns))


def check_all(columns: ExampleColumns) -> None:
    for example in examples_from_columns(columns):
        check_structure(example, R)


def fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except DataError:
        return True
    return False


def test_a_slice_of_rows_is_those_rows(synthetic: Path) -> None:
    split = Dataset.open(synthetic).split("train")
    columns = split.columns(np.arange(60))
    for first, last in ((0, 5), (7, 40), (3, 3), (0, columns.num_rows)):
        part = slice_rows(columns, first, last)
        rows = take_rows(columns.values, columns.offsets, np.arange(first, last))
        for name, values in part.values.items():
            np.testing.assert_array_equal(values, rows.values[name])
        for group, offsets in part.offsets.items():
            np.testing.assert_array_equal(offsets, rows.offsets[group])
