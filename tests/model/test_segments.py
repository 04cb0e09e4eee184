"""Segment operations against plain loops, and on empty segments."""

from __future__ import annotations

import torch

from hopline.model.segments import segment_logsumexp, segment_mean, segment_softmax, segment_sum


def _case() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(9, 3, generator=generator), torch.tensor([0, 0, 1, 1, 1, 3, 3, 3, 3])


def test_against_loops() -> None:
    """Every operation equals the one on each segment's rows alone."""
    values, index = _case()
    weight = torch.tensor([1.0, 0, 1, 1, 0, 0, 1, 1, 1])
    total, mean = segment_sum(values, index, 5), segment_mean(values, index, 5)
    softmax = segment_softmax(values, index, 5)
    weighted = segment_logsumexp(values[:, 0], index, 5, weight)
    for segment in (0, 1, 3):
        rows = values[index == segment]
        torch.testing.assert_close(total[segment], rows.sum(0))
        torch.testing.assert_close(mean[segment], rows.mean(0))
        torch.testing.assert_close(softmax[index == segment], rows.softmax(0))
        kept = values[(index == segment) & (weight > 0), 0]
        torch.testing.assert_close(weighted[segment], kept.logsumexp(0))
    assert not total[[2, 4]].any()
    assert not mean[[2, 4]].any()


def test_empty_segments_and_inputs_are_finite() -> None:
    """pytorch#25110: softmax over nothing is no NaN, in the gradient neither."""
    values, index = torch.randn(0, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    assert torch.isfinite(segment_logsumexp(values, index, 3)).all()
    assert segment_softmax(values, index, 3).shape == (0,)
    one = torch.tensor([1e4, -1e4], requires_grad=True)
    out = segment_logsumexp(one, torch.tensor([0, 0]), 2, torch.tensor([0.0, 0.0]))
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(one.grad).all()


def test_softmax_survives_large_logits() -> None:
    """The maximum is subtracted per segment, not over all."""
    out = segment_softmax(torch.tensor([1e4, 1e4, -1e4, -1e4]), torch.tensor([0, 0, 1, 1]), 2)
    torch.testing.assert_close(out, torch.full((4,), 0.5))
