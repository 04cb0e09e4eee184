"""Keys of problems up to the names of their nodes, and what is repeated across splits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.datasets import SPLITS, Vocabulary, columns_from_examples
from hopline.datasets.leakage import repeated_units, structure_keys
from hopline.graph import ExampleGraph, QueryKind, ReasoningExample

VOCABULARY = Vocabulary(relations=("a", "b", "c"))


def renamed(example: ReasoningExample, order: np.ndarray) -> ReasoningExample:
    """The same problem with its nodes and edges in another order."""
    source, target = order[example.graph.edge_index]
    by_target = np.lexsort((source, target))
    graph = ExampleGraph(
        example.graph.node_entities,
        np.stack([source, target])[:, by_target],
        example.graph.edge_type_ids[by_target],
    )
    query = replace(example.query, anchors=tuple(order[list(example.query.anchors)].tolist()))
    return ReasoningExample(example.example_id + 1, graph, query, example.kind, example.status)


def key(example: ReasoningExample) -> int:
    return int(structure_keys(columns_from_examples([example]))[0])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.randoms(use_true_random=False))
def test_a_problem_keeps_its_key_under_renaming(make_example, seed: int, random) -> None:
    example = replace(make_example(seed, VOCABULARY), pair=None)
    order = list(range(example.graph.num_nodes))
    random.shuffle(order)
    assert key(renamed(example, np.array(order))) == key(example)


def test_other_problems_get_other_keys(make_example) -> None:
    examples = [replace(make_example(seed, VOCABULARY), pair=None) for seed in range(300)]
    keys = structure_keys(columns_from_examples(examples))
    assert len(np.unique(keys)) > 290
    example = next(e for e in examples if e.kind is QueryKind.MULTI_HOP and e.graph.num_edges > 3)
    changed = [
        replace(example, query=replace(example.query, chains=((*example.query.chains[0][::-1], 0),))),
        replace(example, kind=QueryKind.COUNT),
        replace(
            example, query=replace(example.query, anchors=((example.query.anchors[0] + 1) % example.graph.num_nodes,))
        ),
    ]
    relations = example.graph.edge_type_ids.copy()
    relations[0] = (relations[0] + 1) % 3
    graph = example.graph
    changed.append(replace(example, graph=ExampleGraph(graph.node_entities, graph.edge_index, relations)))
    assert len({key(e) for e in [example, *changed]}) == 5


def test_a_key_does_not_depend_on_the_rows_beside_it(make_example) -> None:
    examples = [replace(make_example(seed, VOCABULARY), pair=None) for seed in range(20)]
    together = structure_keys(columns_from_examples(examples)).tolist()
    assert together == [key(example) for example in examples]


def test_units_are_repeated_if_an_earlier_split_has_their_key() -> None:
    keys = {
        name: np.array(values, dtype=np.uint64)
        for name, values in zip(SPLITS, ([1, 1, 2], [3], [4, 3], [2, 5, 4]), strict=True)
    }
    found = {name: units.tolist() for name, units in repeated_units(keys).items()}
    assert found == {"calibration": [1], "test": [0, 2]}
