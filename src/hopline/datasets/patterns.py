"""Which facts exclude each other: what makes a graph contradict itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hopline.datasets.adjacency import Adjacency
from hopline.datasets.index import PatternInfo

__all__ = ["Patterns"]


class Patterns:
    """Patterns without exception.

    Args:
        functional: relations r for which ``r(x, y)`` and ``r(x, z)`` exclude each other.
        asymmetric: relations r for which ``r(x, y)`` and ``r(y, x)`` exclude each other.
        inverse: pairs (r, s), s the inverse of r, for which ``r(x, y)`` and ``s(x, y)`` exclude each other.
    """

    def __init__(
        self,
        functional: Iterable[int] = (),
        asymmetric: Iterable[int] = (),
        inverse: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.functional = frozenset(functional)
        self.asymmetric = frozenset(asymmetric)
        partners: dict[int, set[int]] = defaultdict(set)
        for first, second in inverse:
            partners[first].add(second)
            partners[second].add(first)
        self.partners = {relation: tuple(sorted(others)) for relation, others in partners.items()}

    @classmethod
    def of(cls, info: PatternInfo) -> Patterns:
        """The patterns recorded in an index."""
        return cls(info.functional, info.asymmetric, info.inverse)

    def info(self) -> PatternInfo:
        """What the index records."""
        pairs = sorted({(min(r, s), max(r, s)) for r, others in self.partners.items() for s in others})
        return PatternInfo(
            functional=tuple(sorted(self.functional)), asymmetric=tuple(sorted(self.asymmetric)), inverse=tuple(pairs)
        )

    def conflicts(self, adjacency: Adjacency, edge: int) -> bool:
        """Whether another fact of the graph excludes this one."""
        head, relation, tail = adjacency.edges[edge]
        if relation in self.functional and len(adjacency.targets(head, relation)) > 1:
            return True
        if relation in self.asymmetric and any(node == head for _, node in adjacency.follow(tail, relation)):
            return True
        if relation not in self.partners:
            return False
        return any(node == tail for other in self.partners[relation] for _, node in adjacency.follow(head, other))
