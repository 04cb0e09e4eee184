"""How the nodes of a graph take in the messages of one round, whole or in pieces.

The update is a handful of small steps on rows of width H. Done one after the other on all nodes, each step reads its
operands from memory and writes its result back; on the CPU that costs more than the arithmetic. So there a piece of the
nodes goes through all steps before the next one, forwards and backwards, and what lies between the steps stays in the
processor's cache. A GPU, autocast and torch.compile take the plain form.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from hopline.model.messages import Routes, message_sum, sum_backward, sum_forward

__all__ = ["NodePlan", "UpdateWeights", "update_nodes"]

_PIECE_ROWS_BYTES: Final = 1 << 19
_EPS: Final = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class NodePlan:
    """What all rounds share.

    Attributes:
        routes: the messages.
        graph: int64 ``[N]`` the row of each node.
        inverse_degree: ``[N, 1]``, multiplies the sum of the messages.
    """

    routes: Routes
    graph: Tensor
    inverse_degree: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class UpdateWeights:
    """Weights of one round: own ``[H, H]``, bias ``[H]``, incoming ``[H, H]``, signal ``[H, X]``."""

    own: Tensor
    bias: Tensor
    incoming: Tensor
    signal: Tensor


def update_nodes(
    states: Tensor,
    table: Tensor,
    signal: Tensor,
    gain: Tensor,
    shift: Tensor,
    weights: UpdateWeights,
    plan: NodePlan,
    mask: Tensor | None = None,
) -> Tensor:
    """``states + mask * gelu(norm(own(states) + incoming(messages) + signal(signal)) * gain + shift)``, ``[N, H]``.

    Args:
        states: ``[N, H]``.
        table: ``[C, K]`` coefficients of the messages.
        signal: ``[N, X]``.
        gain, shift: ``[G, H]``, for all nodes of a row.
        weights, plan: of the round, and of the batch.
        mask: ``[N, H]`` of dropout, or None.
    """
    tensors = (states, table, signal, gain, shift, weights.own, weights.bias, weights.incoming, weights.signal)
    if states.is_cuda or torch.is_autocast_enabled(states.device.type) or torch.compiler.is_compiling():
        return _plain(*tensors, mask, plan)
    out: Tensor = _Update.apply(*tensors, mask, plan)  # type: ignore[no-untyped-call]
    return out


def _plain(
    states: Tensor,
    table: Tensor,
    signal: Tensor,
    gain: Tensor,
    shift: Tensor,
    own: Tensor,
    bias: Tensor,
    incoming: Tensor,
    on_signal: Tensor,
    mask: Tensor | None,
    plan: NodePlan,
) -> Tensor:
    summed = message_sum(states, table, plan.routes) * plan.inverse_degree
    inner = F.linear(states, own, bias) + F.linear(summed, incoming) + F.linear(signal, on_signal)
    inner = F.layer_norm(inner, inner.shape[1:], eps=_EPS)
    inner = inner * gain.index_select(0, plan.graph) + shift.index_select(0, plan.graph)
    update = F.gelu(inner)
    if mask is not None:
        update = update * mask
    return states + update.float()


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        table: Tensor,
        signal: Tensor,
        gain: Tensor,
        shift: Tensor,
        own: Tensor,
        bias: Tensor,
        incoming: Tensor,
        on_signal: Tensor,
        mask: Tensor | None,
        plan: NodePlan,
    ) -> Tensor:
        summed = sum_forward(states, table, plan.routes)
        new = torch.empty_like(states)
        # Rows of mean 0, whatever goes in: what is left of the normalisation is a scale.
        centre = [weight - weight.mean(0) for weight in (own, incoming, on_signal)]
        from_states, from_summed, from_signal = (weight.t() for weight in centre)
        bias = bias - bias.mean()
        kept: list[Tensor] = []
        pieces = _pieces(plan.graph, plan.inverse_degree, states, summed, signal, new, mask)
        for graph, inverse, before, arriving, extra, after, dropped in pieces:
            inner = torch.addmm(bias, before, from_states).addmm_(arriving.mul_(inverse), from_summed)
            inner.addmm_(extra, from_signal)
            length = torch.linalg.vector_norm(inner, dim=1, keepdim=True)
            scale = (length.square_().div_(inner.shape[1])).add_(_EPS).rsqrt_()
            normed = inner.mul_(scale)
            update = F.gelu(torch.addcmul(shift.index_select(0, graph), normed, gain.index_select(0, graph)))
            if dropped is not None:
                update *= dropped
            torch.add(before, update, out=after)
            kept += [normed, scale]
        ctx.plan = plan
        ctx.save_for_backward(states, table, signal, gain, shift, own, incoming, on_signal, mask, summed, *kept)
        return new

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states, table, signal, gain, shift, own, incoming, on_signal, mask, summed, *kept = ctx.saved_tensors
        plan, new, H = ctx.plan, grads[0].contiguous(), states.shape[1]
        for_states, for_summed, for_signal = (torch.empty_like(x) for x in (states, summed, signal))
        for_gain, for_shift, for_own = (torch.zeros_like(x) for x in (gain, shift, own))
        for_bias, for_incoming, for_on_signal = (
            own.new_zeros(H),
            torch.zeros_like(incoming),
            torch.zeros_like(on_signal),
        )
        pieces = _pieces(
            plan.graph, plan.inverse_degree, states, summed, signal, new, mask, for_states, for_summed, for_signal
        )
        for index, (graph, inverse, before, arrived, extra, after, dropped, *out) in enumerate(pieces):
            normed, scale = kept[2 * index : 2 * index + 2]
            by_gain = gain.index_select(0, graph)
            inner = torch.addcmul(shift.index_select(0, graph), normed, by_gain)
            grad = torch.ops.aten.gelu_backward(after if dropped is None else after * dropped, inner)
            for_shift.index_add_(0, graph, grad)
            for_gain.index_add_(0, graph, torch.mul(grad, normed, out=inner))
            # The derivative of the normalisation at its result: that has mean 0 and scale 1.
            grad = torch.ops.aten.native_layer_norm_backward(
                grad.mul_(by_gain),
                normed,
                [H],
                torch.zeros_like(scale),
                torch.ones_like(scale),
                None,
                None,
                [True, False, False],
            )[0].mul_(scale)
            torch.addmm(after, grad, own, out=out[0])
            torch.mm(grad, incoming, out=out[1]).mul_(inverse)
            torch.mm(grad, on_signal, out=out[2])
            turned = grad.t()
            for_own.addmm_(turned, before)
            for_incoming.addmm_(turned, arrived)
            for_on_signal.addmm_(turned, extra)
            for_bias += grad.sum(0)
        sent, for_table = sum_backward(for_summed, states, table, plan.routes)
        for_states += sent
        return (
            for_states, for_table, for_signal, for_gain, for_shift, for_own, for_bias, for_incoming, for_on_signal,
            None, None,
        )  # fmt: skip


def _pieces(graph: Tensor, inverse: Tensor, states: Tensor, *others: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """Pieces of all tensors, cut alike, so large that each thread has its share in its cache; None stays None."""
    piece = _PIECE_ROWS_BYTES * torch.get_num_threads()
    size = max(1, piece // (states.shape[1] * states.element_size()))
    cut = [
        torch.split(tensor, size) if tensor is not None else itertools.repeat(None)
        for tensor in (graph, inverse, states, *others)
    ]
    return zip(*cut, strict=False)
