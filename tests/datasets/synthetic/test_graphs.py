"""Many graphs as flat arrays, against the neighbour lists of each."""

from __future__ import annotations

import numpy as np
import pytest

from hopline.datasets.adjacency import Adjacency
from hopline.datasets.synthetic.graphs import Graphs
from hopline.graph import ExampleGraph

R = 3
SIZES = (4, 1, 6, 5)


@pytest.fixture
def graphs() -> Graphs:
    offsets = np.cumsum([0, *SIZES])
    rng = np.random.default_rng(0)
    facts = {
        (int(base + head), int(relation), int(base + tail))
        for base, size in zip(offsets, SIZES, strict=False)
        for head, relation, tail in rng.integers(0, [size, R, size], (2 * size, 3))
        if head != tail
    }
    head, relation, tail = rng.permutation(np.array(sorted(facts))).T
    return Graphs.of_facts(R, offsets, head, relation, tail)


def single(graphs: Graphs, number: int) -> ExampleGraph:
    base, edges = graphs.node_offsets[number], slice(*graphs.edge_offsets[number : number + 2])
    index = np.stack([graphs.head[edges] - base, graphs.tail[edges] - base])
    return ExampleGraph(np.full(graphs.sizes[number], -1), index, graphs.relation[edges])


def facts(graph: ExampleGraph) -> list[tuple[int, int, int]]:
    heads, tails = graph.edge_index.tolist()
    return list(zip(tails, heads, graph.edge_type_ids.tolist(), strict=True))


def test_edges_are_sorted_by_target_in_each_graph(graphs: Graphs) -> None:
    assert len(graphs) == 4
    for number in range(4):
        assert facts(single(graphs, number)) == sorted(facts(single(graphs, number)))
    assert sum(len(facts(single(graphs, number))) for number in range(4)) == len(graphs.head) > 15


def test_the_edges_at_a_node_are_those_of_its_neighbour_list(graphs: Graphs) -> None:
    half = graphs.half_edges
    for number in range(4):
        out = Adjacency(single(graphs, number), R).out
        base, step = graphs.node_offsets[number], 2 * graphs.edge_offsets[number]
        for node, listed in enumerate(out):
            here = slice(*half.offsets[base + node : base + node + 2])
            found = zip(half.relation[here], half.step[here] - step, half.other[here] - base, strict=True)
            assert [tuple(map(int, edge)) for edge in found] == listed
            assert set(half.node[here].tolist()) <= {base + node}


def test_some_graphs_alone(graphs: Graphs) -> None:
    for chosen, part in (
        ([2, 0, 2], graphs.take(np.array([2, 0, 2]))),
        ([1, 2], graphs.slice(1, 3)),
        ([0, 1, 2, 3], graphs.slice(0, 4)),
    ):
        assert [facts(single(part, place)) for place in range(len(chosen))] == [
            facts(single(graphs, number)) for number in chosen
        ]
        assert part.sizes.tolist() == [SIZES[number] for number in chosen]
        assert part.node_graph.tolist() == np.repeat(np.arange(len(chosen)), part.sizes).tolist()


def test_edges_are_removed_and_found(graphs: Graphs) -> None:
    removed = np.zeros(len(graphs.head), dtype=bool)
    removed[::3] = True
    rest = graphs.without(removed)
    for number in range(4):
        edges = slice(*graphs.edge_offsets[number : number + 2])
        kept = [fact for fact, gone in zip(facts(single(graphs, number)), removed[edges], strict=True) if not gone]
        assert facts(single(rest, number)) == kept
    every = np.arange(len(graphs.head))
    np.testing.assert_array_equal(graphs.find(graphs.head, graphs.relation, graphs.tail), every)
