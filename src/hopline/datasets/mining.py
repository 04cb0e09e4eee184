"""Rules and patterns mined on the training triples.

A rule's confidence is counted under the partial completeness assumption (AMIE; Galárraga et al. 2013): a conclusion
``r(x, z)`` counts as false only if some ``r(x, y)`` is known. Both counts are taken on a sample, and the denominator is
raised a little so that few observations do not make certainty (AnyBURL; Meilicke et al. 2019).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product
from typing import Final

from hopline.datasets.draws import Draws, philox_key
from hopline.datasets.patterns import Patterns
from hopline.datasets.rulebook import Chain
from hopline.datasets.train_graph import TrainGraph
from hopline.datasets.vocabulary import Rule

__all__ = ["mine_patterns", "mine_rules"]

_FACTS: Final = 60
"""Facts of a relation whose surroundings are searched for chains."""
_BETWEEN: Final = 64
"""Entities between head and tail that are looked at for one fact."""
_CANDIDATES: Final = 12
"""Chains whose confidence is counted."""
_HEADS: Final = 40
"""Entities on which it is counted."""
_REACH: Final = 400
"""A chain that reaches more entities than this from one entity says nothing."""
_KEPT: Final = 8
"""Rules kept for each reading direction of a relation."""
_PESSIMISM: Final = 3
_LEAST: Final = 0.05
_SUPPORT: Final = 10
"""Facts that a relation must have before an exceptionless pattern is believed."""


def mine_rules(graph: TrainGraph, seed: int) -> tuple[Rule, ...]:
    """Rules with chains of one and two hops for every relation, read both ways; best first for each."""
    key = philox_key(seed, "rules")
    rules: list[Rule] = []
    width = 2 * graph.num_relations
    pairs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for head, relation, tail in graph.facts:
        pairs[relation].append((head, tail))
        pairs[relation + graph.num_relations].append((tail, head))
    for relation in range(width):
        draws = Draws(key, 0, relation)
        sample = list(pairs[relation])
        draws.shuffle(sample, _FACTS)
        chains = _chains(graph, relation, sample[:_FACTS])
        heads = sorted({head for head, _ in pairs[relation]})
        draws.shuffle(heads, _HEADS)
        found = []
        for chain in chains:
            confidence = _confidence(graph, relation, chain, heads[:_HEADS])
            if confidence >= _LEAST:
                found.append(Rule(relation=relation, chain=chain, confidence=confidence))
        found.sort(key=lambda rule: (-rule.confidence, len(rule.chain), rule.chain))
        rules += found[:_KEPT]
    return tuple(rules)


def mine_patterns(graph: TrainGraph) -> Patterns:
    """The patterns that hold without exception in the training triples, for relations with enough facts."""
    relations = range(graph.num_relations)
    tails: list[dict[int, set[int]]] = [defaultdict(set) for _ in relations]
    counts = [0] * graph.num_relations
    for head, relation, tail in graph.facts:
        tails[relation][head].add(tail)
        counts[relation] += 1
    known = set(graph.facts)
    strong = [relation for relation in relations if counts[relation] >= _SUPPORT]
    functional = [r for r in strong if all(len(values) == 1 for values in tails[r].values())]
    reversed_by: list[Counter[int]] = [Counter() for _ in relations]
    beside: list[set[int]] = [set() for _ in relations]
    for head, relation, tail in graph.facts:
        for other in graph.between(tail, head):
            if other < graph.num_relations:
                reversed_by[relation][other] += 1
        for other in graph.between(head, tail):
            if other < graph.num_relations:
                beside[relation].add(other)
    asymmetric = [r for r in strong if not reversed_by[r][r] and all((h, r, h) not in known for h in tails[r])]
    inverse = [
        (r, s)
        for r in strong
        for s in strong
        if r < s and s not in beside[r] and reversed_by[r][s] == counts[r] and reversed_by[s][r] == counts[s]
    ]
    return Patterns(functional, asymmetric, inverse)


def _chains(graph: TrainGraph, relation: int, facts: list[tuple[int, int]]) -> list[Chain]:
    """The chains that lead from head to tail of the most facts, beside the relation itself."""
    counts: Counter[Chain] = Counter()
    itself: Chain = (relation,)
    for head, tail in facts:
        here: set[Chain] = {(first,) for first in graph.between(head, tail)}
        common = sorted((graph.neighbours[head] & graph.neighbours[tail]) - {head, tail})
        for middle in common[:_BETWEEN]:
            here.update(product(graph.between(head, middle), graph.between(middle, tail)))
        counts.update(here)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    return [chain for chain, count in ordered if count > 1 and chain != itself][:_CANDIDATES]


def _confidence(graph: TrainGraph, relation: int, chain: Chain, heads: list[int]) -> float:
    right = reached = 0
    for head in heads:
        layers = graph.layers(head, chain, _REACH)
        if layers is None:
            reached += _REACH
            continue
        ends = layers[-1] - {head}
        reached += len(ends)
        right += len(ends.intersection(graph.follow(head, relation)))
    return round(right / (reached + _PESSIMISM), 6)
