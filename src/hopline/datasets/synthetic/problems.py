"""Whole problems: the evidence of a query, the other nodes of its graph, noise, and all of it shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from hopline.datasets.ragged import Bools, Ints, expand, first_of_run, offsets_of, width_in_bits
from hopline.datasets.synthetic.counters import Counters, high, low, scaled
from hopline.datasets.synthetic.graphs import Graphs
from hopline.datasets.synthetic.laying import FIELDS_OF_LAYING, Scene, lay
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.synthetic.wishlist import LINK, RELATION, Wishes

__all__ = ["FIELDS_OF_PROBLEMS", "Problems", "make_problems"]

_OWN_EDGES: Final = (3, 2)
"""Edges of the world for each node, as a fraction; noise edges come on top."""

_DENSE_HOPS: Final = 3
"""Longest derivation of a relation that is laid into a dense graph."""

_SIZE, _JOINED, _STATE, _NOISE, _NOISE_READING, _PLACE = range(FIELDS_OF_LAYING, FIELDS_OF_LAYING + 6)
FIELDS_OF_PROBLEMS: Final = FIELDS_OF_LAYING + 6
"""Fields of the counters below this are drawn here."""


@dataclass(frozen=True, slots=True, eq=False)
class Problems:
    """Graphs with a query each.

    Attributes:
        graphs: B of them.
        kind: ``[B]``, index into KINDS.
        anchors: ``[B, 2]``, places of nodes within their graph, -1 where there is none.
        chains, lengths: ``[B, 2, H]`` and ``[B, 2]``, -1 beyond the length.
    """

    graphs: Graphs
    kind: Ints
    anchors: Ints
    chains: Ints
    lengths: Ints

    def __len__(self) -> int:
        return len(self.kind)

    def on(self, graphs: Graphs) -> Problems:
        """The same queries about other graphs of the same nodes."""
        return Problems(graphs, self.kind, self.anchors, self.chains, self.lengths)

    def take(self, items: Ints) -> Problems:
        """Some problems, in the order given."""
        return self.choose(items, self.graphs.take(items))

    def choose(self, items: Ints, graphs: Graphs) -> Problems:
        """The queries of some problems, about other graphs of the same nodes."""
        return Problems(graphs, self.kind[items], self.anchors[items], self.chains[items], self.lengths[items])

    def slice(self, first: int, last: int) -> Problems:
        """Problems ``[first, last)``."""
        here = slice(first, last)
        graphs = self.graphs.slice(first, last)
        return Problems(graphs, self.kind[here], self.anchors[here], self.chains[here], self.lengths[here])


def make_problems(
    tables: WorldTables, wishes: Wishes, counters: Counters, *, least: int, most: int, noise: float
) -> tuple[Problems, Bools]:
    """Draw a problem for each wish.

    Args:
        tables: the world.
        wishes, counters: of B items.
        least, most: nodes of a graph.
        noise: random edges beside the world's own, as a share of those.

    Returns:
        The problems, and which of them failed for want of room.
    """
    sizes = least + scaled(high(counters.words(_SIZE)), most - least + 1)
    offsets = offsets_of(sizes)
    scene = lay(tables, wishes, sizes, offsets[:-1], counters)
    evidence = np.bincount(
        np.searchsorted(offsets, np.concatenate([head for head, _, _ in scene.facts]), side="right") - 1,
        minlength=len(sizes),
    )
    rules = _JoiningRules(tables, scene, wishes)
    tree, valid_tree, of_tree = _hang_nodes(scene, rules, counters, tables)
    joined = np.bincount(of_tree[valid_tree], minlength=len(sizes))
    wanted = sizes * _OWN_EDGES[0] // _OWN_EDGES[1]
    wanted += (wanted * noise).astype(np.int64)
    extra, valid_extra = _noise(scene, rules, np.maximum(wanted - evidence - joined, 0), counters)
    head, relation, tail = (np.concatenate(parts) for parts in zip(*scene.facts, tree, extra, strict=True))
    valid = np.concatenate([np.ones(len(head) - len(valid_tree) - len(valid_extra), np.bool_), valid_tree, valid_extra])
    kept = _first_facts(tables, head, relation, tail, valid)
    place = _shuffled(counters, sizes, offsets)
    graphs = Graphs.of_facts(tables.num_relations, offsets, place[head[kept]], relation[kept], place[tail[kept]])
    anchors = np.where(scene.anchors >= 0, place[scene.anchors] - offsets[:-1, None], -1)
    return Problems(graphs, wishes.kind, anchors, scene.chains, scene.lengths), scene.failed


class _JoiningRules:
    """Which facts may join two nodes by their states, where the evidence leaves it open."""

    def __init__(self, tables: WorldTables, scene: Scene, wishes: Wishes) -> None:
        self._tables = tables
        self._scene = scene
        graphs = len(scene.sizes)
        self._closed = np.where((wishes.kind == RELATION)[:, None], scene.anchors, -1)
        link = wishes.kind == LINK
        self._hidden_node = np.where(link, scene.anchors[:, 0], -1)
        self._hidden_relation = np.where(link, scene.chains[:, 0, 0], -1)
        self.hanging = (wishes.kind == RELATION) & (wishes.hops > _DENSE_HOPS)
        self._special = np.flatnonzero(link | (wishes.kind == RELATION))
        self._is_special = np.zeros(graphs, dtype=np.bool_)
        self._is_special[self._special] = True
        self.homes: Ints | None = None
        """Of each node, the node of the evidence that it hangs on, where some graph is hanging."""

    def join(self, graph: Ints, start: Ints, end: Ints, turned: Bools) -> tuple[tuple[Ints, Ints, Ints], Bools]:
        """The facts between nodes of a graph, in one reading or the other, and which of them may be there."""
        tables, states = self._tables, self._scene.states
        relation = tables.between[states[start], states[end]]
        valid = relation >= 0
        back = tables.inverse[relation]
        # Only some kinds keep facts out of their graphs.
        here = np.flatnonzero(self._is_special[graph])
        if len(here):
            valid[here] &= self._allowed(graph[here], start[here], end[here], relation[here], back[here])
        facts = (np.where(turned, end, start), np.where(turned, back, relation), np.where(turned, start, end))
        return facts, valid

    def _allowed(self, graph: Ints, start: Ints, end: Ints, relation: Ints, back: Ints) -> Bools:
        first, second = self._closed[graph].T
        allowed = ~(((start == first) & (end == second)) | ((start == second) & (end == first)))
        node, hidden = self._hidden_node[graph], self._hidden_relation[graph]
        allowed &= ~(((start == node) & (relation == hidden)) | ((end == node) & (back == hidden)))
        if self.homes is not None:
            allowed &= ~self.hanging[graph] | (self.homes[start] == self.homes[end])
        return np.asarray(allowed, dtype=np.bool_)


def _hang_nodes(
    scene: Scene, rules: _JoiningRules, counters: Counters, tables: WorldTables
) -> tuple[tuple[Ints, Ints, Ints], Bools, Ints]:
    """The other nodes, each joined to an earlier one: the facts, which are valid, and their graphs."""
    graph, place = expand(scene.used, scene.sizes - scene.used)
    base = scene.base[graph]
    node = base + place
    words, others = counters.words(_JOINED, graph, place), counters.words(_STATE, graph, place)
    earlier = base + scaled(high(words), place)
    copies, turned = others & np.uint64(1) == 0, others & np.uint64(2) == 0
    scene.states[node] = scaled(high(others), tables.num_states)
    source = np.arange(len(scene.states))
    source[node] = np.where(copies, base + scaled(low(words), place), node)
    scene.states[:] = scene.states[_roots(source)]
    if rules.hanging.any():
        source = np.arange(len(scene.states))
        source[node] = earlier
        rules.homes = _roots(source)
    facts, valid = rules.join(graph, earlier, node, turned)
    return facts, valid, graph


def _roots(source: Ints) -> Ints:
    """Where following ``source`` ends; every chain of sources does."""
    while True:
        further = source[source]
        if np.array_equal(further, source):
            return source
        source = further


def _noise(
    scene: Scene, rules: _JoiningRules, counts: Ints, counters: Counters
) -> tuple[tuple[Ints, Ints, Ints], Bools]:
    """Edges between random nodes of each graph."""
    graph, place = expand(np.zeros_like(counts), counts)
    words = counters.words(_NOISE, graph, place)
    size, base = scene.sizes[graph], scene.base[graph]
    start, end = base + scaled(high(words), size), base + scaled(low(words), size)
    # Nodes of equal state, so also a node and itself, have no relation.
    return rules.join(graph, start, end, counters.words(_NOISE_READING, graph, place) & np.uint64(1) == 0)


def _first_facts(tables: WorldTables, head: Ints, relation: Ints, tail: Ints, valid: Bools) -> Ints:
    """The facts that stand: of equal ones the first, and of several values of a functional relation the first."""
    node_bits, relation_bits = width_in_bits(int(max(head.max(), tail.max())) + 1), width_in_bits(tables.num_relations)
    index_bits = width_in_bits(len(head))
    value = np.where(tables.functional[relation], 0, tail)
    keys = (((head << relation_bits) | relation) << node_bits) | value
    return _stable_order(keys[valid], np.flatnonzero(valid), 2 * node_bits + relation_bits, index_bits)


def _stable_order(keys: Ints, index: Ints, key_bits: int, index_bits: int) -> Ints:
    """The index of the first of each equal key, ``index`` rising."""
    if key_bits + index_bits <= 63:
        packed = np.sort((keys << index_bits) | index)
        return packed[first_of_run(packed >> index_bits)] & ((1 << index_bits) - 1)
    order = np.argsort(keys, kind="stable")
    return index[order[first_of_run(keys[order])]]


def _shuffled(counters: Counters, sizes: Ints, offsets: Ints) -> Ints:
    """Where each node moves, at random within its graph, ``[N]``."""
    graph, place = expand(np.zeros_like(sizes), sizes)
    place_bits = width_in_bits(int(sizes.max()))
    draws = high(counters.words(_PLACE, graph, place)).astype(np.int64)
    order = np.sort((((graph << 32) | draws) << place_bits) | place) & ((1 << place_bits) - 1)
    moved = np.empty(len(graph), dtype=np.int64)
    moved[order + offsets[graph]] = np.arange(len(graph))
    return moved
