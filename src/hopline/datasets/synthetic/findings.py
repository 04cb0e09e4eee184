"""What graphs say about their queries: answers, the walks that prove them, and the candidates to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hopline.datasets.ragged import Bools, Ints
from hopline.datasets.synthetic.chains import ChainWalks, follow_chains
from hopline.datasets.synthetic.links import follow_rules
from hopline.datasets.synthetic.problems import Problems
from hopline.datasets.synthetic.relations import walk_between
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.synthetic.walks import Walks
from hopline.datasets.synthetic.wishlist import AGGREGATE, BOOLEAN, LINK, MULTI_HOP, RELATION

__all__ = ["Findings", "families", "find"]


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What was found out about some graphs.

    Attributes:
        walks: the candidates, at most ``max_paths`` a graph, in the order of :mod:`hopline.datasets.paths`.
        proves: ``[W]``, whether a candidate proves an answer.
        proofs: every walk that proves an answer, candidate or not.
        branch: which chain of the query each proof follows, 0 for other queries.
        answers: ``[N]``, whether each node is an answer.
        relation: ``[B]``, the answer of a relation query, else -1.
        complete: ``[B]``, whether every walk was looked at; else nothing said about the graph counts.
        reaches: ``[2, H + 1, N]``, whether the rest of a chain, from each hop on, can be followed from each node; False
            where there is no chain.
    """

    walks: Walks
    proves: Bools
    proofs: Walks
    branch: Ints
    answers: Bools
    relation: Ints
    complete: Bools
    reaches: Bools


def families(kind: Ints, hops: Ints) -> Ints:
    """Of which family each query is: 0 one chain, 1 two chains, 2 one hop to entities, 3 relation."""
    one_hop = (kind == LINK) | ((kind == MULTI_HOP) & (hops == 1))
    return np.where(kind == RELATION, 3, np.where(one_hop, 2, np.where(kind == AGGREGATE, 1, 0)))


def find(tables: WorldTables, problems: Problems, max_paths: int) -> Findings:
    """Solve some problems, sorted by family, and list their candidates."""
    family = families(problems.kind, problems.lengths[:, 0])
    bounds = np.searchsorted(family, [0, 1, 2, 3, 4]).tolist()
    parts: list[tuple[int, Findings]] = []
    if bounds[2]:
        parts.append((0, _chains(problems.slice(0, bounds[2]), bounds[1], max_paths)))
    if bounds[3] > bounds[2]:
        parts.append((bounds[2], _links(tables, problems.slice(bounds[2], bounds[3]), max_paths)))
    if bounds[4] > bounds[3]:
        parts.append((bounds[3], _relations(tables, problems.slice(bounds[3], bounds[4]), max_paths)))
    return _joined(problems, parts)


def _chains(problems: Problems, aggregates: int, max_paths: int) -> Findings:
    """One chain each up to the first aggregate, then two."""
    graphs = problems.graphs
    places = np.full(len(problems), max_paths)
    places[aggregates:] //= 2
    starts, others = graphs.base + problems.anchors[:, 0], graphs.base + problems.anchors[:, 1]
    boolean = np.flatnonzero(problems.kind == BOOLEAN)
    preferred = np.full(len(problems), -1)
    preferred[boolean] = others[boolean]
    first = follow_chains(graphs, starts, problems.chains[:, 0], problems.lengths[:, 0], places, preferred)
    answers = np.zeros(int(graphs.node_offsets[-1]), dtype=np.bool_)
    answers[first.ends] = True
    only = problems.kind[graphs.node_graph] == BOOLEAN
    only[preferred[boolean]] = False
    answers &= ~only
    complete = first.complete
    reaches = np.zeros((2, *first.reaches.shape), dtype=np.bool_)
    reaches[0] = first.reaches
    branches = [(first, 0, 0, 0)]
    if aggregates < len(problems):
        second = problems.slice(aggregates, len(problems))
        node, edge = int(graphs.node_offsets[aggregates]), int(graphs.edge_offsets[aggregates])
        used = np.bincount(first.walks.graph, minlength=len(problems))[aggregates:]
        found = follow_chains(
            second.graphs, others[aggregates:] - node, second.chains[:, 1], second.lengths[:, 1], max_paths - used,
            np.full(len(second), -1),
        )  # fmt: skip
        reached = np.zeros(len(answers) - node, dtype=np.bool_)
        reached[found.ends] = True
        answers[node:] &= reached
        complete[aggregates:] &= found.complete
        if found.reaches.shape[0] > reaches.shape[1]:
            more = found.reaches.shape[0] - reaches.shape[1]
            reaches = np.pad(reaches, ((0, 0), (0, more), (0, 0)))
        reaches[1, : found.reaches.shape[0], node:] = found.reaches
        branches.append((found, aggregates, node, edge))
    return _of_branches(len(problems), branches, answers, complete, reaches)


