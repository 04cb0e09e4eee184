"""Entity queries of one hop: walks along the relation, along the chains of its rules, and other first steps.

The candidates are those of :func:`hopline.datasets.paths.candidate_walks`, found for many graphs at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from hopline.datasets.ragged import Bools, Ints, expand, rank_in_run
from hopline.datasets.synthetic.graphs import Graphs
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.synthetic.walks import MOST_WALKS, Walks

__all__ = ["LinkWalks", "follow_rules"]

_WALKS_OF_A_RULE: Final = 128
"""Most walks along one rule that the enumerator of candidates looks at."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkWalks:
    """What the one-hop query of each graph gives.

    Attributes:
        walks: the candidates.
        by_rule, by_relation: ``[W]``, whether each follows a rule, or the relation itself.
        candidate_ends: the node that each candidate ends in.
        proofs, ends: every walk along a rule that does not lead back to the start, and the node that it ends in.
        exact, exact_ends: every step along the relation, and the node that it ends in.
        complete: ``[B]``, False where there were too many walks.
    """

    walks: Walks
    by_rule: Bools
    by_relation: Bools
    candidate_ends: Ints
    proofs: Walks
    ends: Ints
    exact: Walks
    exact_ends: Ints
    complete: Bools


def follow_rules(tables: WorldTables, graphs: Graphs, starts: Ints, relations: Ints, most: int) -> LinkWalks:
    """Walk from each start along its relation in ``[0, 2R)``, and along the rules for it; ``most`` candidates a graph."""
    half = graphs.half_edges
    graph, first = expand(half.offsets[starts], half.degree[starts])
    relation = half.relation[first]
    is_exact = relation == relations[graph]
    single_rank = tables.rule_rank(relations[graph], relation, np.full(len(graph), -1))
    complete = np.bincount(graph, minlength=len(graphs)) <= MOST_WALKS
    owner, second = expand(half.offsets[half.other[first]], half.degree[half.other[first]])
    double_rank = tables.rule_rank(relations[graph[owner]], relation[owner], half.relation[second])
    by_one, by_two = np.flatnonzero(single_rank >= 0), np.flatnonzero(double_rank >= 0)
    proofs, rank, ends, row = _rule_walks(
        graphs, tables, graph, first, by_one, single_rank[by_one], owner[by_two], second[by_two], double_rank[by_two]
    )
    away = np.flatnonzero(ends != starts[proofs.graph])
    proofs, rank, ends, row = proofs.take(away), rank[away], ends[away], row[away]
    complete &= np.bincount(proofs.graph, minlength=len(graphs)) <= MOST_WALKS
    in_rule = rank_in_run(proofs.graph * tables.most_rules + rank)
    listed = np.flatnonzero(in_rule < _WALKS_OF_A_RULE)
    order = listed[_by_turns(graphs, proofs.graph[listed], rank[listed], ends[listed])]

    exact_row = np.flatnonzero(is_exact)
    exact_row = exact_row[rank_in_run(graph[exact_row]) < max(1, most // 4)]
    num_exact = np.bincount(graph[exact_row], minlength=len(graphs))
    room = np.maximum(most - most // 8 - num_exact, 0)
    order = order[rank_in_run(proofs.graph[order]) < room[proofs.graph[order]]]
    num_rules = np.bincount(proofs.graph[order], minlength=len(graphs))
    taken = np.zeros(len(graph), dtype=np.bool_)
    taken[exact_row] = True
    taken[row[order[proofs.length[order] == 1]]] = True
    left = np.flatnonzero(~taken)
    left = left[rank_in_run(graph[left]) < (most - num_exact - num_rules)[graph[left]]]

    singles = _single_steps(graphs, graph, first)
    parts = (singles.take(exact_row), proofs.take(order), singles.take(left))
    walks = Walks.joined(parts)
    place = np.argsort(walks.graph, kind="stable")
    return LinkWalks(
        walks=walks.take(place),
        by_rule=np.concatenate([single_rank[exact_row] >= 0, np.ones(len(order), np.bool_), single_rank[left] >= 0])[
            place
        ],
        by_relation=np.concatenate([is_exact[exact_row], np.zeros(len(order), np.bool_), is_exact[left]])[place],
        candidate_ends=np.concatenate([half.other[first[exact_row]], ends[order], half.other[first[left]]])[place],
        proofs=proofs,
        ends=ends,
        exact=singles.take(np.flatnonzero(is_exact)),
        exact_ends=half.other[first[is_exact]],
        complete=complete,
    )


def _single_steps(graphs: Graphs, graph: Ints, first: Ints) -> Walks:
    return Walks(graph, graphs.half_edges.step[first][:, None], np.ones(len(graph), dtype=np.int64))


def _rule_walks(
    graphs: Graphs,
    tables: WorldTables,
    graph: Ints,
    first: Ints,
    by_one: Ints,
    one_rank: Ints,
    owner: Ints,
    second: Ints,
    two_rank: Ints,
) -> tuple[Walks, Ints, Ints, Ints]:
    """The walks along rules by graph, rank of the rule and steps; their ranks, ends, and rows of their first step."""
    half = graphs.half_edges
    row = np.concatenate([by_one, owner])
    steps = np.full((len(row), 2), -1, dtype=np.int64)
    steps[:, 0] = half.step[first[row]]
    steps[len(by_one) :, 1] = half.step[second]
    length = np.repeat([1, 2], [len(by_one), len(owner)])
    rank = np.concatenate([one_rank, two_rank])
    ends = np.concatenate([half.other[first[by_one]], half.other[second]])
    # Within a rule the walks are in the order of their steps already.
    order = np.argsort(graph[row] * tables.most_rules + rank, kind="stable")
    return Walks(graph[row], steps, length).take(order), rank[order], ends[order], row[order]


def _by_turns(graphs: Graphs, graph: Ints, rank: Ints, ends: Ints) -> Ints:
    """The order of rule walks when the nodes that they end in take turns, those that most rules lead to first."""
    nodes = int(graphs.node_offsets[-1])
    by_end = np.lexsort((rank, ends))  # stable, so within a rule still in order
    end, of_rule = ends[by_end], rank[by_end]
    turn = np.empty(len(graph), dtype=np.int64)
    turn[by_end] = rank_in_run(end)
    new_rule = np.ones(len(end), dtype=np.bool_)
    new_rule[1:] = (end[1:] != end[:-1]) | (of_rule[1:] != of_rule[:-1])
    votes = np.bincount(end[new_rule], minlength=nodes)
    return np.lexsort((ends, -votes[ends], turn, graph))
