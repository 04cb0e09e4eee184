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
    for example, found in zip(examples, reached, strict=True):
        ends = [
            {end for _, end in walks(example.graph, anchor, chain)}
            for anchor, chain in zip(example.query.anchors, example.query.chains, strict=False)
        ]
        assert set(found.nonzero().view(-1).tolist()) == set.intersection(*ends)
    assert states.joint.min() >= 0
    assert states.joint.max() <= 1
    assert bool((states.visited >= states.joint - 1e-6).all())


def _detect(edges: list[tuple[int, int, int]]) -> torch.Tensor:
    """Conflict of each node of a graph, by a detector that knows that relation 0 is functional and excludes 1."""
    source, relation, target = np.array(edges).T
    graph = sorted_graph(np.full(4, -1), np.stack([source, target]), relation)
    query = GraphQuery((0,), ((0,),), AnswerMode.ENTITIES)
    batch = make_batch([ReasoningExample(0, graph, query, QueryKind.LINK, Status.CONTRADICTED)])
    plan = plan_batch(batch, num_relations=RELATIONS, positions=4, ranks_entities=False)
    detector = ConflictDetector(num_relations=RELATIONS)
    with torch.no_grad():
        detector.own.weight.zero_()
        detector.other.weight.zero_()
        detector.several.weight[RELATIONS] = 10.0  # several edges of relation 0 out of one node
        detector.own.weight[1, 0] = detector.other.weight[0, 0] = 4.0  # 1 beside 0, the same way
        return detector(batch, plan).node[:, 0] > 0.5


def test_conflicts_of_a_functional_relation() -> None:
    """Two edges of relation 0 out of node 0 conflict there; one does not."""
    assert _detect([(0, 0, 1), (0, 0, 2)]).tolist() == [True, False, False, False]
    assert _detect([(0, 0, 1), (0, 2, 2), (3, 0, 1)]).tolist() == [False] * 4


def test_conflicts_of_exclusive_relations() -> None:
    """Relations 0 and 1 between the same two nodes, in the same direction, conflict; elsewhere they do not."""
    assert _detect([(0, 0, 1), (0, 1, 1)]).tolist() == [False, True, False, False]
    assert _detect([(0, 0, 1), (1, 1, 0)]).tolist() == [False] * 4
    assert _detect([(0, 0, 1), (0, 1, 2)]).tolist() == [False] * 4
