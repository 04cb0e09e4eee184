"""The disjoint union of rows, against one built by hand row by row."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from hopline.datasets import columns_from_examples
from hopline.graph import (
    ANSWER_MODES,
    KINDS,
    AnswerMode,
    ExampleColumns,
    ExampleGraph,
    GraphBatch,
    Query,
    QueryKind,
    ReasoningExample,
    Status,
    collate,
    make_step,
    step_edge,
    step_reversed,
)

R = 3
SIZES = {
    "longest_chain",
    "longest_path",
    "num_links",
    "num_relation_queries",
    "num_aggregates",
    "num_supporting_steps",
    "num_node_pairs",
}


def graph(nodes: int, facts: list[tuple[int, int, int]]) -> ExampleGraph:
    edges = np.array(facts, dtype=np.int64).reshape(-1, 3)
    edges = edges[np.argsort(edges[:, 2], kind="stable")]
    return ExampleGraph(np.arange(nodes) + 10, np.ascontiguousarray(edges[:, [0, 2]].T), edges[:, 1].copy())


@pytest.fixture
def examples() -> list[ReasoningExample]:
    entity = ReasoningExample(
        example_id=0,
        graph=graph(4, [(2, 0, 1), (0, 1, 2), (3, 2, 1), (1, 0, 0)]),
        query=Query((0,), ((1, 0),), AnswerMode.ENTITIES),
        kind=QueryKind.MULTI_HOP,
        status=Status.SUPPORTED,
        answers=(1,),
        answer_entities=(11,),
        known_entities=(12, 13),
        supporting_paths=((6, 2),),
        competing_paths=((1,), (6, 3, 0)),
        hops=2,
    )
    empty = ReasoningExample(
        example_id=1,
        graph=graph(1, []),
        query=Query((0,), ((2,),), AnswerMode.ENTITIES),
        kind=QueryKind.LINK,
        status=Status.SUPPORTED,
        answer_entities=(7,),
    )
    twin = ReasoningExample(
        example_id=2,
        graph=graph(3, [(0, 0, 1), (1, 1, 2), (2, 2, 0)]),
        query=Query((0, 2), ((0, 1), (5,)), AnswerMode.AGGREGATE),
        kind=QueryKind.AGGREGATE,
        status=Status.SUPPORTED,
        answers=(2,),
        hops=2,
    )
    missing = ReasoningExample(
        example_id=2,
        graph=graph(3, [(1, 1, 2), (2, 2, 0)]),
        query=twin.query,
        kind=QueryKind.AGGREGATE,
        status=Status.MISSING,
        pair=twin,
        hops=2,
    )
    relation = ReasoningExample(
        example_id=3,
        graph=graph(2, [(0, 1, 1)]),
        query=Query((0, 1), (), AnswerMode.RELATION),
        kind=QueryKind.RELATION,
        status=Status.SUPPORTED,
        answer_relation=1,
    )
    return [entity, empty, missing, relation]


def test_a_batch_holds_every_row_at_its_offset(examples: list[ReasoningExample]) -> None:
    batch = collate(columns_from_examples(examples), num_relations=R)
    rows = [examples[0], examples[1], examples[2], examples[2].pair, examples[3]]
    assert (batch.num_graphs, batch.num_nodes, batch.num_edges, batch.num_paths) == (5, 13, 10, 3)
    assert batch.is_twin.tolist() == [False, False, False, True, False]
    assert batch.example_id.tolist() == [0, 1, 2, 2, 3]
    assert batch.answer_count.tolist() == [1, 1, 0, 1, 1]
    assert batch.answer_relation.tolist() == [-1, -1, -1, -1, 1]
    start = 0
    for number, row in enumerate(rows):
        assert row is not None
        nodes = torch.nonzero(batch.node_graph == number).flatten()
        assert nodes.tolist() == list(range(start, start + row.graph.num_nodes))
        assert batch.node_entity[nodes].tolist() == row.graph.node_entities.tolist()
        edges = batch.edge_graph == number
        np.testing.assert_array_equal(batch.edge_index[:, edges].numpy() - start, row.graph.edge_index)
        assert batch.edge_type_ids[edges].tolist() == row.graph.edge_type_ids.tolist()
        anchors = batch.anchor_graph == number
        assert (batch.anchor_node[anchors] - start).tolist() == list(row.query.anchors)
        assert batch.anchor_slot[anchors].tolist() == list(range(len(row.query.anchors)))
        tokens = batch.token_graph == number
        assert batch.token_relation[tokens].tolist() == [r for chain in row.query.chains for r in chain]
        assert batch.token_position[tokens].tolist() == [p for chain in row.query.chains for p in range(len(chain))]
        assert batch.token_branch[tokens].tolist() == [b for b, chain in enumerate(row.query.chains) for _ in chain]
        assert (batch.answer_node[batch.answer_graph == number] - start).tolist() == list(row.answers)
        assert batch.answer_entity[batch.answer_entity_graph == number].tolist() == list(row.answer_entities)
        assert batch.known_entity[batch.known_entity_graph == number].tolist() == list(row.known_entities)
        start += row.graph.num_nodes


def test_messages_go_both_ways_and_are_sorted_by_target(examples: list[ReasoningExample]) -> None:
    batch = collate(columns_from_examples(examples), num_relations=R)
    assert torch.all(batch.message_target[1:] >= batch.message_target[:-1])
    source, target = batch.edge_index.tolist()
    expected = []
    for s, t, r in zip(source, target, batch.edge_type_ids.tolist(), strict=True):
        expected += [(s, t, r), (t, s, r + R)]
    found = zip(
        batch.message_source.tolist(), batch.message_target.tolist(), batch.message_relation.tolist(), strict=True
    )
    found = list(found)
    assert sorted(found) == sorted(expected)
    forwards, backwards = batch.edge_message.tolist()
    assert [found[place] for place in forwards] == expected[::2]
    assert [found[place] for place in backwards] == expected[1::2]


def test_paths_and_steps_point_into_the_batch(examples: list[ReasoningExample]) -> None:
    shifted = collate(columns_from_examples([examples[2], examples[0]]), num_relations=R)
    edges_before = 5
    assert shifted.path_graph.tolist() == [2, 2, 2]
    assert shifted.path_label.tolist() == [1, 0, 0]
    assert shifted.path_length.tolist() == [2, 1, 3]
    assert shifted.step_path.tolist() == [0, 0, 1, 2, 2, 2]
    assert (shifted.step_edge - edges_before).tolist() == [3, 1, 0, 3, 1, 0]
    assert shifted.step_reversed.tolist() == [False, False, True, False, True, False]
    assert shifted.step_position.tolist() == [0, 1, 0, 0, 1, 2]


def test_graph_indices_are_sorted(examples: list[ReasoningExample]) -> None:
    batch = collate(columns_from_examples(examples * 3), num_relations=R)
    for name in GraphBatch.__slots__:
        if name.endswith("_graph") or name == "step_path":
            values = getattr(batch, name)
            assert torch.all(values[1:] >= values[:-1]), name


def test_to_moves_every_tensor(examples: list[ReasoningExample]) -> None:
    batch = collate(columns_from_examples(examples), num_relations=R)
    moved = batch.to("meta")
    for name in GraphBatch.__slots__:
        value = getattr(moved, name)
        assert value == getattr(batch, name) if name in SIZES else value.device.type == "meta", name


def test_sizes_are_known_on_the_host(examples: list[ReasoningExample]) -> None:
    """G37, D10: what the model sizes its tensors by are plain numbers; they agree with the tensors."""
    for rows in (examples, examples[:1], []):
        batch = collate(columns_from_examples(rows), num_relations=R)
        assert batch.longest_chain == max(batch.token_position.tolist(), default=-1) + 1
        assert batch.longest_path == max(batch.path_length.tolist(), default=0)
        assert batch.num_links == int((batch.kind == KINDS.index(QueryKind.LINK)).sum())
        assert batch.num_relation_queries == int((batch.answer_mode == ANSWER_MODES.index(AnswerMode.RELATION)).sum())
        assert batch.num_aggregates == int((batch.answer_mode == ANSWER_MODES.index(AnswerMode.AGGREGATE)).sum())
        assert batch.num_supporting_steps == int((batch.path_label[batch.step_path] == 1).sum())
        assert batch.num_node_pairs == int((batch.node_graph[:, None] == batch.node_graph).sum())
        assert all(type(getattr(batch, name)) is int for name in SIZES)


def test_values_are_int64_or_bool(examples: list[ReasoningExample]) -> None:
    batch = collate(columns_from_examples(examples), num_relations=R)
    for name in set(GraphBatch.__slots__) - SIZES:
        wanted = torch.bool if name in ("is_twin", "step_reversed") else torch.int64
        assert getattr(batch, name).dtype is wanted, name


def test_a_step_says_edge_and_direction() -> None:
    assert (step_edge(make_step(5, reverse=True)), step_reversed(make_step(5, reverse=True))) == (5, True)
    assert (step_edge(make_step(5, reverse=False)), step_reversed(make_step(5, reverse=False))) == (5, False)


def test_rows_count_twins(examples: list[ReasoningExample]) -> None:
    columns = columns_from_examples(examples)
    assert isinstance(columns, ExampleColumns)
    assert columns.num_rows == 5


def test_datasets_and_graph_do_not_load_torch_until_a_batch_is_wanted() -> None:
    code = (
        "import sys, hopline.graph, hopline.datasets; assert 'torch' not in sys.modules; "
        "hopline.graph.collate; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import hopline.graph

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hopline.graph.nothing
