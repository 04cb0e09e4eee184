"""GraphModel: outputs of a row alone and in a batch, symmetries, empty inputs, and what it must not read."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn

from hopline.config import GraphConfig, ModelConfig
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import ConfigError, DataError
from hopline.graph import (
    STATUS_INDEX,
    AnswerMode,
    ExampleGraph,
    GraphBatch,
    GraphStore,
    Query,
    QueryKind,
    ReasoningExample,
    Status,
    make_step,
)
from hopline.model import STATUS_INDEX as MODEL_STATUS_INDEX
from hopline.model import Forward, GraphModel, build_model
from tests.model.factory import ENTITIES, RELATIONS, make_batch, make_examples

LABEL_FIELDS = {
    "next_hop_logits", "next_hop_labels", "hop_relation_logits", "hop_relation_labels", "hop_graph", "selection_labels",
    "pat_positive", "pat_negative", "pat_mask",
}  # fmt: skip
"""What is made of labels, or of the steps that labels choose."""

ROW_FIELDS = ("support_logit", "contradiction_logits", "count_logits", "confidence_logit", "selection_threshold")


@pytest.fixture(params=[False, True], ids=["inductive", "transductive"])
def model(request: pytest.FixtureRequest) -> GraphModel:
    return _model(transductive=request.param)


def _model(*, transductive: bool = False, on_policy: bool = False, seed: int = 0) -> GraphModel:
    """A model in evaluation mode whose weights are all random, also those that start at 0."""
    torch.manual_seed(seed)
    config = ModelConfig(
        hidden_dim=16,
        layers=3,
        max_hops=4,
        max_count=5,
        transductive=transductive,
        transductive_rank=8,
        on_policy_selection=on_policy,
    )
    model = GraphModel(config, num_relations=RELATIONS, num_entities=ENTITIES if transductive else 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def _forward(model: GraphModel, examples: list[ReasoningExample]) -> Forward:
    with torch.no_grad():
        return model.forward_batch(make_batch(examples))


def _finite(forward: Forward) -> bool:
    return all(
        bool(torch.isfinite(getattr(forward, field.name)).all())
        for field in fields(forward)
        if getattr(forward, field.name).is_floating_point()
    )


def _close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_shapes_and_dtypes(model: GraphModel) -> None:
    """Every field has the shape that Forward documents."""
    batch = make_batch(make_examples(24, identity=model.transductive is not None))
    forward = model.forward_batch(batch)
    G, N, P = batch.num_graphs, batch.num_nodes, batch.num_paths
    links = int((batch.kind == 0).sum()) if model.transductive is not None else 0
    relations = int((batch.answer_mode == 4).sum())
    steps = int((batch.path_label[batch.step_path] == 1).sum())
    V = ENTITIES if model.transductive is not None else 0
    expected = {
        "entity_order": (N,), "node_states": (N, 16), "entity_logits": (N,), "ranking_logits": (links, V),
        "bilinear_logits": (links, V), "ranking_graph": (links,), "next_hop_logits": (steps, 2 * RELATIONS),
        "next_hop_labels": (steps,), "hop_relation_logits": (steps, 2 * RELATIONS), "hop_relation_labels": (steps,),
        "hop_graph": (steps,), "relation_logits": (relations, RELATIONS), "relation_graph": (relations,),
        "selection_logits": (P,), "selection_threshold": (G,), "selection_labels": (P,), "path_attention": (P,),
        "pat_positive": (G,), "pat_negative": (G,), "pat_mask": (G,), "support_logit": (G,),
        "contradiction_logits": (G, len(STATUS_INDEX)), "count_logits": (G, 6), "confidence_logit": (G,),
    }  # fmt: skip
    assert {field.name: tuple(getattr(forward, field.name).shape) for field in fields(forward)} == expected
    assert _finite(forward)
    assert MODEL_STATUS_INDEX is STATUS_INDEX


def test_row_alone_is_row_in_batch(model: GraphModel) -> None:
    """A row's outputs do not depend on its neighbours in the batch, nor on the longest chain among them."""
    examples = make_examples(18, identity=model.transductive is not None)
    rows = [row for example in examples for row in (example, example.pair) if row is not None]
    whole, batch = _forward(model, examples), make_batch(examples)
    for index, row in enumerate(rows):
        alone = _forward(model, [replace(row, pair=None)])
        nodes, paths = batch.node_graph == index, batch.path_graph == index
        _close(alone.entity_logits, whole.entity_logits[nodes])
        _close(alone.node_states, whole.node_states[nodes])
        _close(alone.selection_logits, whole.selection_logits[paths])
        _close(alone.path_attention, whole.path_attention[paths])
        _close(alone.next_hop_logits, whole.next_hop_logits[whole.hop_graph == index])
        _close(alone.hop_relation_logits, whole.hop_relation_logits[whole.hop_graph == index])
        _close(alone.relation_logits, whole.relation_logits[whole.relation_graph == index])
        _close(alone.ranking_logits, whole.ranking_logits[whole.ranking_graph == index])
        for name in ROW_FIELDS:
            _close(getattr(alone, name), getattr(whole, name)[index : index + 1])
        if whole.pat_mask[index]:
            _close(alone.pat_positive, whole.pat_positive[index : index + 1])
            _close(alone.pat_negative, whole.pat_negative[index : index + 1])


