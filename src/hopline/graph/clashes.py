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
    ordered, order = _sorted(((low * nodes + high) * R + relation) * 2 + (source > target))
    members = _in_company(ordered // (2 * R))
    ordered, order = ordered[members], order[members]
    pair, fact = ordered // (2 * R), ordered // 2
    kind, backwards = fact % R, ordered & 1
    place = np.zeros(len(fact), dtype=np.int64)  # edges of one relation between two nodes share a place
    np.cumsum(fact[1:] != fact[:-1], out=place[1:])
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
    ordered, order = _sorted(keys)
    place = np.sort(order[_in_company(ordered)])
    return place % max(edges, 1), keys[place] % cells


def _in_company(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of all numbers that are there more than once, of numbers in order."""
    again = ordered[1:] == ordered[:-1]
    many = np.zeros(len(ordered), dtype=bool)
    many[1:] = again
    many[:-1] |= again
    return np.flatnonzero(many)


def _sorted(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keys, none below 0, in order, and the place of each; equal ones in the order of their places."""
    bits = len(keys).bit_length()
    if int(keys.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(keys, kind="stable")
        return keys[order], order
    # Numbers alone are sorted several times as fast as places by their numbers.
    packed = (keys << bits) | np.arange(len(keys))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)
