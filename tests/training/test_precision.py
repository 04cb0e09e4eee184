"""Mixed precision on CUDA only."""

from __future__ import annotations

import pytest
import torch

from hopline.training.precision import autocast, effective_precision, make_scaler


@pytest.mark.parametrize("device", ["cpu", "mps"])
@pytest.mark.parametrize("asked", ["fp16", "bf16", "fp32"])
def test_only_cuda_runs_in_half_precision(asked, device: str) -> None:
    """G33: CPU and MPS degrade to fp32, and effective_precision tells."""
    assert effective_precision(asked, torch.device(device)) == "fp32"
    assert effective_precision(asked, torch.device("cuda")) == asked


def test_fp32_casts_nothing() -> None:
    """G33."""
    with autocast("fp32", torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        assert not torch.is_autocast_enabled("cpu")


def test_only_fp16_scales_the_loss() -> None:
    """G33: fp16 with GradScaler, bf16 without."""
    device = torch.device("cpu")
    assert [make_scaler(p, device).is_enabled() for p in ("fp32", "bf16", "fp16")] == [False, False, True]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("precision", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_autocast_on_cuda(precision, dtype: torch.dtype) -> None:
    """G33."""
    device = torch.device("cuda")
    with autocast(precision, device):
        assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype == dtype
