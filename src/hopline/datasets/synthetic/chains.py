"""Queries that follow a chain: where it leads, and the walks along it and beside it.

The candidates are those of :func:`hopline.datasets.paths.candidate_walks`, found for many graphs at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopline.datasets.ragged import Bools, Ints, expand, offsets_of, rank_in_run
from hopline.datasets.synthetic.graphs import Graphs
from hopline.datasets.synthetic.walks import MOST_WALKS, Walks, kept_places

__all__ = ["ChainWalks", "follow_chains"]


@dataclass(frozen=True, slots=True, eq=False)
class ChainWalks:
    """What following one chain in each graph gives.

    Attributes:
        walks, along: the candidates, and which of them follow the chain to its end.
        exact, ends: every walk along the chain, and the node that it ends in.
        candidate_ends: the node that each candidate ends in.
        reaches: ``[H + 1, N]``, whether the rest of the chain, from each hop on, can be followed from each node.
        complete: ``[B]``, False where there were too many walks.
    """

    walks: Walks
    along: Bools
    candidate_ends: Ints
    exact: Walks
    ends: Ints
    reaches: Bools
    complete: Bools


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The walks along the first hops of a chain: ``steps`` is ``[W, hops]``."""

    graph: Ints
    node: Ints
    steps: Ints


