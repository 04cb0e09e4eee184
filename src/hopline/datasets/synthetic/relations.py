"""Relation queries: the walks between two anchors, and what the rules make of them.

The candidates are those of :func:`hopline.datasets.paths.walks_between`, found for many graphs at once. Behind the
relations of a synthetic world is a group, so a chain can be reduced to one relation alone, if to any: the one that its
elements compose to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from hopline.datasets.paths import MAX_RELATION_HOPS
from hopline.datasets.ragged import Bools, Ints, expand
from hopline.datasets.synthetic.graphs import Graphs
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.synthetic.walks import MOST_WALKS, Walks

__all__ = ["RelationWalks", "reduced", "walk_between"]

_DETOUR: Final = 2
"""Walks between two anchors may be this much longer than the shortest."""


@dataclass(frozen=True, slots=True, eq=False)
class RelationWalks:
    """Every walk between the anchors of each graph.

    Attributes:
        walks: shortest first, then in the order of steps.
        relation: ``[W]``, the relation in ``[0, R)`` that the rules reduce each walk to, -1 if to none.
        complete: ``[B]``, False where there were too many walks.
    """

    walks: Walks
    relation: Ints
    complete: Bools


def walk_between(tables: WorldTables, graphs: Graphs, starts: Ints, ends: Ints) -> RelationWalks:
    """List the walks from each start to its end that visit no node twice."""
    half = graphs.half_edges
    distance = _distances(graphs, ends)
    shortest = distance[starts]
    # One task for each graph and length; they are numbered by both.
    lengths = (shortest[:, None] + np.arange(_DETOUR + 1)).ravel()
    task = np.flatnonzero((lengths <= MAX_RELATION_HOPS) & (np.repeat(shortest, _DETOUR + 1) >= 0))
    num_tasks = len(lengths)
    complete = np.ones(len(graphs), dtype=np.bool_)
    node = starts[task // (_DETOUR + 1)]
    visited, steps = node[:, None], np.zeros((len(task), 0), dtype=np.int64)
    elements = np.zeros((len(task), 0), dtype=np.int64)
    parts: list[tuple[Ints, Walks, Ints]] = []
    hops = 0
    while len(task):
        hops += 1
        owner, taken = expand(half.offsets[node], half.degree[node])
        other = half.other[taken]
        graph, left = task[owner] // (_DETOUR + 1), lengths[task[owner]] - hops
        good = (distance[other] >= 0) & (distance[other] <= left) & ((other != ends[graph]) | (left == 0))
        chosen = np.flatnonzero(good)
        chosen = chosen[(visited[owner[chosen]] != other[chosen, None]).all(axis=1)]
        owner, taken, graph, left = owner[chosen], taken[chosen], graph[chosen], left[chosen]
        task, node = task[owner], half.other[taken]
        steps = np.concatenate([steps[owner], half.step[taken][:, None]], axis=1)
        elements = np.concatenate([elements[owner], tables.element[half.relation[taken]][:, None]], axis=1)
        visited = np.concatenate([visited[owner], node[:, None]], axis=1)
        many = np.bincount(task, minlength=num_tasks) > MOST_WALKS
        complete &= ~many.reshape(-1, _DETOUR + 1).any(axis=1)
        done = np.flatnonzero((left == 0) & complete[graph])
        if len(done):
            walks = Walks(graph[done], steps[done], np.full(len(done), hops))
            parts.append((task[done], walks, reduced(tables, elements[done])))
        going = np.flatnonzero((left > 0) & complete[graph])
        task, node, steps, elements, visited = (array[going] for array in (task, node, steps, elements, visited))
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return RelationWalks(Walks(nothing, np.zeros((0, 1), np.int64), nothing), nothing, complete)
    tasks = np.concatenate([task for task, _, _ in parts])
    order = np.argsort(tasks, kind="stable")
    joined = Walks.joined([walks for _, walks, _ in parts]).take(order)
    complete &= np.bincount(joined.graph, minlength=len(graphs)) <= MOST_WALKS
    return RelationWalks(joined, np.concatenate([relation for _, _, relation in parts])[order], complete)


def _distances(graphs: Graphs, ends: Ints) -> Ints:
    """Hops from each node to the end of its graph, -1 where it is out of reach of any walk, ``[N]``."""
    half = graphs.half_edges
    distance = np.full(len(half.degree), -1, dtype=np.int64)
    distance[ends] = 0
    frontier = ends
    for hops in range(1, MAX_RELATION_HOPS + 1):
        _, taken = expand(half.offsets[frontier], half.degree[frontier])
        reached = half.other[taken]
        reached = reached[distance[reached] < 0]
        if not len(reached):
            break
        distance[reached] = hops
        frontier = np.flatnonzero(distance == hops)
    return distance


def reduced(tables: WorldTables, elements: Ints) -> Ints:
    """The relation that the rules reduce each chain of elements to, as in CYK parsing; -1 if to none.

    ``elements`` is ``[W, hops]``. Each part of a chain composes to one element, so what is to be found out is only whether
    rules get there.
    """
    hops = elements.shape[1]
    product = {(place, place + 1): elements[:, place] for place in range(hops)}
    derived = {(place, place + 1): np.ones(len(elements), dtype=np.bool_) for place in range(hops)}
    for span in range(2, hops + 1):
        for start in range(hops - span + 1):
            end = start + span
            product[start, end] = tables.times[product[start, end - 1], elements[:, end - 1]]
            found = np.zeros(len(elements), dtype=np.bool_)
            for cut in range(start + 1, end):
                composed = tables.composes[product[start, cut], product[cut, end]]
                found |= derived[start, cut] & derived[cut, end] & composed
            derived[start, end] = found
    return np.where(derived[0, hops], product[0, hops] - 1, -1)
