"""Examples to columns and back, and taking rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.datasets import (
    Dataset,
    Vocabulary,
    columns_from_examples,
    concat_columns,
    examples_from_columns,
    take_rows,
)
from hopline.graph import COLUMNS, GROUPS, ExampleColumns

ANONYMOUS = Vocabulary(relations=("a", "b", "c"))
NAMED = Vocabulary(relations=("a", "b"), entities=tuple(f"e{i}" for i in range(15)), identity=True)

seeds = st.lists(st.integers(0, 2**32 - 1), max_size=8)
vocabularies = st.sampled_from([ANONYMOUS, NAMED])


def assert_equal(a: ExampleColumns, b: ExampleColumns) -> None:
    for name, spec in COLUMNS.items():
        assert a.values[name].dtype == b.values[name].dtype == np.dtype(spec.dtype), name
        np.testing.assert_array_equal(a.values[name], b.values[name], err_msg=name)
    for group in GROUPS:
        assert a.offsets[group].dtype == np.int64
        np.testing.assert_array_equal(a.offsets[group], b.offsets[group], err_msg=group)


@settings(max_examples=100, deadline=None)
@given(seeds, vocabularies)
def test_examples_come_back_exactly(make_example, assert_same, drawn, vocabulary) -> None:
    examples = [make_example(seed, vocabulary) for seed in drawn]
    back = examples_from_columns(columns_from_examples(examples))
    assert len(back) == len(examples)
    for before, after in zip(examples, back, strict=True):
        assert_same(before, after)


@settings(max_examples=100, deadline=None)
@given(seeds, vocabularies)
def test_messages_are_a_stable_permutation_by_destination(make_example, drawn, vocabulary) -> None:
    columns = columns_from_examples([make_example(seed, vocabulary) for seed in drawn])
    for row in range(columns.num_rows):
        edges = slice(*columns.offsets["edge"][row : row + 2])
        message = columns.values["message"][slice(*columns.offsets["message"][row : row + 2])]
        count = edges.stop - edges.start
        assert sorted(message.tolist()) == list(range(2 * count))
        ends = np.concatenate([columns.values["edge_target"][edges], columns.values["edge_source"][edges]])
        keys = [(int(ends[m]), int(m)) for m in message]
        assert keys == sorted(keys)


@settings(max_examples=100, deadline=None)
@given(seeds.filter(bool), vocabularies, st.data())
def test_rows_taken_are_the_rows_of_the_examples_taken(make_example, drawn, vocabulary, data) -> None:
    examples = [make_example(seed, vocabulary) for seed in drawn]
    columns = columns_from_examples(examples)
    first = np.append(np.flatnonzero(columns.values["is_twin"] == 0), columns.num_rows)
    chosen = data.draw(st.lists(st.integers(0, len(examples) - 1), max_size=10))
    rows = [row for unit in chosen for row in range(first[unit], first[unit + 1])]
    taken = take_rows(columns.values, columns.offsets, np.array(rows, dtype=np.int64))
    assert_equal(taken, columns_from_examples([examples[unit] for unit in chosen]))


@settings(max_examples=60, deadline=None)
@given(seeds, seeds, vocabularies)
def test_joined_pieces_are_the_columns_of_all(make_example, left, right, vocabulary) -> None:
    a = [make_example(seed, vocabulary) for seed in left]
    b = [make_example(seed, vocabulary) for seed in right]
    joined = concat_columns([columns_from_examples(a), columns_from_examples(b)])
    assert_equal(joined, columns_from_examples(a + b))


def test_answers_are_counted_also_outside_the_graph(nations: Dataset) -> None:
    example = nations.split("test").example(0)
    assert len(example.answer_entities) == 1
    columns = columns_from_examples([example])
    assert columns.values["answer_count"].tolist() == [1]


def test_no_example_gives_columns_without_rows() -> None:
    columns = columns_from_examples([])
    assert columns.num_rows == 0
    assert all(offsets.tolist() == [0] for offsets in columns.offsets.values())
    assert examples_from_columns(columns) == []


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_every_column_is_filled_by_real_data(nations: Dataset, name: str) -> None:
    split = nations.split("train")
    columns = split.columns(np.arange(len(split)))
    assert len(columns.values[name])
    assert len(np.unique(columns.values[name])) > 1