def test_forward_example_is_a_batch_of_one(model: GraphModel) -> None:
    """G25: the single query gives what its row in a batch gives; the kind follows from the query."""
    for row in make_examples(12, identity=model.transductive is not None):
        if row.kind is QueryKind.MULTI_HOP and row.hops == 1:
            continue  # as a query of its own it is a link query
        whole = _forward(model, [replace(row, pair=None)])
        with torch.no_grad():
            single = model.forward_example(
                GraphStore.from_example(row.graph),
                row.query,
                supporting_paths=row.supporting_paths,
                competing_paths=row.competing_paths,
                answers=row.answers,
                status=row.status,
            )
        for field in fields(whole):
            torch.testing.assert_close(getattr(single, field.name), getattr(whole, field.name), atol=1e-6, rtol=1e-6)


def test_entity_order_counts_from_each_rows_first_node(model: GraphModel) -> None:
    """G29: ``entity_logits[i]`` speaks of node ``entity_order[i]`` of its own graph."""
    examples = [replace(e, pair=None) for e in make_examples(6, identity=model.transductive is not None)]
    expected = [node for example in examples for node in range(example.graph.num_nodes)]
    assert _forward(model, examples).entity_order.tolist() == expected


@pytest.mark.parametrize("seed", range(3))
def test_node_and_edge_order_change_nothing(model: GraphModel, seed: int) -> None:
    """Robustness: the same graph with its nodes and edges in another order gives the same answers."""
    rng = np.random.default_rng(seed)
    for example in make_examples(12, identity=model.transductive is not None):
        row = replace(example, pair=None)
        moved, place = _shuffled(row, rng)
        a, b = _forward(model, [row]), _forward(model, [moved])
        _close(a.entity_logits, b.entity_logits[torch.from_numpy(place)])
        _close(a.selection_logits, b.selection_logits)
        _close(a.ranking_logits, b.ranking_logits)
        _close(a.relation_logits, b.relation_logits)
        for name in ROW_FIELDS:
            _close(getattr(a, name), getattr(b, name))


def test_names_of_anonymous_entities_change_nothing() -> None:
    """Robustness: an inductive model does not read entity ids."""
    model = _model()
    rows = make_examples(12)
    named = [
        replace(row, pair=None, graph=replace(row.graph, node_entities=np.arange(row.graph.num_nodes) * 7))
        for row in rows
    ]
    a, b = _forward(model, [replace(row, pair=None) for row in rows]), _forward(model, named)
    for field in fields(a):
        torch.testing.assert_close(getattr(a, field.name), getattr(b, field.name), atol=0, rtol=0)


