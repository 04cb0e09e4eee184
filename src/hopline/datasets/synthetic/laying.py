"""The evidence of many queries, laid into empty graphs hop by hop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hopline.datasets.ragged import Bools, Ints
from hopline.datasets.synthetic.counters import Counters, high, low, scaled
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.synthetic.wishlist import AGGREGATE, BOOLEAN, LINK, RELATION, Wishes

__all__ = ["FIELDS_OF_LAYING", "Facts", "Scene", "lay"]

_WIDEST: Final = 4
"""Most nodes that one hop of a chain is laid to."""

_ANCHOR, _ENDS, _RELATION, _TOWARDS, _CHAIN, _EXPAND, _WRITTEN, _BRANCH = 0, 1, 2, 3, 16, 48, 64, 80
FIELDS_OF_LAYING: Final = 128
"""Fields of the counters below this are drawn here."""

Facts = list[tuple[Ints, Ints, Ints]]


@dataclass(eq=False)
class Scene:
    """Graphs that are being made; nodes are counted through, those of the evidence first in each graph.

    Attributes:
        base: ``[B]``, the first node of each graph.
        sizes: ``[B]``, nodes of each graph.
        states: ``[N]``, the hidden state of each node that is in use.
        used: ``[B]``, how many of its nodes are in use.
        facts: (head, relation, tail), of which the first stand before the later ones.
        anchors: ``[B, 2]``, nodes, -1 where there is none.
        chains, lengths: ``[B, 2, H]`` and ``[B, 2]``: what is asked, -1 beyond the length.
        failed: ``[B]``, whether there was no room.
    """

    base: Ints
    sizes: Ints
    states: Ints
    used: Ints
    anchors: Ints
    chains: Ints
    lengths: Ints
    failed: Bools
    facts: Facts = field(default_factory=list)

    def join(self, start: Ints, signed: Ints, end: Ints, num_relations: int) -> None:
        """Add the facts behind some signed relations."""
        forwards = signed < num_relations
        head, tail = np.where(forwards, start, end), np.where(forwards, end, start)
        self.facts.append((head, np.where(forwards, signed, signed - num_relations), tail))


def lay(tables: WorldTables, wishes: Wishes, sizes: Ints, base: Ints, counters: Counters) -> Scene:
    """Lay the evidence of every wish."""
    graphs = len(sizes)
    widest = int(max(wishes.hops.max(), wishes.second_hops.max(), 2))
    scene = Scene(
        base=base,
        sizes=sizes,
        states=np.zeros(int(base[-1] + sizes[-1]), dtype=np.int64),
        used=np.ones(graphs, dtype=np.int64),
        anchors=np.full((graphs, 2), -1, dtype=np.int64),
        chains=np.full((graphs, 2, widest), -1, dtype=np.int64),
        lengths=np.zeros((graphs, 2), dtype=np.int64),
        failed=np.zeros(graphs, dtype=np.bool_),
    )
    scene.anchors[:, 0] = base
    scene.states[base] = scaled(high(counters.words(_ANCHOR)), tables.num_states)
    link, relation = wishes.kind == LINK, wishes.kind == RELATION
    derived = np.flatnonzero(link | relation)
    laid = np.full((graphs, widest), -1, dtype=np.int64)
    lengths = np.where(link, np.minimum(wishes.hops, 2), wishes.hops)
    others = np.flatnonzero(~(link | relation))
    laid[others] = _random_chains(tables, lengths[others], widest, counters, others, 0)
    scene.chains[others, 0], scene.lengths[others, 0] = laid[others], lengths[others]
    goal = scaled(high(counters.words(_RELATION, derived)), tables.num_relations)
    laid[derived] = _derivations(tables, goal, lengths[derived], widest, counters, derived)
    asked = link[derived]
    scene.chains[derived[asked], 0, 0], scene.lengths[derived[asked], 0] = goal[asked], 1
    ends, width = _branch(tables, scene, laid, lengths, ~relation, counters)
    words = counters.words(_ENDS)
    boolean = np.flatnonzero(wishes.kind == BOOLEAN)
    scene.anchors[boolean, 1] = ends[boolean, scaled(high(words[boolean]), width[boolean])]
    scene.anchors[relation, 1] = ends[relation, 0]
    aggregate = np.flatnonzero(wishes.kind == AGGREGATE)
    if len(aggregate):
        second = _random_chains(tables, wishes.second_hops[aggregate], widest, counters, aggregate, 1)
        scene.chains[aggregate, 1], scene.lengths[aggregate, 1] = second, wishes.second_hops[aggregate]
        _lead_to(tables, scene, aggregate, second, ends[aggregate], width[aggregate], counters)
    return scene


def _random_chains(
    tables: WorldTables, lengths: Ints, widest: int, counters: Counters, items: Ints, branch: int
) -> Ints:
    """Relations of which none undoes the one before, ``[items, widest]``."""
    chains = np.full((len(lengths), widest), -1, dtype=np.int64)
    before = np.zeros(len(lengths), dtype=np.int64)
    for hop in range(widest):
        on = np.flatnonzero(hop < lengths)
        if not len(on):
            break
        words = counters.words(_CHAIN + branch, items[on], hop)
        if hop == 0:
            relation = scaled(high(words), tables.num_relations)
        else:
            undone = tables.inverse[before[on]]
            relation = scaled(high(words), tables.num_relations - 1)
            relation += relation >= undone
        before[on] = relation
        chains[on, hop] = _written(tables, relation, low(words) & np.uint64(1) == 0)
    return chains


def _derivations(tables: WorldTables, goal: Ints, lengths: Ints, widest: int, counters: Counters, items: Ints) -> Ints:
    """Chains that the rules reduce to each goal, ``[items, widest]``."""
    chains = np.full((len(goal), widest), -1, dtype=np.int64)
    chains[:, 0] = goal
    columns = np.arange(widest)
    for length in range(1, widest):
        on = np.flatnonzero(length < lengths)
        if not len(on):
            break
        words = counters.words(_EXPAND, items[on], length)
        place = scaled(high(words), length)
        old = chains[on]
        replaced = old[np.arange(len(on)), place]
        pair = tables.pairs[replaced, scaled(low(words), tables.num_pairs[replaced])]
        later = np.concatenate([old[:, :1], old[:, :-1]], axis=1)
        made = np.where(columns <= place[:, None], old, later)
        made[np.arange(len(on)), place] = pair[:, 0]
        made[np.arange(len(on)), place + 1] = pair[:, 1]
        chains[on] = made
    flips = counters.words(_WRITTEN, items)[:, None] >> columns.astype(np.uint64)
    written = _written(tables, chains, flips & np.uint64(1) == 0)
    # The fact itself would be the answer, so a derivation of one hop reads the inverse.
    short = lengths == 1
    written[short, 0] = tables.inverse[goal[short]] + tables.num_relations
    return np.where(columns < lengths[:, None], written, -1)


def _written(tables: WorldTables, relation: Ints, forwards: Bools) -> Ints:
    """A relation, or its inverse read backwards, which says the same."""
    return np.where(forwards, relation, tables.inverse[relation] + tables.num_relations)


def _branch(
    tables: WorldTables,
    scene: Scene,
    chains: Ints,
    lengths: Ints,
    widen: Bools,
    counters: Counters,
) -> tuple[Ints, Ints]:
    """Lay a chain from each anchor, now and then to several nodes a hop: its last nodes, ``[B, 4]``, and how many."""
    layer = np.zeros((len(lengths), _WIDEST), dtype=np.int64)
    layer[:, 0] = scene.base
    width = np.ones(len(lengths), dtype=np.int64)
    for hop in range(int(lengths.max())):
        on = np.flatnonzero((hop < lengths) & ~scene.failed)
        signed, before = chains[on, hop], width[on]
        words = counters.words(_BRANCH, on, hop)
        draw = scaled(high(words), 27)
        wanted = 1 + np.where(widen[on], (draw < 9).astype(np.int64) + (draw < 3) + (draw < 1), 0)
        # A functional relation gives each node one value, and each new node then hangs on another node.
        single = (signed < tables.num_relations) & tables.functional[signed % tables.num_relations]
        wanted = np.where(single, np.minimum(wanted, before), wanted)
        room = np.maximum(scene.sizes[on] - 1 - scene.used[on], 0)
        made = np.minimum(wanted, room)
        scene.failed[on[made == 0]] = True
        state = tables.follow[scene.states[layer[on, 0]], signed]
        new = np.zeros((len(on), _WIDEST), dtype=np.int64)
        for number in range(int(made.max(initial=0))):
            here = np.flatnonzero(made > number)
            # The first hangs on the first, so that the chain never breaks.
            choice = (low(words[here]) >> np.uint64(8 * number)) & np.uint64(255)
            start = np.where(single[here], number, (choice.astype(np.int64) * before[here]) >> 8 if number else 0)
            node = scene.base[on[here]] + scene.used[on[here]] + number
            scene.states[node] = state[here]
            scene.join(layer[on[here], start], signed[here], node, tables.num_relations)
            new[here, number] = node
        scene.used[on] += made
        # Where there was no room, the nodes of the hop before stay: every graph keeps to nodes of its own.
        laid = made > 0
        layer[on[laid]], width[on[laid]] = new[laid], made[laid]
    return layer, width


def _lead_to(
    tables: WorldTables, scene: Scene, items: Ints, chains: Ints, ends: Ints, width: Ints, counters: Counters
) -> None:
    """Lay a chain that leads to one or two of some nodes of equal state; where it begins is the second anchor."""
    lengths = scene.lengths[items, 1]
    scene.anchors[items, 1] = scene.base[items]
    scene.failed[items] |= scene.used[items] + lengths > scene.sizes[items]
    kept = ~scene.failed[items]
    items, chains, ends, width, lengths = items[kept], chains[kept], ends[kept], width[kept], lengths[kept]
    words = counters.words(_TOWARDS, items)
    first = scaled(high(words), width)
    second = (first + 1 + scaled(low(words) >> np.uint64(1) << np.uint64(1), np.maximum(width - 1, 1))) % width
    both = (width > 1) & (low(words) & np.uint64(1) == 1)
    places = np.arange(len(items))
    node = ends[places, first]
    for step in range(int(lengths.max(initial=0))):
        on = np.flatnonzero(step < lengths)
        signed = chains[on, lengths[on] - 1 - step]
        before = scene.base[items[on]] + scene.used[items[on]]
        scene.states[before] = tables.follow[scene.states[node[on]], tables.opposite[signed]]
        scene.used[items[on]] += 1
        scene.join(before, signed, node[on], tables.num_relations)
        if step == 0:
            also = np.flatnonzero(both[on])
            scene.join(before[also], signed[also], ends[on[also], second[on[also]]], tables.num_relations)
        node[on] = before
    scene.anchors[items, 1] = node
