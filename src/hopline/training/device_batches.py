"""Batches on their way to a GPU: copied beside the work of the model, by the thread that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import torch
from torch import Tensor

from hopline.graph import GraphBatch
from hopline.training.batches import Chunk, StepBatches

__all__ = ["DeviceCopies", "SentStep", "pack_batch", "unpack_batch"]

_ALIGNMENT: Final = 16
"""Elements; where each tensor of a packed batch begins is a multiple of it, for kernels that read vectors."""


@dataclass(frozen=True, slots=True, eq=False)
class SentStep:
    """A step whose batches are being copied.

    Attributes:
        batches: usable after :meth:`DeviceCopies.receive`.
        buffers: what the batches are views of, on the device.
        done: when the copies are finished; None where there was nothing to copy.
    """

    batches: StepBatches
    buffers: tuple[Tensor, ...] = ()
    done: torch.cuda.Event | None = None


class DeviceCopies:
    """Copies steps to a device: on CUDA through page-locked memory, on a stream of its own; elsewhere there is no need.

    One thread may send while another receives.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def send(self, batches: StepBatches) -> SentStep:
        """Begin to copy a step, and return at once."""
        if self._stream is None:
            return SentStep(batches)
        buffers: list[Tensor] = []
        chunks: list[Chunk] = []
        with torch.cuda.stream(self._stream):
            for chunk in batches.chunks:
                packed = [part.pin_memory().to(self._device, non_blocking=True) for part in pack_batch(chunk.batch)]
                chunks.append(replace(chunk, batch=unpack_batch(chunk.batch, packed)))
                buffers += packed
            done = self._stream.record_event()
        return SentStep(replace(batches, chunks=tuple(chunks)), tuple(buffers), done)

    def receive(self, sent: SentStep) -> StepBatches:
        """The step; what the calling thread launches from now on finds it copied."""
        if sent.done is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(sent.done)
            for buffer in sent.buffers:
                buffer.record_stream(current)  # or its memory could be given away while the model still reads it
        return sent.batches


def pack_batch(batch: GraphBatch) -> list[Tensor]:
    """All tensors of a batch in one tensor for each dtype, so that a few copies do for all."""
    packed = []
    for kind in _kinds(batch):
        tensors = _tensors(batch, kind)
        starts = _starts(tensors)
        whole = torch.zeros(starts[-1], dtype=kind)
        for start, tensor in zip(starts, tensors, strict=False):
            whole[start : start + tensor.numel()] = tensor.reshape(-1)
        packed.append(whole)
    return packed


def unpack_batch(like: GraphBatch, packed: Sequence[Tensor]) -> GraphBatch:
    """The batch that was packed, as views of what :func:`pack_batch` gave; ``like`` is the batch itself, for its shapes."""
    views: dict[str, Tensor] = {}
    for kind, whole in zip(_kinds(like), packed, strict=True):
        tensors = _tensors(like, kind)
        for name, start, tensor in zip(_names(like, kind), _starts(tensors), tensors, strict=False):
            views[name] = whole[start : start + tensor.numel()].view(tensor.shape)
    return replace(like, **views)  # type: ignore[arg-type]  # tensors for tensors


def _kinds(batch: GraphBatch) -> list[torch.dtype]:
    values = (getattr(batch, field.name) for field in fields(batch))
    return sorted({value.dtype for value in values if isinstance(value, Tensor)}, key=str)


def _names(batch: GraphBatch, kind: torch.dtype) -> list[str]:
    values = ((field.name, getattr(batch, field.name)) for field in fields(batch))
    return [name for name, value in values if isinstance(value, Tensor) and value.dtype == kind]


def _tensors(batch: GraphBatch, kind: torch.dtype) -> list[Tensor]:
    return [getattr(batch, name) for name in _names(batch, kind)]


def _starts(tensors: Sequence[Tensor]) -> list[int]:
    """Where each tensor begins, and the length of all."""
    starts = [0]
    for tensor in tensors:
        starts.append(starts[-1] + -(-tensor.numel() // _ALIGNMENT) * _ALIGNMENT)
    return starts
