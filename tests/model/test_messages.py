"""The hot loops over edges: values and gradients against plain indexing, whole and in pieces."""

from __future__ import annotations

import pytest
import torch

from hopline.model import messages
from hopline.model.messages import message_sum, pair_product


@pytest.fixture(params=[1 << 19, 64], ids=["one piece", "many pieces"], autouse=True)
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_PIECE_BYTES", request.param)


def test_message_sum() -> None:
    """Equal to gather, multiply and index_add; gradients by finite differences."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(5, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    coefficient = torch.randn(7, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    source, target = torch.tensor([0, 1, 4, 4, 2, 0, 3]), torch.tensor([0, 0, 1, 2, 2, 4, 4])
    expected = torch.zeros_like(states).index_add(0, target, states[source] * coefficient.repeat_interleave(2, 1))
    torch.testing.assert_close(message_sum(states, coefficient, source, target), expected)
    assert torch.autograd.gradcheck(lambda s, c: message_sum(s, c, source, target), (states, coefficient))


def test_pair_product() -> None:
    """Equal to the inner products of the rows; a pair of one node with itself has both its gradients."""
    states = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    pairs = torch.tensor([[0, 1], [3, 3], [4, 0]])
    torch.testing.assert_close(pair_product(states, pairs), (states[pairs[:, 0]] * states[pairs[:, 1]]).sum(-1))
    assert torch.autograd.gradcheck(lambda s: pair_product(s, pairs), (states,))


def test_nothing_to_do() -> None:
    """No messages and no pairs."""
    none = torch.zeros(0, dtype=torch.int64)
    assert not message_sum(torch.ones(3, 4), torch.zeros(0, 2), none, none).any()
    assert pair_product(torch.ones(3, 4), none.view(0, 2)).shape == (0,)