def follow_chains(
    graphs: Graphs, starts: Ints, chains: Ints, lengths: Ints, places: Ints, preferred: Ints
) -> ChainWalks:
    """Follow a chain in each graph.

    Args:
        graphs: B of them.
        starts: ``[B]``, nodes.
        chains, lengths: ``[B, H]``, -1 beyond the length, and ``[B]``, at least 1.
        places: ``[B]``, most candidates.
        preferred: ``[B]``, a node that the walks along the chain should end in first, -1 for none.
    """
    chains = chains[:, : int(lengths.max(initial=1))]
    table = _Following(graphs, chains, lengths)
    levels, complete = _levels(graphs, table, starts, lengths)
    exact, ends = _exact(levels, lengths, chains.shape[1])
    beside = _leaving(graphs, table, levels, chains, lengths, places)
    ranks = rank_in_run(exact.graph)
    listed = np.flatnonzero(ranks < 4 * places[exact.graph])
    graph = exact.graph[listed]
    rank = kept_places(graph, ends[listed] == preferred[graph])
    found = np.bincount(graph, minlength=len(graphs))
    others = np.bincount(beside.graph, minlength=len(graphs))
    kept = np.minimum(found, np.maximum(places - places // 4, places - others))
    left = np.minimum(others, places - kept)
    chosen = np.flatnonzero(rank < kept[graph])
    chosen_beside = np.flatnonzero(rank_in_run(beside.graph) < left[beside.graph])
    tails, tail_ends = table.completed(beside, chosen_beside)
    total = offsets_of(kept + left)
    rows = np.concatenate(
        [
            total[graph[chosen]] + rank[chosen],
            total[tails.graph] + kept[tails.graph] + rank_in_run(tails.graph),
        ]
    )
    order = np.empty(len(rows), dtype=np.int64)
    order[rows] = np.arange(len(rows))
    joined = Walks.joined([exact.take(listed[chosen]), tails]).take(order)
    along = order < len(chosen)
    candidate_ends = np.concatenate([ends[listed[chosen]], tail_ends])[order]
    return ChainWalks(joined, along, candidate_ends, exact, ends, table.reaches, complete)


class _Following:
    """The half-edges that each hop of each graph's chain may take."""

    def __init__(self, graphs: Graphs, chains: Ints, lengths: Ints) -> None:
        self._half = half = graphs.half_edges
        self._lengths = lengths
        nodes, hops = len(half.degree), chains.shape[1]
        graph_of = graphs.node_graph[half.node]
        self.matches: list[Ints] = []
        """For each hop the half-edges of its relation."""
        self.counts: list[Ints] = []
        """How many of them each node has, ``[N]``."""
        self.reaches: Bools = np.ones((hops + 1, nodes), dtype=np.bool_)
        self._first: list[Ints] = []
        ends_here = lengths[graphs.node_graph]
        for hop in range(hops - 1, -1, -1):
            matches = np.flatnonzero(half.relation == chains[:, hop][graph_of])
            source = half.node[matches]
            good = np.flatnonzero(self.reaches[hop + 1][half.other[matches]])
            first = np.full(nodes, -1, dtype=np.int64)
            # Of several values for one place the last stays: here the first half-edge.
            first[source[good][::-1]] = matches[good][::-1]
            self.reaches[hop] = (first >= 0) | (ends_here <= hop)
            self.matches.append(matches)
            self.counts.append(np.bincount(source, minlength=nodes))
            self._first.append(first)
        for found in (self.matches, self.counts, self._first):
            found.reverse()

    def completed(self, leaving: _Leaving, chosen: Ints) -> tuple[Walks, Ints]:
        """Walks that left a chain, going on along its rest as far as that can be followed, and where they end."""
        half = self._half
        graph, hop, node = leaving.graph[chosen], leaving.hop[chosen], leaving.node[chosen].copy()
        steps = leaving.steps[chosen]
        lengths = self._lengths[graph]
        goes_on = (hop + 1 < lengths) & self.reaches[np.minimum(hop + 1, lengths), node]
        for later in range(1, steps.shape[1]):
            on = np.flatnonzero(goes_on & (hop < later) & (later < lengths))
            taken = self._first[later][node[on]]
            steps[on, later] = half.step[taken]
            node[on] = half.other[taken]
        return Walks(graph, steps, np.where(goes_on, lengths, hop + 1)), node


def _levels(graphs: Graphs, table: _Following, starts: Ints, lengths: Ints) -> tuple[list[_Level], Bools]:
    """The walks along 0, 1, ... hops of each chain, in the order of steps, and which graphs have not too many."""
    half = graphs.half_edges
    complete = np.ones(len(graphs), dtype=np.bool_)
    level = _Level(np.arange(len(graphs)), starts, np.zeros((len(graphs), 0), dtype=np.int64))
    levels = [level]
    for hop, (matches, counts) in enumerate(zip(table.matches, table.counts, strict=True)):
        on = np.flatnonzero(lengths[level.graph] > hop)
        nodes = level.node[on]
        owner, index = expand(offsets_of(counts)[nodes], counts[nodes])
        parent, taken = on[owner], matches[index]
        graph = level.graph[parent]
        many = np.bincount(graph, minlength=len(graphs)) > MOST_WALKS
        if many.any():
            complete &= ~many
            few = ~many[graph]
            parent, taken, graph = parent[few], taken[few], graph[few]
        steps = np.concatenate([level.steps[parent], half.step[taken][:, None]], axis=1)
        level = _Level(graph, half.other[taken], steps)
        levels.append(level)
    return levels, complete


def _exact(levels: list[_Level], lengths: Ints, width: int) -> tuple[Walks, Ints]:
    """The walks along whole chains, and their ends."""
    parts, ends = [], []
    for hops, level in enumerate(levels):
        if hops == 0:
            continue
        whole = np.flatnonzero(lengths[level.graph] == hops)
        steps = np.full((len(whole), width), -1, dtype=np.int64)
        steps[:, :hops] = level.steps[whole]
        parts.append(Walks(level.graph[whole], steps, np.full(len(whole), hops)))
        ends.append(level.node[whole])
    walks = Walks.joined(parts)
    # Each graph has walks of one length.
    order = np.argsort(walks.graph, kind="stable")
    return walks.take(order), np.concatenate(ends)[order]


@dataclass(frozen=True, slots=True, eq=False)
class _Leaving:
    """Walks that follow a chain up to a hop and take another relation there, in the order in which they are wanted."""

    graph: Ints
    hop: Ints
    node: Ints
    steps: Ints


def _leaving(
    graphs: Graphs, table: _Following, levels: list[_Level], chains: Ints, lengths: Ints, places: Ints
) -> _Leaving:
    """Walks that differ from the chain in one relation, up to the step that does.

    The hops take turns, the last first. At each, walks that reach the same next node by another relation come first.
    """
    half = graphs.half_edges
    width = chains.shape[1]
    graph_parts, hop_parts, node_parts, rank_parts, step_parts = [], [], [], [], []
    for hop in range(width):
        level = levels[hop]
        prefixes = np.flatnonzero((lengths[level.graph] > hop) & (rank_in_run(level.graph) < places[level.graph]))
        nodes = level.node[prefixes]
        owner, taken = expand(half.offsets[nodes], half.degree[nodes])
        prefix = prefixes[owner]
        graph, other, step = level.graph[prefix], half.other[taken], half.step[taken]
        along = half.relation[taken] == chains[graph, hop]
        leaves = ~along
        if hop:
            leaves &= step != level.steps[prefix, hop - 1] ^ 1  # not straight back over the edge that it came by
        chosen = np.flatnonzero(leaves)
        parallel = _members(owner[chosen], other[chosen], owner[along], other[along], len(half.degree))
        rank = kept_places(graph[chosen], parallel)
        listed = np.flatnonzero(rank < places[graph[chosen]])
        chosen = chosen[listed]
        steps = np.full((len(chosen), width), -1, dtype=np.int64)
        steps[:, :hop] = level.steps[prefix[chosen]]
        steps[:, hop] = step[chosen]
        graph_parts.append(graph[chosen])
        hop_parts.append(np.full(len(chosen), hop))
        node_parts.append(other[chosen])
        rank_parts.append(rank[listed])
        step_parts.append(steps)
    graph, hops, nodes, ranks = (np.concatenate(parts) for parts in (graph_parts, hop_parts, node_parts, rank_parts))
    keys = (graph * (int(places.max(initial=1)) + 1) + ranks) * width + (width - 1 - hops)
    order = np.argsort(keys)
    return _Leaving(graph[order], hops[order], nodes[order], np.concatenate(step_parts)[order])


def _members(owner: Ints, node: Ints, owners: Ints, nodes: Ints, num_nodes: int) -> Bools:
    """Whether each (owner, node) is among some others."""
    if not len(owners):
        return np.zeros(len(owner), dtype=np.bool_)
    known = np.sort(owners * num_nodes + nodes)
    wanted = owner * num_nodes + node
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.asarray(known[places] == wanted, dtype=np.bool_)
