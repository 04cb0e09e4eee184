"""What a dataset holds, in a few figures: its splits from the index, the sizes of its graphs from some of its shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopline.datasets.dataset import Dataset

__all__ = ["GraphSizes", "SizeSummary", "graph_sizes"]

_SHARDS: Final = 4
_BINS: Final = 10


@dataclass(frozen=True, slots=True)
class SizeSummary:
    """How large something is over many graphs; ``bins`` are (from, up to and with, graphs)."""

    smallest: int
    median: float
    mean: float
    largest: int
    bins: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> SizeSummary:
        """The summary of some sizes, at least one."""
        low, high = int(values.min()), int(values.max())
        width = max(1, -(-(high - low + 1) // _BINS))
        starts = range(low, high + 1, width)
        counts = np.bincount((values - low) // width, minlength=len(starts))
        bins = tuple((start, start + width - 1, int(count)) for start, count in zip(starts, counts, strict=True))
        return cls(low, float(np.median(values)), float(values.mean()), high, bins)


@dataclass(frozen=True, slots=True)
class GraphSizes:
    """Nodes and edges of the graphs of some examples, twins left out.

    Attributes:
        examples: that were looked at.
        of: that there are.
    """

    examples: int
    of: int
    nodes: SizeSummary
    edges: SizeSummary


def graph_sizes(dataset: Dataset, splits: Sequence[str] | None = None) -> GraphSizes | None:
    """Measure graphs, from offsets alone, in at most a few shards of each split; None if there are no examples.

    Raises IntegrityError if one of these shards is missing or altered.
    """
    nodes: list[NDArray[np.int64]] = []
    edges: list[NDArray[np.int64]] = []
    total = 0
    for name in splits or dataset.index.splits:
        total += dataset.index.splits[name].units
        if dataset.index.splits[name].units:
            sizes = dataset.part(name, _SHARDS).example_sizes()
            nodes.append(sizes.nodes)
            edges.append(sizes.edges)
    if not nodes:
        return None
    looked = sum(map(len, nodes))
    return GraphSizes(looked, total, SizeSummary.of(np.concatenate(nodes)), SizeSummary.of(np.concatenate(edges)))
