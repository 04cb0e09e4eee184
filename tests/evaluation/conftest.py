"""A split made by hand, and a stand-in for a model whose every output a test can set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hopline.datasets.convert import columns_from_examples
from hopline.graph import (
    AnswerMode,
    ExampleGraph,
    GraphBatch,
    Query,
    QueryKind,
    ReasoningExample,
    Status,
    collate,
)

R = 3
"""Relations of the hand-made examples."""
V = 7
"""Entities of the hand-made identity examples."""


def graph(nodes: int = 4, entities: Sequence[int] | None = None) -> ExampleGraph:
    """0 -0-> 1 -1-> 2, 0 -2-> 3."""
    edges = np.array([[0, 1, 0], [1, 2, 3]], dtype=np.int64)
    ids = np.full(nodes, -1, dtype=np.int64) if entities is None else np.array(entities, dtype=np.int64)
    return ExampleGraph(ids, edges, np.array([0, 1, 2], dtype=np.int64))


def example(kind: QueryKind, number: int = 0, **fields: object) -> ReasoningExample:
    """A supported query of one kind about :func:`graph`; its supporting path is edges 0, 1, its competing one edge 2."""
    mode = AnswerMode.ENTITIES if kind in (QueryKind.LINK, QueryKind.MULTI_HOP) else AnswerMode(kind.value)
    anchors = (0, 2) if kind in (QueryKind.BOOLEAN, QueryKind.RELATION, QueryKind.AGGREGATE) else (0,)
    chains = {QueryKind.RELATION: (), QueryKind.AGGREGATE: ((0, 1), (1,))}.get(kind, ((0, 1),))
    base = ReasoningExample(
        example_id=number,
        graph=graph(),
        query=Query(anchors, chains, mode),
        kind=kind,
        status=Status.SUPPORTED,
        answers=() if kind is QueryKind.RELATION else (2,),
        answer_relation=1 if kind is QueryKind.RELATION else None,
        supporting_paths=((0, 2),),
        competing_paths=((4,),),
        hops=2,
    )
    return replace(base, **fields)


@dataclass
class HandSplit:
    """Examples in memory, as a split; it remembers which units were asked for."""

    examples: Sequence[ReasoningExample]

    def __post_init__(self) -> None:
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, units: NDArray[np.int64]) -> GraphBatch:
        self.asked.append(units.tolist())
        return collate(columns_from_examples([self.examples[int(unit)] for unit in units]), num_relations=R)


@dataclass
class HandOutput:
    """All outputs that evaluation reads, perfect for the batch they were made from until a test changes them."""

    entity_logits: Tensor
    ranking_logits: Tensor
    ranking_graph: Tensor
    contradiction_logits: Tensor
    count_logits: Tensor
    confidence_logit: Tensor
    selection_logits: Tensor
    selection_threshold: Tensor
    relation_logits: Tensor
    relation_graph: Tensor


def perfect(batch: GraphBatch) -> HandOutput:
    """Outputs that are right in everything."""
    rows = batch.num_graphs
    one_hot = nn.functional.one_hot
    gold = torch.zeros(batch.num_nodes)
    gold[batch.answer_node] = 1
    asks = (batch.answer_mode == list(AnswerMode).index(AnswerMode.RELATION)).nonzero().squeeze(1)
    known = torch.zeros(rows, V)
    known[batch.answer_entity_graph, batch.answer_entity] = 5
    links = (batch.kind == 0).nonzero().squeeze(1) if len(batch.answer_entity) else torch.empty(0, dtype=torch.int64)
    return HandOutput(
        entity_logits=gold * 10 - 5,
        ranking_logits=known[links],
        ranking_graph=links,
        contradiction_logits=one_hot(batch.status, 3) * 4.0,
        count_logits=one_hot(batch.answer_count.clamp(max=3), 4) * 4.0,
        confidence_logit=torch.full((rows,), 2.0),
        selection_logits=batch.path_label * 4.0,
        selection_threshold=torch.full((rows,), 1.0),
        relation_logits=one_hot(batch.answer_relation[asks].clamp(min=0), R) * 4.0,
        relation_graph=asks,
    )


class HandModel(nn.Module):
    """Answers with :func:`perfect`, then with what ``change`` makes of it."""

    def __init__(self, change: Callable[[GraphBatch, HandOutput], Mapping[str, Tensor]] | None = None) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1))
        self.change = change
        self.modes: list[bool] = []

    def forward_batch(self, batch: GraphBatch) -> HandOutput:
        self.modes.append(any(module.training for module in self.modules()))
        assert not torch.is_grad_enabled()
        output = perfect(batch)
        return replace(output, **self.change(batch, output)) if self.change else output


MISSING = {"status": Status.MISSING, "answers": (), "answer_relation": None, "supporting_paths": ()}


@pytest.fixture
def mixed() -> list[ReasoningExample]:
    """One example of every kind, a missing one with its twin, a contradicted one, and a false boolean."""
    examples = [example(kind, number) for number, kind in enumerate(QueryKind)]
    twin = example(QueryKind.MULTI_HOP, 6, hops=3)
    examples.append(replace(twin, **MISSING, pair=twin))
    examples.append(example(QueryKind.MULTI_HOP, 7, status=Status.CONTRADICTED, answers=(), supporting_paths=()))
    examples.append(example(QueryKind.BOOLEAN, 8, answers=(), supporting_paths=()))
    return examples


@pytest.fixture(scope="session")
def hand() -> SimpleNamespace:
    """The tools of this file: test modules cannot import a conftest."""
    return SimpleNamespace(
        R=R,
        V=V,
        MISSING=MISSING,
        HandModel=HandModel,
        HandSplit=HandSplit,
        example=example,
        graph=graph,
        perfect=perfect,
    )
