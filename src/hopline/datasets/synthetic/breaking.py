"""Evidence taken apart: cut out of a graph until nothing is derived, or contradicted by a planted fact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from hopline.datasets.ragged import Bools, Ints, expand, first_of_run, offsets_of
from hopline.datasets.synthetic.counters import Counters, high, low, scaled
from hopline.datasets.synthetic.findings import Findings
from hopline.datasets.synthetic.graphs import Graphs
from hopline.datasets.synthetic.problems import FIELDS_OF_PROBLEMS, Problems
from hopline.datasets.synthetic.relations import walk_between
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.synthetic.walks import Walks
from hopline.datasets.synthetic.wishlist import BOOLEAN, LINK, RELATION

__all__ = ["Planted", "cut_evidence", "plant_facts", "with_changes"]

_MAX_CUT: Final = 8
"""Most edges that a missing example may lack."""

_SECOND_VALUES: Final = 8
"""Weight of a functional fact among those that can be contradicted; others have one for each way."""

_HOP, _FACT, _VALUE = range(FIELDS_OF_PROBLEMS, FIELDS_OF_PROBLEMS + 3)


def cut_evidence(
    tables: WorldTables, problems: Problems, findings: Findings, chosen: Ints, counters: Counters
) -> tuple[Bools, Bools]:
    """Find for some supported problems the edges without which nothing is derived, and of which none could stay.

    Returns:
        ``[E]``, the edges to remove, and for each chosen problem whether there are any, and few enough.
    """
    removed = np.zeros(len(problems.graphs.head), dtype=np.bool_)
    kind = problems.kind[chosen]
    by_walks = (kind == LINK) | (kind == RELATION)
    layered = np.zeros(len(problems), dtype=np.bool_)
    layered[chosen[~by_walks]] = True
    unclear = _cut_a_hop(problems, findings, layered, counters, removed)
    for family, cut in ((LINK, _cut_links), (RELATION, _cut_relations)):
        here = chosen[kind == family]
        if not len(here):
            continue
        part = problems.take(here)
        walks = findings.proofs.within(here, problems.graphs, part.graphs)
        gone = np.flatnonzero(cut(tables, part, walks))
        owner = part.graphs.edge_graph[gone]
        removed[gone - part.graphs.edge_offsets[owner] + problems.graphs.edge_offsets[here[owner]]] = True
    sizes = np.bincount(problems.graphs.edge_graph[removed], minlength=len(problems))
    return removed, (sizes > 0)[chosen] & (sizes <= _MAX_CUT)[chosen] & ~unclear[chosen]


def _cut_a_hop(problems: Problems, findings: Findings, chosen: Bools, counters: Counters, removed: Bools) -> Bools:
    """Cut the hop of a chain that the fewest edges cross on the way to the answers; True where one of them might stay."""
    graph, group, edge = _crossings(findings, np.flatnonzero(chosen[findings.proofs.graph]))
    unclear = np.zeros(len(problems), dtype=np.bool_)
    if not len(graph):
        return unclear
    begins = np.flatnonzero(first_of_run(group))
    sizes = np.diff(np.append(begins, len(group)))
    owner, hop = graph[begins], group[begins] % _GROUPS
    draws = high(counters.words(_HOP, owner, hop)).astype(np.int64)
    order = np.lexsort((hop, draws, sizes, owner))
    taken = order[first_of_run(owner[order])]
    of, index = expand(begins[taken], sizes[taken])
    removed[edge[index]] = True
    # An edge that is crossed at another hop too may leave a way open or closed beside the hop that was cut.
    shared = np.bincount(edge, minlength=len(removed))[edge[index]] > 1
    unclear[owner[taken[of[shared & (sizes[taken[of]] > 1)]]]] = True
    return unclear


_GROUPS: Final = 32
"""Room for the hops of both chains of a query."""


def _crossings(findings: Findings, proofs: Ints) -> tuple[Ints, Ints, Ints]:
    """The different edges that proofs cross, hop by hop: graphs, numbers of (graph, branch, hop), and edges, sorted."""
    walks = findings.proofs.take(proofs)
    row, hop = np.nonzero(walks.steps >= 0)
    group = walks.graph[row] * _GROUPS + findings.branch[proofs][row] * (_GROUPS // 2) + hop
    edge = walks.steps[row, hop] >> 1
    order = np.lexsort((edge, group))
    group, edge = group[order], edge[order]
    kept = np.flatnonzero(first_of_run(group) | first_of_run(edge))
    return group[kept] // _GROUPS, group[kept], edge[kept]


def _cut_links(tables: WorldTables, problems: Problems, walks: Walks) -> Bools:
    """Edges taken greedily, those on most proofs first, until no proof is left; then those that are not needed put back."""
    graphs = problems.graphs
    removed = np.zeros(len(graphs.head), dtype=np.bool_)
    left = walks
    for _ in range(_MAX_CUT + 1):
        if not len(left):
            break
        removed[_most_crossed(graphs, left)] = True
        left = left.take(np.flatnonzero(~_crosses(left, removed)))
    for _ in range(_MAX_CUT):
        # A removed edge is needed if a proof crosses it and no other; one of those that are not is put back at a time.
        edges = walks.steps >> 1
        gone = removed[edges] & (walks.steps >= 0)
        alone = np.flatnonzero(gone.sum(axis=1) == 1)
        needed = np.zeros(len(removed), dtype=np.bool_)
        needed[edges[alone][gone[alone]]] = True
        spare = np.flatnonzero(removed & ~needed)
        if not len(spare):
            break
        removed[spare[first_of_run(graphs.edge_graph[spare])]] = False
    return removed


def _cut_relations(tables: WorldTables, problems: Problems, walks: Walks) -> Bools:
    """As for links; but without some edges, longer walks count that did not before."""
    removed = np.zeros(len(problems.graphs.head), dtype=np.bool_)
    for _ in range(_MAX_CUT + 1):
        if not len(walks):
            break
        removed[_most_crossed(problems.graphs, walks)] = True
        walks = _proofs_without(tables, problems, removed, np.unique(walks.graph))
    for _ in range(_MAX_CUT):
        spare = _spare_edges(tables, problems, removed)
        if not len(spare):
            break
        removed[spare[first_of_run(problems.graphs.edge_graph[spare])]] = False
    return removed


def _proofs_without(tables: WorldTables, problems: Problems, removed: Bools, graphs: Ints) -> Walks:
    """The proofs of some graphs that are left without the removed edges, in the numbers of the whole graphs."""
    part = problems.take(graphs)
    _, whole = expand(problems.graphs.edge_offsets[graphs], np.diff(problems.graphs.edge_offsets)[graphs])
    kept = ~removed[whole]
    found = _relation_proofs(tables, part.on(part.graphs.without(~kept)))
    steps = np.where(found.steps >= 0, 2 * whole[kept][found.steps >> 1] + (found.steps & 1), -1)
    return Walks(graphs[found.graph], steps, found.length)


def _spare_edges(tables: WorldTables, problems: Problems, removed: Bools) -> Ints:
    """The removed edges without which, put back one by one, still nothing is derived."""
    graphs = problems.graphs
    sizes = np.bincount(graphs.edge_graph[removed], minlength=len(graphs))
    edges = np.flatnonzero(removed & ((sizes > 1) & (sizes <= _MAX_CUT))[graphs.edge_graph])
    if not len(edges):
        return edges
    owner = graphs.edge_graph[edges]
    copies = problems.take(owner)
    of, whole = expand(graphs.edge_offsets[owner], np.diff(graphs.edge_offsets)[owner])
    found = _relation_proofs(tables, copies.on(copies.graphs.without(removed[whole] & (whole != edges[of]))))
    derived = np.zeros(len(edges), dtype=np.bool_)
    derived[found.graph] = True
    return edges[~derived]


def _relation_proofs(tables: WorldTables, problems: Problems) -> Walks:
    starts, ends = (problems.graphs.base[:, None] + problems.anchors).T
    found = walk_between(tables, problems.graphs, starts, ends)
    return found.walks.take(np.flatnonzero(found.relation >= 0))


def _most_crossed(graphs: Graphs, walks: Walks) -> Ints:
    """Of each graph that has walks, the edge that most of them cross; of several the first."""
    crossed = walks.steps[walks.steps >= 0] >> 1
    counts = np.bincount(crossed, minlength=len(graphs.head))
    edges = np.flatnonzero(counts)
    order = np.lexsort((edges, -counts[edges], graphs.edge_graph[edges]))
    edges = edges[order]
    return edges[first_of_run(graphs.edge_graph[edges])]


def _crosses(walks: Walks, edges: Bools) -> Bools:
    return np.asarray((edges[walks.steps >> 1] & (walks.steps >= 0)).any(axis=1), dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Planted:
    """A fact for each of some graphs, and the fact that it contradicts; nodes are counted over all graphs.

    Attributes:
        head, relation, tail: of the planted fact.
        edge: the edge that it contradicts.
        possible: False where there is none to plant.
    """

    head: Ints
    relation: Ints
    tail: Ints
    edge: Ints
    possible: Bools

    def shown(self, before: Graphs, after: Graphs, chosen: Ints, place: Ints, walks: Walks) -> Bools:
        """Whether candidates cross both facts, where the ``chosen`` graphs are those at ``place`` now."""
        crossed = np.zeros(len(after.head), dtype=np.bool_)
        crossed[walks.steps[walks.steps >= 0] >> 1] = True
        shift = after.base[place] - before.base[chosen]
        shown = self.possible.copy()
        there = np.flatnonzero(self.possible)
        for head, relation, tail in (
            (self.head, self.relation, self.tail),
            (before.head[self.edge], before.relation[self.edge], before.tail[self.edge]),
        ):
            edge = after.find(head[there] + shift[there], relation[there], tail[there] + shift[there])
            shown[there] &= crossed[edge]
        return shown


def with_changes(graphs: Graphs, chosen: Ints, removed: Bools, contradicted: Ints, planted: Planted) -> Graphs:
    """The chosen graphs, rising, without the removed edges, and with the facts planted into some of them."""
    part = graphs.take(chosen)
    _, whole = expand(graphs.edge_offsets[chosen], np.diff(graphs.edge_offsets)[chosen])
    kept = np.flatnonzero(~removed[whole])
    place = np.searchsorted(chosen, contradicted)
    there = np.flatnonzero(planted.possible)
    shift = (part.base[place] - graphs.base[contradicted])[there]
    return Graphs.of_facts(
        graphs.num_relations,
        part.node_offsets,
        np.concatenate([part.head[kept], planted.head[there] + shift]),
        np.concatenate([part.relation[kept], planted.relation[there]]),
        np.concatenate([part.tail[kept], planted.tail[there] + shift]),
    )


def plant_facts(
    tables: WorldTables, problems: Problems, findings: Findings, chosen: Ints, counters: Counters
) -> Planted:
    """Choose for some supported problems a fact that contradicts one on the query's way.

    An asymmetric fact is contradicted by its reverse and by its inverse, a functional one on a chain by a second value from
    which the chain can be followed.
    """
    graphs = problems.graphs
    wanted = np.zeros(len(problems), dtype=np.bool_)
    wanted[chosen] = True
    proofs = np.flatnonzero(wanted[findings.proofs.graph])
    walks = findings.proofs.take(proofs)
    row, hop = np.nonzero(walks.steps >= 0)
    step, graph, branch = walks.steps[row, hop], walks.graph[row], findings.branch[proofs][row]
    kind, edge = problems.kind[graph], step >> 1
    relation = graphs.relation[edge]
    chain = (kind != LINK) & (kind != RELATION)
    # Beside a rule, a candidate crosses a planted fact at its first step only.
    asymmetric = tables.asymmetric[relation] & ((kind != LINK) | (hop == 0))
    functional = tables.functional[relation] & chain & (step & 1 == 0)
    weight = 2 * asymmetric.astype(np.int64) + _SECOND_VALUES * functional
    order = np.lexsort((step, hop, branch, graph))
    repeated = ~(
        first_of_run(step[order]) | first_of_run(hop[order]) | first_of_run(branch[order]) | first_of_run(graph[order])
    )
    weight[order[repeated]] = 0
    total = np.bincount(graph, weights=weight, minlength=len(problems)).astype(np.int64)[chosen]
    possible = total > 0
    words = counters.words(_FACT, chosen)
    point = scaled(high(words), np.maximum(total, 1))
    sums = offsets_of(weight[order])
    start = sums[np.searchsorted(graph[order], chosen)]
    place = np.minimum(np.searchsorted(sums, start + point, side="right") - 1, max(len(order) - 1, 0))
    if not len(order):
        nothing = np.zeros(len(chosen), dtype=np.int64)
        return Planted(nothing, nothing, nothing, nothing, possible)
    entry = order[place]
    way = point - (sums[place] - start)
    head, tail, relation = graphs.head[edge[entry]], graphs.tail[edge[entry]], relation[entry]
    second = functional[entry] & (way < _SECOND_VALUES)
    turned = ~second & ((way & 1) == 0)
    value, found = _second_values(problems, findings, chosen, branch[entry], hop[entry], head, tail, counters)
    return Planted(
        head=np.where(turned, tail, head),
        relation=np.where(second | turned, relation, tables.inverse[relation]),
        tail=np.where(second, value, np.where(turned, head, tail)),
        edge=edge[entry],
        possible=possible & (~second | found),
    )


def _second_values(
    problems: Problems,
    findings: Findings,
    chosen: Ints,
    branch: Ints,
    hop: Ints,
    head: Ints,
    tail: Ints,
    counters: Counters,
) -> tuple[Ints, Bools]:
    """For each chosen problem another node from which the rest of a chain can be followed, and whether there is one."""
    graphs = problems.graphs
    item, node = expand(graphs.base[chosen], graphs.sizes[chosen])
    after = np.minimum(hop + 1, findings.reaches.shape[1] - 1)
    good = findings.reaches[branch[item], after[item], node] & (node != head[item]) & (node != tail[item])
    asked = np.where(problems.kind[chosen] == BOOLEAN, graphs.base[chosen] + problems.anchors[chosen, 1], -1)
    last = hop + 1 == problems.lengths[chosen, branch]
    good &= ~last[item] | (node != asked[item])
    nodes = np.flatnonzero(good)
    counts = np.bincount(item[nodes], minlength=len(chosen))
    pick = scaled(low(counters.words(_VALUE, chosen)), np.maximum(counts, 1))
    places = np.minimum(offsets_of(counts)[:-1] + pick, max(len(nodes) - 1, 0))
    if not len(nodes):
        return head, counts > 0
    return node[nodes[places]], counts > 0
