"""What only a CUDA device can show; run by ``pytest -m gpu`` where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hopline.config import GraphConfig, LossConfig, ModelConfig, TrainingConfig
from hopline.errors import ConfigError
from hopline.graph import GraphBatch
from hopline.model import GraphModel
from hopline.training import require_device_memory, seed_everything
from hopline.training.reproducibility import CUBLAS_WORKSPACE_ENV
from hopline.training.step_module import StepModule
from tests.model.factory import RELATIONS, make_batch, make_examples

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CUDA = torch.device("cuda")


def _module(precision: str = "fp32", device: torch.device = CUDA) -> StepModule:
    torch.manual_seed(0)
    config = GraphConfig(
        name="test",
        model=ModelConfig(hidden_dim=32, layers=2, max_hops=4),
        loss=LossConfig(negatives_per_edge=2),
        training=TrainingConfig(precision=precision, link_head="mlp"),
    )
    model = GraphModel(config.model, num_relations=RELATIONS, link_head="mlp")
    return StepModule(model.to(device), config)


def _batch(device: torch.device = CUDA) -> GraphBatch:
    return make_batch(make_examples(40)).to(device)


def _step(module: nn.Module, batch: GraphBatch) -> tuple[Tensor, list[Tensor]]:
    """Figures and gradients, on the CPU."""
    module.zero_grad(set_to_none=True)
    result = module(batch, step=1, divisor=50.0)
    result.total.backward()
    return result.figures.cpu(), [p.grad.cpu() for p in module.parameters() if p.grad is not None]


def _compare(one: tuple[Tensor, list[Tensor]], other: tuple[Tensor, list[Tensor]], tolerance: float) -> None:
    torch.testing.assert_close(one[0], other[0], atol=tolerance, rtol=tolerance)
    assert len(one[1]) == len(other[1])
    for a, b in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.fixture
def exact_products() -> Iterator[None]:
    """Without TensorFloat-32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def test_a_step_on_cuda_is_the_step_on_the_cpu(exact_products: None) -> None:
    """Other kernels, the same numbers; the random draws are equal to the bit."""
    _compare(_step(_module(), _batch()), _step(_module(device=torch.device("cpu")), _batch(torch.device("cpu"))), 1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_reads_nothing_back(precision: str) -> None:
    """G37, D10, D27: forward, loss and backward never wait for the device."""
    module, batch = _module(precision), _batch()
    _step(module, batch)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        module(batch, step=2, divisor=50.0).total.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_near_full(precision: str) -> None:
    """G33: logits and sums stay in fp32, so that only the products of matrices are rounded."""
    half, full = _module(precision), _module()
    batch = _batch()
    forward = half.infer(batch)
    assert forward.entity_logits.dtype == forward.node_states.dtype == torch.float32
    figures, expected = _step(half, batch)[0], _step(full, batch)[0]
    torch.testing.assert_close(figures, expected, atol=0.05, rtol=0.05)
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters())


@pytest.mark.slow
def test_compiled_kernels_compute_the_same(exact_products: None) -> None:
    """The step by inductor, for batches of several sizes."""
    plain, compiled = _module(), _module()
    compiled.compile_step()
    for seed in range(3):
        batch = make_batch(make_examples(40, seed=seed)).to(CUDA)
        _compare(_step(compiled, batch), _step(plain, batch), 1e-3)
    assert len(compiled.classes.known) <= 3


def test_deterministic_kernels_repeat_to_the_bit() -> None:
    """G53, D44: nothing refuses deterministic mode, and two steps give the same bits."""
    if os.environ.get(CUBLAS_WORKSPACE_ENV) not in (":4096:8", ":16:8"):
        pytest.skip(f"needs {CUBLAS_WORKSPACE_ENV}=:4096:8 before CUDA starts")
    assert seed_everything(0, deterministic=True, device=CUDA).achieved
    (figures, grads), (others, other_grads) = _step(_module(), _batch()), _step(_module(), _batch())
    assert torch.equal(figures, others)
    assert all(torch.equal(a, b) for a, b in zip(grads, other_grads, strict=True))


def test_a_model_that_does_not_fit_is_refused_before_it_moves() -> None:
    """G3, D48: by the memory that is free; the device holds nothing of it."""
    before = torch.cuda.memory_allocated()
    free, _ = torch.cuda.mem_get_info()
    with torch.device("meta"):
        huge = nn.Linear(free // 64, 8)
    with pytest.raises(ConfigError, match="GiB"):
        require_device_memory(huge, CUDA)
    assert torch.cuda.memory_allocated() == before


def test_one_process_over_nccl() -> None:
    """G7, G60: the wrapped step is the step."""
    plain, wrapped = _module(), _module()
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0))
    try:
        _compare(_step(DistributedDataParallel(wrapped), _batch()), _step(plain, _batch()), 1e-4)
    finally:
        dist.destroy_process_group()
