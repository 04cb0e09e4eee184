"""The soft walk against an exact one, and the conflict detector's counts."""

from __future__ import annotations

import numpy as np
import torch

from hopline.graph import AnswerMode, QueryKind, ReasoningExample, Status
from hopline.graph import Query as GraphQuery
from hopline.model.conflicts import ConflictDetector
from hopline.model.plan import plan_batch
from hopline.model.walk import ChainWalk
from tests.model.factory import RELATIONS, make_batch, make_examples, sorted_graph, walks


def test_walk_starts_as_an_exact_walk() -> None:
    """Before training the reached set is, but for leaks of the gates, the set of nodes that the chains reach."""
    examples = [e for e in make_examples(60) if e.kind is not QueryKind.RELATION and e.pair is None]
    batch = make_batch(examples)
    plan = plan_batch(batch, num_relations=RELATIONS, positions=4, ranks_entities=False)
    states = ChainWalk(num_relations=RELATIONS)(batch, plan)
    reached = (states.joint[:, 0] > 0.5).split([e.graph.num_nodes for e in examples])
    crossed = (states.crossed > 0.5).split([e.graph.num_edges for e in examples])
    for example, found, edges in zip(examples, reached, crossed, strict=True):
        ends = [
            {end for _, end in walks(example.graph, anchor, chain)}
            for anchor, chain in zip(example.query.anchors, example.query.chains, strict=False)
        ]
        assert set(found.nonzero().view(-1).tolist()) == set.intersection(*ends)
        assert set(edges.nonzero().view(-1).tolist()) == {
            path[-1] >> 1
            for anchor, chain in zip(example.query.anchors, example.query.chains, strict=False)
            for hops in range(1, len(chain) + 1)
            for path, _ in walks(example.graph, anchor, chain[:hops])
        }
    assert states.joint.min() >= 0
    assert states.joint.max() <= 1


def _detect(edges: list[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    """Edges in conflict, by a detector that knows: 0 is functional and asymmetric; 1 excludes 0, 2 is an inverse of 0."""
    R = RELATIONS
    source, relation, target = np.array(edges).T
    graph = sorted_graph(np.full(4, -1), np.stack([source, target]), relation)
    query = GraphQuery((0,), ((0,),), AnswerMode.ENTITIES)
    batch = make_batch([ReasoningExample(0, graph, query, QueryKind.LINK, Status.CONTRADICTED)])
    plan = plan_batch(batch, num_relations=R, positions=4, ranks_entities=False)
    detector = ConflictDetector(num_relations=R)
    with torch.no_grad():
        detector.several.weight[R] = 4.0  # several edges of relation 0 out of one node
        table = detector.pair.weight.view(R, 2 * R)
        table[0, 0 + R] = table[0, 1] = table[0, 2] = 4.0
        found = detector(batch, plan)
    ends = torch.zeros(4, dtype=torch.bool).index_fill(0, batch.edge_index[:, found.edge > 0.5].reshape(-1), True)
    assert torch.equal(found.node[:, 0] > 0.5, ends)
    triples = torch.stack([batch.edge_index[0], batch.edge_type_ids, batch.edge_index[1]], 1)
    return {tuple(triple) for triple in triples[found.edge > 0.5].tolist()}


def test_conflicts_of_a_functional_relation() -> None:
    """Two edges of relation 0 out of one node conflict; one does not, nor two into one node."""
    assert _detect([(0, 0, 1), (0, 0, 2), (3, 1, 2)]) == {(0, 0, 1), (0, 0, 2)}
    assert _detect([(0, 0, 1), (0, 3, 2), (3, 0, 1)]) == set()


def test_conflicts_of_parallel_edges() -> None:
    """Asymmetric, exclusive and inverse relations between the same two nodes, whichever node has the lower index."""
    for a, b in ((0, 1), (1, 0)):
        assert _detect([(a, 0, b), (b, 0, a)]) == {(a, 0, b), (b, 0, a)}
        assert _detect([(a, 0, b), (a, 1, b)]) == {(a, 0, b), (a, 1, b)}
        assert _detect([(a, 0, b), (a, 2, b)]) == {(a, 0, b), (a, 2, b)}
        assert _detect([(a, 0, b), (b, 1, a), (b, 2, a)]) == set()
        assert _detect([(a, 0, b), (a, 1, 2), (2, 0, a)]) == set()
    assert _detect([(0, 0, 0), (0, 1, 1)]) == set()


def test_an_edge_without_any_sign_has_no_conflict() -> None:
    """Exactly none, so that large graphs do not add up to one."""
    assert _detect([(0, 3, 1)]) == set()
    assert _detect([(0, 3, 1), (1, 3, 2), (2, 3, 3)]) == set()
