"""Edges that may exclude each other, found by the form of the graph alone."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_clashes"]

_MOST_CELLS: Final = 1 << 20
"""Above that, sorting is cheaper than a table."""

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
    ends = np.concatenate([target * (2 * R) + relation, source * (2 * R) + relation + R])
    several = _repeated(ends, nodes * 2 * R)
    at_source = several >= edges
    edge = several - edges * at_source
    found = [(edge, relation[edge] + R * at_source)]
    low, high = np.minimum(source, target), np.maximum(source, target)
    width = int((high - low).max(initial=0)) + 1  # nodes of one graph are next to each other
    members = _repeated(low * width + high - low, nodes * width)
    keys = ((low[members] * nodes + high[members]) * R + relation[members]) * 2 + (source > target)[members]
    sorting = np.argsort(keys, kind="stable")
    ordered, order = keys[sorting], members[sorting]
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


def _repeated(keys: NDArray[np.int64], cells: int) -> NDArray[np.int64]:
    """The places of all keys that are there more than once, rising; keys are in ``[0, cells)``."""
    many = np.zeros(len(keys), dtype=bool)
    if cells > _MOST_CELLS:
        order = np.argsort(keys, kind="stable")
        again = np.flatnonzero(np.diff(keys[order]) == 0)
        many[order[again]] = True
        many[order[again + 1]] = True
        return np.flatnonzero(many)
    # Each place writes itself into the cell of its key: one that does not find itself there is not alone.
    places = np.arange(len(keys), dtype=np.min_scalar_type(len(keys)))  # a small table stays in the cache
    table = np.empty(cells, dtype=places.dtype)
    table[keys] = places
    last = table.take(keys)
    again = np.flatnonzero(last != places)
    many[again] = True
    many[last[again]] = True
    return np.flatnonzero(many)
