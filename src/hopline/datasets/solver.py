"""The symbolic solver: derives status and answers of a query from its graph alone.

Examples are made so that the solver agrees with their labels, and checked with it when a dataset is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from hopline.datasets.adjacency import Adjacency, Walk
from hopline.datasets.paths import MAX_RELATION_HOPS, walks_between
from hopline.datasets.patterns import Patterns
from hopline.datasets.rulebook import RuleBook
from hopline.graph import AnswerMode, Query, QueryKind, Status

__all__ = ["Verdict", "derivations", "relation_conclusions", "solve"]

_MAX_WALKS = 512
"""Most walks between two anchors that the solver looks at."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a graph; ``answers`` in ascending order, ``relation`` for relation queries."""

    status: Status
    answers: tuple[int, ...] = ()
    relation: int | None = None


def solve(adjacency: Adjacency, query: Query, kind: QueryKind, *, rules: RuleBook, patterns: Patterns) -> Verdict:
    """Derive the answer to a query.

    * Chains are followed edge by edge; aggregate intersects, a boolean asks whether its second anchor is reached.
    * A link query is answered by the rules for its relation.
    * A relation query is answered by the relation that the walks between its anchors lead to with the highest
      confidence; two with the same confidence answer nothing.

    The graph contradicts the query if a fact that was used on the way is excluded by another (see :class:`Patterns`).
    """
    if kind is QueryKind.RELATION:
        return _solve_relation(adjacency, query, rules, patterns)
    if kind is QueryKind.LINK:
        start, relation = query.anchors[0], query.chains[0][0]
        chains = [(start, chain) for chain, _ in rules.chains_for(relation)]
        reached = [adjacency.layers(node, chain) for node, chain in chains]
        answers = set[int]().union(*(layers[-1] for layers in reached)) - {start}
    else:
        chains = list(zip(query.anchors, query.chains, strict=False))
        reached = [adjacency.layers(node, chain) for node, chain in chains]
        answers = set.intersection(*(layers[-1] for layers in reached))
        if query.answer_mode is AnswerMode.BOOLEAN:
            answers &= {query.anchors[1]}
    way = {
        step >> 1
        for (_, chain), layers in zip(chains, reached, strict=True)
        for relation, nodes in zip(chain, layers, strict=False)
        for node in nodes
        for step, _ in adjacency.follow(node, relation)
    }
    if _contradicted(adjacency, patterns, way):
        return Verdict(Status.CONTRADICTED)
    return Verdict(Status.SUPPORTED if answers else Status.MISSING, tuple(sorted(answers)))


def derivations(
    adjacency: Adjacency, query: Query, kind: QueryKind, verdict: Verdict, rules: RuleBook
) -> Iterable[Walk]:
    """Every walk that proves an answer of a supported verdict; for relation queries among the first walks."""
    ends = set(verdict.answers)
    if kind is QueryKind.RELATION:
        for walk in _walks(adjacency, query, rules):
            if verdict.relation in rules.conclusions(walk.relations):
                yield walk
    elif kind is QueryKind.LINK:
        for chain, _ in rules.chains_for(query.chains[0][0]):
            yield from adjacency.walks(query.anchors[0], chain, ends)
    else:
        for anchor, chain in zip(query.anchors, query.chains, strict=False):
            yield from adjacency.walks(anchor, chain, ends)


def relation_conclusions(adjacency: Adjacency, query: Query, rules: RuleBook) -> tuple[dict[int, float], set[int]]:
    """The relations in ``[0, R)`` that walks between the anchors lead to, with confidence, and the edges of those walks."""
    found: dict[int, float] = {}
    way: set[int] = set()
    for walk in _walks(adjacency, query, rules):
        concluded = False
        for relation, confidence in rules.conclusions(walk.relations).items():
            if relation < rules.num_relations:
                found[relation] = max(confidence, found.get(relation, 0.0))
                concluded = True
        if concluded:
            way.update(step >> 1 for step in walk.steps)
    return found, way


def _walks(adjacency: Adjacency, query: Query, rules: RuleBook) -> Iterator[Walk]:
    """The walks between two anchors from which rules can conclude something."""
    start, end = query.anchors
    longest = MAX_RELATION_HOPS if rules.composes else rules.longest
    return islice(walks_between(adjacency, start, end, longest), _MAX_WALKS)


def _solve_relation(adjacency: Adjacency, query: Query, rules: RuleBook, patterns: Patterns) -> Verdict:
    found, way = relation_conclusions(adjacency, query, rules)
    if _contradicted(adjacency, patterns, way):
        return Verdict(Status.CONTRADICTED)
    if not found:
        return Verdict(Status.MISSING)
    best = max(found.values())
    relations = [relation for relation, confidence in found.items() if confidence == best]
    if len(relations) > 1:
        return Verdict(Status.MISSING)
    return Verdict(Status.SUPPORTED, relation=relations[0])


def _contradicted(adjacency: Adjacency, patterns: Patterns, way: Iterable[int]) -> bool:
    return any(patterns.conflicts(adjacency, edge) for edge in way)
