"""What each step asks of a node, and as whom it runs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kfp import dsl, kubernetes

__all__ = ["GROUP", "RESOURCES", "USER", "Resources", "settle"]

USER: Final = 10001
GROUP: Final = 10001
"""The numeric user and group of the images; a cluster that asks for non-root checks the number."""

_SCRATCH: Final = "10Gi"


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits in Kubernetes' notation."""

    cpu_request: str
    cpu_limit: str
    memory_request: str
    memory_limit: str


RESOURCES: Final[Mapping[str, Resources]] = {
    "dataset": Resources("1", "4", "2Gi", "8Gi"),
    "train": Resources("2", "8", "4Gi", "16Gi"),
    "evaluate": Resources("1", "4", "2Gi", "8Gi"),
    "publish": Resources("500m", "2", "1Gi", "4Gi"),
}
"""Enough for the configs in the repository; nothing here changes a result."""


def settle(task: dsl.PipelineTask, stage: str, image: str) -> None:
    """Give a task its image, its share of a node, its user and a writable /tmp, and keep KFP's cache away from it.

    The cache stays out because stages find their own outputs by content and check what they reuse, which KFP's cannot.
    """
    share = RESOURCES[stage]
    task.set_container_image(image)
    task.set_caching_options(enable_caching=False)
    task.set_cpu_request(share.cpu_request).set_cpu_limit(share.cpu_limit)
    task.set_memory_request(share.memory_request).set_memory_limit(share.memory_limit)
    kubernetes.set_security_context(task, run_as_user=USER, run_as_group=GROUP, run_as_non_root=True)
    kubernetes.empty_dir_mount(task, volume_name="tmp", mount_path="/tmp", size_limit=_SCRATCH)  # noqa: S108 - a mount
