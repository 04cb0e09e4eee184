"""The processes that share a training, and the few things that they have to agree about.

Gradients are exchanged by DDP or FSDP2 (:mod:`hopline.training.parallel`). What is here is small: sums of a few figures,
decisions, and objects that one process has and all need. Objects travel over gloo, on the CPU, so that no decision waits
for the device.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from hopline.errors import ConfigError, HoplineError
from hopline.training.reproducibility import model_hash

__all__ = ["ALONE", "World", "close_distributed", "current_world", "setup_distributed", "share_weights"]

T = TypeVar("T")

_TIMEOUT: Final = timedelta(minutes=30)
"""How long a process waits for the others: longer than the longest pause of one of them, such as its first kernels."""


@dataclass(frozen=True, slots=True)
class World:
    """This process among those that train together. With one process nothing here communicates.

    Every method is collective: all processes call it, in the same order.

    Attributes:
        rank, size: this process, of how many.
        local_rank, local_size: the same on this machine.
        control: gloo group for decisions and objects; None alone.
        background: gloo group for what happens beside the steps, so that its messages never mix with theirs; None alone.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    control: Any = None
    background: Any = None

    @property
    def is_main(self) -> bool:
        """This process writes what only one may write."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place, on the device of ``values``."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Whether it holds on any process."""
        if self.size == 1:
            return flag
        raised = torch.tensor([float(flag)])
        dist.all_reduce(raised, group=self.control)
        return bool(raised.item())

    def gather(self, item: T) -> list[T]:
        """The item of every process, by rank."""
        if self.size == 1:
            return [item]
        items: list[Any] = [None] * self.size
        dist.all_gather_object(items, item, group=self.control)
        return items

    def share(self, item: T) -> T:
        """The main process's item; what the others give is ignored."""
        if self.size == 1:
            return item
        items: list[Any] = [item]
        dist.broadcast_object_list(items, src=0, group=self.control)
        shared: T = items[0]
        return shared

    def on_main(self, work: Callable[[], T]) -> T:
        """What ``work`` returns on the main process, where alone it is called.

        Raises:
            HoplineError: what it raised there, on every process.
        """
        if self.size == 1:
            return work()
        done: tuple[Any, HoplineError | None] = (None, None)
        if self.is_main:
            try:
                done = (work(), None)
            except HoplineError as error:
                done = (None, error)
        result, failed = self.share(done)
        if failed is not None:
            raise failed
        shared: T = result
        return shared


ALONE: Final = World()
"""One process that trains by itself."""

_joined: World | None = None


def setup_distributed(device: torch.device) -> World:
    """Join the processes that torchrun started, and return the world; alone if ``WORLD_SIZE`` is not above 1.

    NCCL carries tensors on CUDA, gloo everything else. A second call returns the same world.

    Raises:
        ConfigError: the device cannot train together with others.
    """
    global _joined
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size <= 1:
        return ALONE
    if _joined is not None:
        return _joined
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(
            f"{device}: several processes train together on cuda or cpu alone; set training.parallelism: none"
        )
    if not dist.is_initialized():
        on_cuda = device.type == "cuda"
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_cuda else "gloo", timeout=_TIMEOUT, device_id=device if on_cuda else None
        )
    _joined = World(
        rank=dist.get_rank(),
        size=dist.get_world_size(),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        control=dist.new_group(backend="gloo", timeout=_TIMEOUT),
        background=dist.new_group(backend="gloo", timeout=_TIMEOUT),
    )
    return _joined


def current_world() -> World:
    """The world that was joined.

    Raises:
        RuntimeError: none was.
    """
    if _joined is None:
        raise RuntimeError(
            "distributed training needs a process group: start the processes with torchrun, and call setup_distributed() "
            "before the trainer is made"
        )
    return _joined


def close_distributed() -> None:
    """Leave the world; nothing happens alone."""
    global _joined
    if _joined is not None:
        dist.destroy_process_group()
        _joined = None


def share_weights(model: nn.Module, world: World) -> None:
    """Give every process the parameters and buffers of the main one, and make sure of it.

    Equal seeds have made equal weights as a rule, so digests are compared first and nothing is sent.
    """
    if world.size == 1 or _all_equal(model, world):
        return
    for tensor in [*model.parameters(), *model.buffers()]:
        carried = tensor.detach().cpu()
        dist.broadcast(carried, src=0, group=world.control)
        with torch.no_grad():
            tensor.copy_(carried)
    assert _all_equal(model, world), "weights still differ between processes"


def _all_equal(model: nn.Module, world: World) -> bool:
    return len(set(world.gather(model_hash(model.state_dict())))) == 1
