"""The hot loops over edges: values and gradients against plain indexing, whole and in pieces."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hopline.model import messages, node_update
from hopline.model.messages import Routes, message_sum, pair_cosines, plan_routes
from hopline.model.node_update import NodePlan, UpdateWeights, update_nodes
from tests.model.factory import RELATIONS, make_batch, make_examples


@pytest.fixture(params=[1 << 19, 64], ids=["one piece", "many pieces"], autouse=True)
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_PIECE_BYTES", request.param)
    monkeypatch.setattr(node_update, "_PIECE_ROWS_BYTES", request.param)


def _routes(blocks: int, examples: int = 3) -> tuple[Routes, int, int]:
    """The messages of a batch, with nodes that receive none among them; how many nodes, and rows of the table."""
    batch = make_batch(make_examples(examples, nodes=(4, 9), degree=0.8))
    nodes, relations = batch.num_nodes, 2 * RELATIONS
    cell = batch.node_graph[batch.message_target] * relations + batch.message_relation
    routes = plan_routes(
        batch.message_source, batch.message_target, cell, batch.edge_message, nodes=nodes, blocks=blocks
    )
    assert len(batch.message_target.unique()) < nodes
    return routes, nodes, batch.num_graphs * relations


def _expected(states: Tensor, table: Tensor, routes: Routes) -> Tensor:
    coefficient = table[routes.cell].repeat_interleave(states.shape[1] // table.shape[1], 1)
    return torch.zeros_like(states).index_add(0, routes.target, states[routes.source] * coefficient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_message_sum(blocks: int, dtype: torch.dtype) -> None:
    """Equal to gather, multiply and index_add, and so are the gradients."""
    routes, nodes, cells = _routes(blocks)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(nodes, 8, dtype=dtype, generator=generator, requires_grad=True)
    table = torch.randn(cells, blocks, dtype=dtype, generator=generator, requires_grad=True)
    out, expected = message_sum(states, table, routes), _expected(states, table, routes)
    torch.testing.assert_close(out, expected)
    along = torch.randn(out.shape, dtype=dtype, generator=generator)
    for grad, wanted in zip(
        torch.autograd.grad((out * along).sum(), (states, table)),
        torch.autograd.grad((expected * along).sum(), (states, table)),
        strict=True,
    ):
        torch.testing.assert_close(grad, wanted)


@pytest.mark.parametrize("dropped", [False, True])
def test_node_update_in_pieces_is_the_plain_one(dropped: bool) -> None:
    """Values and all nine gradients; with and without dropout."""
    routes, nodes, cells = _routes(4)
    H, G = 8, cells // (2 * RELATIONS)
    generator = torch.Generator().manual_seed(0)
    shapes = [(nodes, H), (cells, 4), (nodes, 3), (G, H), (G, H), (H, H), (H,), (H, H), (H, 3)]
    inputs = [
        torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True) for shape in shapes
    ]  # double: no rounding hides a mistake
    mask = (torch.rand(nodes, H, generator=generator) < 0.7).double() / 0.7 if dropped else None
    graph = torch.arange(nodes) * G // nodes
    plan = NodePlan(routes, graph, torch.rand(nodes, 1, generator=generator).double())
    states, table, signal, gain, shift, *weights = inputs
    along = torch.randn(nodes, H, dtype=torch.float64, generator=generator)
    out = update_nodes(states, table, signal, gain, shift, UpdateWeights(*weights), plan, mask)
    expected = node_update._plain(*inputs, mask, plan)
    torch.testing.assert_close(out, expected, check_dtype=False)
    grads, wanted = (torch.autograd.grad((value * along).sum(), inputs) for value in (out, expected))
    for index, (a, b) in enumerate(zip(grads, wanted, strict=True)):
        torch.testing.assert_close(a, b, msg=lambda text, index=index: f"input {index}: {text}", rtol=1e-5, atol=1e-6)


def test_pair_cosines() -> None:
    """G32: equal to the cosines of the rows; a pair of one node with itself has both its gradients; a state of zeros has
    none."""
    states = torch.randn(6, 4, dtype=torch.float64)
    states[5] = 0
    states.requires_grad_()
    pairs = torch.tensor([[0, 1], [3, 3], [4, 0], [5, 2]])
    expected = F.cosine_similarity(states[pairs[:, 0]], states[pairs[:, 1]])
    torch.testing.assert_close(pair_cosines(states, pairs), expected)
    assert torch.autograd.gradcheck(lambda s: pair_cosines(s, pairs[:3]), (states,))
    (grad,) = torch.autograd.grad(pair_cosines(states, pairs).sum(), states)
    assert torch.isfinite(grad).all()


def test_nothing_to_do() -> None:
    """No nodes, no messages, no pairs."""
    none = torch.zeros(0, dtype=torch.int64)
    for nodes in (0, 3):
        routes = plan_routes(none, none, none, none.view(2, 0), nodes=nodes, blocks=2)
        assert not message_sum(torch.ones(nodes, 4), torch.zeros(0, 2), routes).any()
    assert pair_cosines(torch.ones(3, 4), none.view(0, 2)).shape == (0,)