def _of_branches(
    graphs: int, branches: Sequence[tuple[ChainWalks, int, int, int]], answers: Bools, complete: Bools, reaches: Bools
) -> Findings:
    walks, proves, proofs, numbers = [], [], [], []
    for number, (found, graph, node, edge) in enumerate(branches):
        walks.append(found.walks.moved(graph, edge))
        proves.append(found.along & answers[found.candidate_ends + node])
        proving = np.flatnonzero(answers[found.ends + node])
        proofs.append(found.exact.take(proving).moved(graph, edge))
        numbers.append(np.full(len(proving), number))
    joined, proof = Walks.joined(walks), Walks.joined(proofs)
    # Within a graph those of the first chain come first.
    order, proof_order = (np.argsort(part.graph, kind="stable") for part in (joined, proof))
    return Findings(
        walks=joined.take(order),
        proves=np.concatenate(proves)[order],
        proofs=proof.take(proof_order),
        branch=np.concatenate(numbers)[proof_order],
        answers=answers,
        relation=np.full(graphs, -1),
        complete=complete,
        reaches=reaches,
    )


def _links(tables: WorldTables, problems: Problems, max_paths: int) -> Findings:
    """Link queries are answered by rules; one-hop chains by their relation."""
    graphs = problems.graphs
    starts, relations = graphs.base + problems.anchors[:, 0], problems.chains[:, 0, 0]
    found = follow_rules(tables, graphs, starts, relations, max_paths)
    link = problems.kind == LINK
    answers = np.zeros(int(graphs.node_offsets[-1]), dtype=np.bool_)
    by_rule, by_step = np.flatnonzero(link[found.proofs.graph]), np.flatnonzero(~link[found.exact.graph])
    answers[found.ends[by_rule]] = True
    answers[found.exact_ends[by_step]] = True
    proves = np.where(link[found.walks.graph], found.by_rule, found.by_relation)
    proofs = Walks.joined([found.proofs.take(by_rule), found.exact.take(by_step)])
    proofs = proofs.take(np.argsort(proofs.graph, kind="stable"))
    reaches = np.ones((2, 2, len(answers)), dtype=np.bool_)
    return Findings(
        walks=found.walks,
        proves=proves & answers[found.candidate_ends],
        proofs=proofs,
        branch=np.zeros(len(proofs), dtype=np.int64),
        answers=answers,
        relation=np.full(len(problems), -1),
        complete=found.complete,
        reaches=reaches,
    )


def _relations(tables: WorldTables, problems: Problems, max_paths: int) -> Findings:
    graphs = problems.graphs
    starts, ends = (graphs.base[:, None] + problems.anchors).T
    found = walk_between(tables, graphs, starts, ends)
    proving = np.flatnonzero(found.relation >= 0)
    relation = np.full(len(problems), -1)
    relation[found.walks.graph[proving]] = found.relation[proving]
    listed = np.flatnonzero(found.walks.rank < max_paths)
    nodes = int(graphs.node_offsets[-1])
    return Findings(
        walks=found.walks.take(listed),
        proves=found.relation[listed] >= 0,
        proofs=found.walks.take(proving),
        branch=np.zeros(len(proving), dtype=np.int64),
        answers=np.zeros(nodes, dtype=np.bool_),
        relation=relation,
        complete=found.complete,
        reaches=np.zeros((2, 1, nodes), dtype=np.bool_),
    )


def _joined(problems: Problems, parts: Sequence[tuple[int, Findings]]) -> Findings:
    if len(parts) == 1:
        return parts[0][1]
    graphs = problems.graphs
    hops = max(part.reaches.shape[1] for _, part in parts)
    reaches = np.zeros((2, hops, int(graphs.node_offsets[-1])), dtype=np.bool_)
    for first, part in parts:
        node = int(graphs.node_offsets[first])
        reaches[:, : part.reaches.shape[1], node : node + part.reaches.shape[2]] = part.reaches
    edges = [int(graphs.edge_offsets[first]) for first, _ in parts]
    return Findings(
        walks=Walks.joined([part.walks.moved(first, edge) for (first, part), edge in zip(parts, edges, strict=True)]),
        proves=np.concatenate([part.proves for _, part in parts]),
        proofs=Walks.joined([part.proofs.moved(first, edge) for (first, part), edge in zip(parts, edges, strict=True)]),
        branch=np.concatenate([part.branch for _, part in parts]),
        answers=np.concatenate([part.answers for _, part in parts]),
        relation=np.concatenate([part.relation for _, part in parts]),
        complete=np.concatenate([part.complete for _, part in parts]),
        reaches=reaches,
    )
