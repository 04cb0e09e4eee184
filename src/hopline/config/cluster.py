"""Where training runs."""

from __future__ import annotations

from hopline.config.base import Count, Positive, Section

__all__ = ["ClusterConfig"]


class ClusterConfig(Section):
    """Where training runs. Nothing here changes a result."""

    processes: Positive = 1
    """Training processes of this machine where torchrun's PET_NPROC_PER_NODE does not say; more than one needs
    training.parallelism."""
    max_restarts: Count = 3
    """How often a group of processes that lost one is started again before the attempt fails."""
