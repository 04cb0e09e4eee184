"""Batches on their way to a device."""

from __future__ import annotations

import threading
from dataclasses import fields

import numpy as np
import pytest
import torch

from hopline.graph import GraphBatch
from hopline.training.device_batches import DeviceCopies, pack_batch, unpack_batch
from hopline.training.prefetch import prefetch


def assert_equal(one: GraphBatch, other: GraphBatch) -> None:
    for field in fields(GraphBatch):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, torch.Tensor):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), field.name
            assert torch.equal(a.cpu(), b.cpu()), field.name
        else:
            assert a == b, field.name


def test_a_batch_is_packed_into_few_tensors_and_comes_back(bench) -> None:
    """D29: one copy for each dtype instead of one for each tensor."""
    for units in ([0], list(range(40))):
        batch = bench.dataset.split("train").batch(np.array(units))
        packed = pack_batch(batch)
        assert {part.dtype for part in packed} == {torch.int64, torch.bool}
        assert len(packed) == 2
        copies = [part.clone() for part in packed]
        back = unpack_batch(batch, copies)
        assert_equal(back, batch)
        storages = {part.untyped_storage().data_ptr() for part in copies}
        for field in fields(GraphBatch):
            value = getattr(back, field.name)
            if isinstance(value, torch.Tensor):
                assert value.untyped_storage().data_ptr() in storages, "views, not copies again"
                assert value.storage_offset() % 16 == 0


def test_on_the_cpu_nothing_is_copied(bench) -> None:
    """D29."""
    copies, step = DeviceCopies(torch.device("cpu")), bench.batches().step(0)
    sent = copies.send(step)
    assert copies.receive(sent) is step


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_steps_arrive_whole_on_cuda_while_the_device_works(bench) -> None:
    """D29: no step is read before it has arrived, and no memory of one is given away while it is read."""
    device = torch.device("cuda")
    copies, batches = DeviceCopies(device), bench.batches()
    work = torch.randn(2048, 2048, device=device)
    sums: list[torch.Tensor] = []
    with prefetch(lambda step: copies.send(batches.step(step)), 0, 200, depth=4) as stream:
        for sent in stream:
            step = copies.receive(sent)
            work = torch.tanh(work @ work)  # the model is slower than the copies
            sums.append(sum(chunk.batch.message_source.sum() for chunk in step.chunks))
            assert all(chunk.batch.edge_index.is_cuda for chunk in step.chunks)
            del step, sent
    for step, found in enumerate(sums):
        assert int(found) == sum(int(chunk.batch.message_source.sum()) for chunk in batches.step(step).chunks)
    for chunk, original in zip(
        copies.receive(copies.send(batches.step(7))).chunks, batches.step(7).chunks, strict=True
    ):
        assert_equal(chunk.batch, original.batch)
        assert chunk.weight == original.weight
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())