def test_evaluation_reads_no_label(model: GraphModel) -> None:
    """Labels changed at random change no prediction in evaluation mode."""
    batch = make_batch(make_examples(24, identity=model.transductive is not None))
    with torch.no_grad():
        a, b = model.forward_batch(batch), model.forward_batch(_scramble_labels(batch))
    for field in fields(a):
        if field.name not in LABEL_FIELDS:
            torch.testing.assert_close(getattr(a, field.name), getattr(b, field.name), atol=0, rtol=0)


def test_on_policy_training_reads_no_label() -> None:
    """G25: with on_policy_selection the heads after selection see the model's own paths, in training too and in a batch."""
    batch = make_batch(make_examples(24))
    other = _scramble_labels(batch)
    for on_policy in (True, False):
        model = _model(on_policy=on_policy).train()
        a, b = model.forward_batch(batch), model.forward_batch(other)
        assert torch.equal(a.support_logit, b.support_logit) is on_policy
        assert torch.equal(a.entity_logits, b.entity_logits)


def test_evaluation_is_on_policy_in_any_case() -> None:
    """Nobody has gold paths when the model is used: both settings then compute the same thing."""
    batch = make_batch(make_examples(12))
    taught, own = _model(on_policy=False), _model(on_policy=True)
    own.load_state_dict(taught.state_dict())
    with torch.no_grad():
        a, b = taught.forward_batch(batch), own.forward_batch(batch)
    assert torch.equal(a.support_logit, b.support_logit)


def _empty_cases() -> dict[str, ReasoningExample]:
    entities = ExampleGraph(np.array([3]), np.zeros((2, 0), np.int64), np.zeros(0, np.int64))
    loop = ExampleGraph(np.array([3]), np.zeros((2, 1), np.int64), np.zeros(1, np.int64))
    three = ExampleGraph(np.array([3, 4, 5]), np.zeros((2, 0), np.int64), np.zeros(0, np.int64))
    nothing = ExampleGraph(np.zeros(0, np.int64), np.zeros((2, 0), np.int64), np.zeros(0, np.int64))

    def ask(
        graph: ExampleGraph, query: Query, kind: QueryKind, paths: tuple[tuple[int, ...], ...] = ()
    ) -> ReasoningExample:
        return ReasoningExample(0, graph, query, kind, Status.MISSING, competing_paths=paths)

    link = Query((0,), ((1,),), AnswerMode.ENTITIES)
    return {
        "one node": ask(entities, link, QueryKind.LINK),
        "self loop": ask(loop, link, QueryKind.LINK, ((make_step(0, reverse=True),),)),
        "no edges": ask(three, Query((0, 2), ((0, 1), (2,)), AnswerMode.AGGREGATE), QueryKind.AGGREGATE),
        "no edges, relation": ask(three, Query((0, 2), (), AnswerMode.RELATION), QueryKind.RELATION),
        "no nodes": ask(nothing, Query((), ((0, 1),), AnswerMode.ENTITIES), QueryKind.MULTI_HOP),
        "no nodes, link": ask(nothing, Query((), ((0,),), AnswerMode.ENTITIES), QueryKind.LINK),
        "no anchor": ask(three, Query((), ((0,),), AnswerMode.ENTITIES), QueryKind.LINK),
        "empty chain": ask(three, Query((0,), ((),), AnswerMode.COUNT), QueryKind.COUNT),
        "empty path": ask(three, link, QueryKind.LINK, ((),)),
    }


@pytest.mark.parametrize("case", _empty_cases())
def test_empty_inputs_give_finite_outputs_and_gradients(model: GraphModel, case: str) -> None:
    """Robustness: empty graph, graph without edges or paths, one node, no anchor: never NaN."""
    batch = make_batch([_empty_cases()[case]])
    forward = model.train().forward_batch(batch)
    assert _finite(forward)
    parts = [getattr(forward, field.name) for field in fields(forward)]
    sum(part.sum() for part in parts if part.requires_grad).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_batch_without_rows(model: GraphModel) -> None:
    """An empty batch has empty outputs."""
    forward = model.forward_batch(make_batch([]))
    assert forward.support_logit.shape == (0,)
    assert forward.entity_logits.shape == (0,)


