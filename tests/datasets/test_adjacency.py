"""Neighbour lists and chains, against matrices of reachability."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.datasets import Vocabulary
from hopline.datasets.adjacency import Adjacency

R = 3
VOCABULARY = Vocabulary(relations=("a", "b", "c"))


def matrices(graph) -> list[np.ndarray]:
    found = [np.zeros((graph.num_nodes, graph.num_nodes), dtype=int) for _ in range(2 * R)]
    for (head, tail), relation in zip(graph.edge_index.T, graph.edge_type_ids, strict=True):
        found[relation][head, tail] += 1
        found[relation + R][tail, head] += 1
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2 * R - 1), min_size=1, max_size=3))
def test_layers_and_walks_are_what_matrices_say(make_example, seed: int, chain: list[int]) -> None:
    graph = make_example(seed, VOCABULARY).graph
    adjacency = Adjacency(graph, R)
    counts = np.zeros(graph.num_nodes, dtype=int)
    counts[0] = 1
    for hop, relation in enumerate(chain):
        counts = counts @ matrices(graph)[relation]
        assert adjacency.layers(0, chain)[hop + 1] == set(np.flatnonzero(counts))
    walks = adjacency.walks(0, chain)
    assert np.bincount([walk.end for walk in walks], minlength=graph.num_nodes).tolist() == counts.tolist()
    assert [walk.steps for walk in walks] == sorted(walk.steps for walk in walks)
    assert adjacency.walks(0, chain, limit=2) == walks[:2]
    ends = set(range(0, graph.num_nodes, 2))
    assert adjacency.walks(0, chain, ends) == [walk for walk in walks if walk.end in ends]
    pruned = adjacency.pruned_layers(0, chain, ends)
    assert pruned[-1] == {walk.end for walk in walks} & ends


def test_out_and_follow_agree(make_example) -> None:
    graph = make_example(11, VOCABULARY).graph
    adjacency = Adjacency(graph, R)
    assert graph.num_edges
    for node in range(graph.num_nodes):
        for relation in range(2 * R):
            there = [(step, other) for signed, step, other in adjacency.out[node] if signed == relation]
            assert sorted(adjacency.follow(node, relation)) == sorted(there)
            assert adjacency.targets(node, relation) == {other for _, other in there}


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_one_node_alone_has_the_edges_that_it_has_among_all(make_example, seed: int) -> None:
    graph = make_example(seed, Vocabulary(relations=("a", "b"))).graph
    before = Adjacency(graph, 2)
    alone = [list(before.at(node)) for node in range(graph.num_nodes)]
    assert alone == before.out == [list(before.at(node)) for node in range(graph.num_nodes)]
    expected: list[list[tuple[int, int, int]]] = [[] for _ in range(graph.num_nodes)]
    for edge, (head, relation, tail) in enumerate(before.edges):
        expected[head].append((relation, 2 * edge, tail))
        expected[tail].append((relation + 2, 2 * edge + 1, head))
    assert alone == expected
    for node, relation in ((n, r) for n in range(graph.num_nodes) for r in range(4)):
        assert list(before.follow(node, relation)) == [(step, other) for r, step, other in alone[node] if r == relation]
