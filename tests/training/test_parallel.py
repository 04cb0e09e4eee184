"""The norm of gradients, joined or one by one."""

from __future__ import annotations

import pytest
import torch

from hopline.training import parallel


@pytest.mark.parametrize("few", [0, 1 << 20])
@pytest.mark.parametrize("most", [0.5, 1e9])
def test_clipping_is_that_of_one_vector(few: int, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """G35: the norm before clipping is returned; longer gradients are scaled to the norm asked for, others are left."""
    monkeypatch.setattr(parallel, "_FEW", few)
    parameters = [torch.nn.Parameter(torch.zeros(size)) for size in ((3, 4), (5,), (1,), (2,))]
    gradients = [torch.arange(12.0).view(3, 4).t().contiguous().t(), torch.ones(5), torch.full((1,), -7.0)]
    for parameter, gradient in zip(parameters, gradients, strict=False):  # the last one has none
        parameter.grad = gradient.clone().view(parameter.shape)
    whole = torch.cat([gradient.reshape(-1) for gradient in gradients])
    norm = parallel.clip_gradients(list(parameters), most)
    torch.testing.assert_close(norm, whole.norm())
    scaled = torch.cat([parameter.grad.reshape(-1) for parameter in parameters[:-1]])
    torch.testing.assert_close(scaled, whole * min(1.0, most / float(whole.norm())), rtol=1e-5, atol=0)
    assert parameters[-1].grad is None
