"""Entity queries of one hop: walks along the relation, along the chains of its rules, and other first steps.

The candidates are those of :func:`hopline.datasets.paths.candidate_walks`, found for many graphs at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from hopline.datasets.ragged import Bools, Ints, expand, first_of_run, rank_in_run
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


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Every first step from the starts: graphs, half-edges, their relations, and the rank of the rule of one hop, if any."""

    graph: Ints
    half: Ints
    relation: Ints
    rank: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _RuleWalks:
    """Walks along rules, by graph, rank of the rule and steps: also the node each ends in, and the row of its first step."""

    walks: Walks
    rank: Ints
    ends: Ints
    row: Ints

    def take(self, chosen: Ints) -> _RuleWalks:
        return _RuleWalks(self.walks.take(chosen), self.rank[chosen], self.ends[chosen], self.row[chosen])


def follow_rules(tables: WorldTables, graphs: Graphs, starts: Ints, relations: Ints, most: int) -> LinkWalks:
    """Walk from each start along its relation in ``[0, 2R)``, and along the rules for it; ``most`` candidates a graph."""
    half = graphs.half_edges
    graph, first = expand(half.offsets[starts], half.degree[starts])
    relation = half.relation[first]
    is_exact = relation == relations[graph]
    steps = _Steps(graph, first, relation, tables.rule_rank(relations[graph], relation, np.full(len(graph), -1)))
    singles = Walks(graph, half.step[first][:, None], np.ones(len(graph), dtype=np.int64))
    rules = _rule_walks(tables, graphs, steps, relations)
    rules = rules.take(np.flatnonzero(rules.ends != starts[rules.walks.graph]))
    complete = np.maximum(*(np.bincount(part.graph, minlength=len(graphs)) for part in (singles, rules.walks)))

    exact = np.flatnonzero(is_exact)
    exact = exact[rank_in_run(graph[exact]) < max(1, most // 4)]
    num_exact = np.bincount(graph[exact], minlength=len(graphs))
    listed = rules.take(
        np.flatnonzero(rank_in_run(rules.walks.graph * tables.most_rules + rules.rank) < _WALKS_OF_A_RULE)
    )
    listed = listed.take(_by_turns(graphs, listed))
    room = np.maximum(most - most // 8 - num_exact, 0)
    listed = listed.take(np.flatnonzero(listed.walks.rank < room[listed.walks.graph]))
    num_rules = np.bincount(listed.walks.graph, minlength=len(graphs))
    taken = np.zeros(len(graph), dtype=np.bool_)
    taken[exact] = True
    taken[listed.row[listed.walks.length == 1]] = True
    left = np.flatnonzero(~taken)
    left = left[rank_in_run(graph[left]) < (most - num_exact - num_rules)[graph[left]]]

    walks = Walks.joined([singles.take(exact), listed.walks, singles.take(left)])
    by_rule = np.concatenate([steps.rank[exact] >= 0, np.ones(len(listed.rank), np.bool_), steps.rank[left] >= 0])
    by_relation = np.concatenate([is_exact[exact], np.zeros(len(listed.rank), np.bool_), is_exact[left]])
    ends = np.concatenate([half.other[first[exact]], listed.ends, half.other[first[left]]])
    place = np.argsort(walks.graph, kind="stable")
    return LinkWalks(
        walks=walks.take(place),
        by_rule=by_rule[place],
        by_relation=by_relation[place],
        candidate_ends=ends[place],
        proofs=rules.walks,
        ends=rules.ends,
        exact=singles.take(np.flatnonzero(is_exact)),
        exact_ends=half.other[first[is_exact]],
        complete=complete <= MOST_WALKS,
    )


def _rule_walks(tables: WorldTables, graphs: Graphs, steps: _Steps, relations: Ints) -> _RuleWalks:
    """The walks of one and two hops that the rules for each graph's relation lead along."""
    half = graphs.half_edges
    middle = half.other[steps.half]
    owner, second = expand(half.offsets[middle], half.degree[middle])
    rank = tables.rule_rank(relations[steps.graph[owner]], steps.relation[owner], half.relation[second])
    by_one, by_two = np.flatnonzero(steps.rank >= 0), np.flatnonzero(rank >= 0)
    row = np.concatenate([by_one, owner[by_two]])
    ends = np.concatenate([middle[by_one], half.other[second[by_two]]])
    ranks = np.concatenate([steps.rank[by_one], rank[by_two]])
    crossed = np.full((len(row), 2), -1, dtype=np.int64)
    crossed[:, 0] = half.step[steps.half[row]]
    crossed[len(by_one) :, 1] = half.step[second[by_two]]
    length = np.repeat([1, 2], [len(by_one), len(by_two)])
    found = _RuleWalks(Walks(steps.graph[row], crossed, length), ranks, ends, row)
    # Within a rule the walks are in the order of their steps already.
    return found.take(np.argsort(found.walks.graph * tables.most_rules + ranks, kind="stable"))


def _by_turns(graphs: Graphs, rules: _RuleWalks) -> Ints:
    """The order of rule walks when the nodes that they end in take turns, those that most rules lead to first."""
    ends = rules.ends
    by_end = np.lexsort((rules.rank, ends))  # stable, so within a rule still in order
    end, rank = ends[by_end], rules.rank[by_end]
    turn = np.empty(len(ends), dtype=np.int64)
    turn[by_end] = rank_in_run(end)
    new_rule = first_of_run(end) | first_of_run(rank)
    votes = np.bincount(end[new_rule], minlength=int(graphs.node_offsets[-1]))
    return np.lexsort((ends, -votes[ends], turn, rules.walks.graph))