def test_large_graph_is_finite() -> None:
    """Robustness: 5,000 nodes."""
    example = replace(make_examples(2, nodes=(5000, 5000))[1], pair=None)
    assert _finite(_forward(_model(), [example]))


def test_every_parameter_gets_a_gradient_in_every_batch(model: GraphModel) -> None:
    """Every head takes part in every step, also where a batch has no row for it (needed under DDP)."""
    examples = [e for e in make_examples(30, identity=model.transductive is not None) if e.kind is QueryKind.COUNT]
    forward = model.train().forward_batch(make_batch(examples))
    assert forward.relation_logits.shape[0] == forward.ranking_logits.shape[0] == 0
    sum(getattr(forward, f.name).sum() for f in fields(forward) if getattr(forward, f.name).requires_grad).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_ranking_is_bilinear_plus_scaled_structure() -> None:
    """The ranking adds a node's weighted score to its entity, and one score to all entities outside the graph."""
    model = _model(transductive=True)
    example = make_examples(1, identity=True)[0]
    forward = _forward(model, [example])
    inside = torch.from_numpy(example.graph.node_entities)
    added = forward.ranking_logits - forward.bilinear_logits
    _close(added[0, inside], 0.25 * forward.entity_logits)
    outside = torch.ones(ENTITIES, dtype=torch.bool)
    outside[inside] = False
    _close(added[0, outside], torch.full((int(outside.sum()),), 0.25 * -3.0))


def test_bilinear_scores_are_complex_products() -> None:
    """The bilinear score is Re(h · r · conj(t)), and the relation scores are the same number."""
    branch = _model(transductive=True).transductive
    assert branch is not None
    with torch.no_grad():
        entity = torch.complex(*branch.entity.weight.chunk(2, -1))
        relation = torch.complex(*branch.relation.weight.chunk(2, -1))
        head, rel = torch.tensor([3, 5]), torch.tensor([1, RELATIONS + 1])
        expected = (entity[head] * relation[rel] @ entity.conj().t()).real
        _close(branch.scores(head, rel), expected)
        by_relation = branch.relation_scores(torch.tensor([3]), torch.tensor([9]), RELATIONS)
        _close(by_relation[:, 1], expected[:1, 9])
        assert branch.scores(torch.tensor([-1]), torch.tensor([0])).abs().sum() == 0
        cubes = entity[3].abs() ** 3 + relation[1].abs() ** 3 + entity[9].abs() ** 3
        _close(branch.penalty(head[:1], rel[:1], torch.tensor([9])), cubes.sum()[None])


def test_bfloat16_autocast_gives_float32_logits(model: GraphModel) -> None:
    """G33: under autocast the sums and logits stay float32."""
    batch = make_batch(make_examples(12, identity=model.transductive is not None))
    with torch.autocast("cpu", torch.bfloat16):
        forward = model.forward_batch(batch)
    for field in fields(forward):
        value = getattr(forward, field.name)
        assert not value.is_floating_point() or value.dtype == torch.float32, field.name
    assert _finite(forward)


def test_parameter_buckets_add_up(model: GraphModel) -> None:
    """Every parameter is in one bucket; G12: thresholds and scales are known by their names."""
    buckets = dict(model.parameter_buckets())
    total = buckets.pop("total")
    assert total == sum(buckets.values()) == sum(p.numel() for p in model.parameters())
    names = [name for name, _ in model.named_parameters()]
    assert any(name.endswith(".threshold") for name in names)
    assert any(name.endswith(".scale") for name in names)
    assert isinstance(model.query_encoder, nn.Module)


