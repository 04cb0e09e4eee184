"""Edges that may exclude each other, found by the form of the graph alone."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_clashes"]

_NEIGHBOURS: Final = 3
"""With how many relations between the same two nodes, next in order, an edge's is compared on either side."""


def find_clashes(
    source: NDArray[np.int64], target: NDArray[np.int64], relation: NDArray[np.int64], *, nodes: int, num_relations: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each sign that an edge clashes with another, as the edge and a cell that says which sign it is.

    There are two kinds, in a table of ``2R + R * 2R`` cells:

    * ``r``: its target has several edges of relation r; ``r + R``: so has its source (a functional relation allows one);
    * ``2R + a * 2R + b``: an edge of relation b joins the same two nodes as one of relation a, ``a <= b``; ``+ R`` where it
      points the other way. Both edges have the sign. Edges of one relation and direction are one fact; a loop clashes with
      nothing. Of many relations between two nodes, each is compared with the next few in order.

    What is found depends neither on the order of the nodes nor on that of the edges.
    """
    edges, R = len(source), num_relations
    found = [_several(np.concatenate([target * (2 * R) + relation, source * (2 * R) + relation + R]), edges, 2 * R)]
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys = ((low * nodes + high) * R + relation) * 2 + (source > target)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    pair, fact = ordered // (2 * R), ordered // 2
    kind, backwards = fact % R, ordered & 1
    place = np.cumsum(np.diff(fact, prepend=-1) != 0)  # edges of one relation between two nodes share a place
    straight = low[order] != high[order]
    for distance in range(1, 2 * _NEIGHBOURS + 2):
        same = pair[distance:] == pair[:-distance]
        if not same.any():
            break
        near = same & (place[distance:] - place[:-distance] <= _NEIGHBOURS) & straight[distance:]
        left = np.flatnonzero(near & (ordered[distance:] != ordered[:-distance]))
        right = left + distance
        cell = 2 * R + kind[left] * (2 * R) + kind[right] + R * (backwards[left] != backwards[right])
        found += [(order[left], cell), (order[right], cell)]
    edge, cell = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return edge, cell


def _several(keys: NDArray[np.int64], edges: int, cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Elements of ``keys`` that are there more than once, as edges and cells."""
    order = np.argsort(keys, kind="stable")
    again = np.diff(keys[order]) == 0
    many = np.zeros(len(keys), dtype=bool)
    many[order[1:][again]] = True
    many[order[:-1][again]] = True
    place = np.flatnonzero(many)
    return place % max(edges, 1), keys[place] % cells