def test_link_heads() -> None:
    """G10, G32, D21: the cosine head scales cosines once; the mlp head is there from the start and is saved."""
    config = GraphConfig(name="m", training={"link_head": "mlp"})  # type: ignore[arg-type]
    vocabulary = Vocabulary(relations=("a", "b"))
    mlp = build_model(config, vocabulary)
    assert {name.split(".")[0] for name in mlp.state_dict()} >= {"link_mlp"}
    states = nn.functional.normalize(torch.randn(4, 64), dim=-1)
    pairs = torch.tensor([[0, 1], [2, 3]])
    cosines = (states[pairs[:, 0]] * states[pairs[:, 1]]).sum(-1)
    assert mlp.link_logits(states, pairs, cosines).shape == (2,)
    cosine = build_model(GraphConfig(name="m"), vocabulary)
    assert cosine.link_mlp is None
    _close(cosine.link_logits(states, pairs, cosines), 2.0 * cosines)


def test_build_model_needs_identities_for_the_bilinear_branch() -> None:
    """A transductive model of anonymous entities is refused."""
    config = GraphConfig(name="m", dataset={"entities": "identity"}, model={"transductive": True})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="entities have no identity"):
        build_model(config, Vocabulary(relations=("a",)))
    model = build_model(config, Vocabulary(relations=("a",), entities=("x", "y"), identity=True))
    assert model.transductive is not None


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (Query((9,), ((0,),), AnswerMode.ENTITIES), "anchor 9 is no node"),
        (Query((0,), ((99,),), AnswerMode.ENTITIES), "relation id 99 is unknown"),
        (Query((0,), ((0,) * 5,), AnswerMode.ENTITIES), "5 hops; this model reads at most 4"),
        (Query((0,), ((0,), (0,), (0,)), AnswerMode.AGGREGATE), "3 chains"),
    ],
)
def test_wrong_queries_are_refused(query: Query, message: str) -> None:
    """A query that does not fit is one clear error."""
    graph = ExampleGraph(np.array([-1, -1]), np.array([[0], [1]]), np.array([0]))
    with pytest.raises(DataError, match=message):
        _model().forward_example(GraphStore.from_example(graph), query)


def test_unknown_relation_in_graph_is_refused() -> None:
    """D11: relation ids are never folded into others."""
    graph = ExampleGraph(np.array([-1, -1]), np.array([[0], [1]]), np.array([RELATIONS]))
    with pytest.raises(DataError, match=f"relation id {RELATIONS} is unknown"):
        _model().forward_example(GraphStore.from_example(graph), Query((0,), ((0,),), AnswerMode.ENTITIES))


def _shuffled(row: ReasoningExample, rng: np.random.Generator) -> tuple[ReasoningExample, np.ndarray]:
    """The same example with nodes and edges in another order, and where each node went."""
    graph = row.graph
    place = rng.permutation(graph.num_nodes)
    edges = place[graph.edge_index]
    order = np.lexsort((rng.random(graph.num_edges), edges[1]))
    where = np.argsort(order)
    entities = np.empty_like(graph.node_entities)
    entities[place] = graph.node_entities

    def moved(paths: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(make_step(int(where[step >> 1]), reverse=bool(step & 1)) for step in path) for path in paths)

    query = replace(row.query, anchors=tuple(int(place[a]) for a in row.query.anchors))
    return replace(
        row,
        graph=ExampleGraph(entities, edges[:, order], graph.edge_type_ids[order]),
        query=query,
        answers=tuple(int(place[a]) for a in row.answers),
        supporting_paths=moved(row.supporting_paths),
        competing_paths=moved(row.competing_paths),
    ), place


def _scramble_labels(batch: GraphBatch) -> GraphBatch:
    generator = torch.Generator().manual_seed(1)

    def any_of(high: int, like: torch.Tensor) -> torch.Tensor:
        return torch.randint(0, high, like.shape, generator=generator)

    path_label = 1 - batch.path_label
    return replace(
        batch,
        num_supporting_steps=int(batch.path_length[path_label == 1].sum()),
        status=any_of(3, batch.status),
        hops=any_of(4, batch.hops),
        answer_count=any_of(5, batch.answer_count),
        answer_relation=any_of(RELATIONS, batch.answer_relation),
        path_label=path_label,
        answer_node=any_of(5, batch.answer_node),
        answer_entity=any_of(ENTITIES, batch.answer_entity),
        known_entity=any_of(ENTITIES, batch.known_entity),
    )
