"""The graph of all training triples, from which every graph of a triples source is taken: sampled, or whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hopline.config import DatasetConfig
from hopline.datasets.draws import Draws
from hopline.datasets.triples import TripleData

__all__ = ["Neighbourhood", "TrainGraph", "split_graphs"]

EDGES_PER_NODE = 3
"""A sampled graph has at most this many edges for each node, beside those that it must have."""

_LOOKED_AT = 4
"""Others that facts are taken to from one entity."""

Fact = tuple[int, int, int]


class TrainGraph:
    """Training triples, indexed both ways. Signed relations are in ``[0, 2R)``.

    Args:
        triples: int64 ``[n, 3]``.
        num_entities, num_relations: of the source.
        members: the entities that belong to the graph, with or without a triple; None: all.

    Attributes:
        facts: the triples in order.
        members: the entities that belong to the graph.
        neighbours: for each entity, the entities that it shares a triple with.
        incident: for each entity, ``(signed relation, other)`` of every triple it is in.
        crossings: the same as ``(other, triple)``.
        facts_from: for each entity, the triples that it is the head of, by tail.
    """

    def __init__(
        self,
        triples: NDArray[np.int64],
        num_entities: int,
        num_relations: int,
        members: Sequence[int] | None = None,
    ) -> None:
        self.num_entities = num_entities
        self.members: Sequence[int] = range(num_entities) if members is None else members
        self.num_relations = num_relations
        self.facts: list[Fact] = [(h, r, t) for h, r, t in triples.tolist()]
        width = 2 * num_relations
        by_relation: defaultdict[int, list[int]] = defaultdict(list)
        between: defaultdict[int, list[int]] = defaultdict(list)
        self.incident: list[list[tuple[int, int]]] = [[] for _ in range(num_entities)]
        self.crossings: list[list[tuple[int, Fact]]] = [[] for _ in range(num_entities)]
        for fact in self.facts:
            head, relation, tail = fact
            backwards = relation + num_relations
            by_relation[head * width + relation].append(tail)
            by_relation[tail * width + backwards].append(head)
            between[head * num_entities + tail].append(relation)
            between[tail * num_entities + head].append(backwards)
            self.incident[head].append((relation, tail))
            self.incident[tail].append((backwards, head))
            self.crossings[head].append((tail, fact))
            self.crossings[tail].append((head, fact))
        self._by_relation = by_relation
        self._between = between
        self._width = width
        self.facts_from: list[dict[int, list[Fact]]] = [{} for _ in range(num_entities)]
        for fact in self.facts:
            self.facts_from[fact[0]].setdefault(fact[2], []).append(fact)
        self.neighbours = [frozenset(other for _, other in incident) for incident in self.incident]

    def follow(self, entity: int, relation: int) -> Sequence[int]:
        """The entities that a signed relation leads to."""
        return self._by_relation.get(entity * self._width + relation, ())

    def between(self, start: int, end: int) -> Sequence[int]:
        """The signed relations from one entity to another."""
        return self._between.get(start * self.num_entities + end, ())

    def layers(self, start: int, chain: Sequence[int], most: int) -> list[set[int]] | None:
        """The entities that each hop of a chain reaches, or None once a hop reaches more than ``most``."""
        layers = [{start}]
        for relation in chain:
            reached: set[int] = set()
            for entity in layers[-1]:
                reached.update(self.follow(entity, relation))
            if len(reached) > most:
                return None
            layers.append(reached)
        return layers


def split_graphs(data: TripleData, graph: TrainGraph, config: DatasetConfig) -> Mapping[str, TrainGraph]:
    """The graph that the examples of each split are taken from.

    It is that of the training triples for all of them. Where splits share no entity, each has its own triples to reason
    with, as in the inductive benchmarks (GraIL; Teru et al. 2020); valid and calibration have one graph. A query's own
    triple is left out of its example in both cases.
    """
    if config.triple_split != "entity":
        return dict.fromkeys(data.triples, graph)

    def own(*splits: str) -> TrainGraph:
        triples = np.concatenate([data.triples[name] for name in splits])
        members = np.unique(triples[:, [0, 2]]).tolist()
        return TrainGraph(triples, data.num_entities, data.num_relations, members)

    held_out = own("valid", "calibration")
    return {"train": own("train"), "valid": held_out, "calibration": held_out, "test": own("test")}


class Neighbourhood:
    """A set of entities that grows to a graph: first what it must hold, then a sample of what is near.

    Args:
        graph: the training graph.
        without: facts that must not be in it.
    """

    def __init__(self, graph: TrainGraph, without: frozenset[Fact] = frozenset()) -> None:
        self._graph = graph
        self._without = without
        relations = graph.num_relations
        self._blocked = {pair for h, r, t in without for pair in ((h, r), (t, r + relations))}
        self.entities: list[int] = []
        self._members: set[int] = set()
        self._facts: dict[Fact, None] = {}

    def __len__(self) -> int:
        return len(self.entities)

    def __contains__(self, entity: int) -> bool:
        return entity in self._members

    def add(self, entity: int) -> None:
        """Hold an entity."""
        if entity not in self._members:
            self._members.add(entity)
            self.entities.append(entity)

    def cross(self, start: int, relation: int, end: int) -> None:
        """Hold the fact behind a signed relation, and both its entities."""
        self.add(start)
        self.add(end)
        if relation < self._graph.num_relations:
            self._facts[start, relation, end] = None
        else:
            self._facts[end, relation - self._graph.num_relations, start] = None

    def is_blocked(self, start: int, relation: int) -> bool:
        """Whether some fact of a signed relation at an entity must stay out."""
        return (start, relation) in self._blocked

    def may_cross(self, start: int, relation: int, end: int) -> bool:
        """Whether the fact behind a signed relation may be in the graph."""
        if not self._without:
            return True
        if relation < self._graph.num_relations:
            return (start, relation, end) not in self._without
        return (end, relation - self._graph.num_relations, start) not in self._without

    def grow(self, size: int, centre: int, draws: Draws) -> None:
        """Sample entities until there are ``size``: half of the steps start at ``centre``, half anywhere.

        Where the neighbourhood is exhausted, entities from elsewhere follow; a source too small gives less.
        """
        graph, entities, held, next_word = self._graph, self.entities, self._members, draws.word
        members = graph.members
        size = min(size, len(members))
        for _ in range(6 * size):
            if len(entities) >= size:
                return
            word = next_word()
            start = centre if word & 1 else entities[(word >> 32) * len(entities) >> 32]
            crossings = graph.crossings[start]
            if not crossings:
                continue
            other, fact = crossings[next_word() * len(crossings) >> 64]
            if other not in held and fact not in self._without:
                held.add(other)
                entities.append(other)
                self._facts[fact] = None
        while len(self) < size:
            place = draws.below(len(members))
            while members[place] in self._members:
                place = (place + 1) % len(members)
            self.add(members[place])

    def take_all(self) -> list[Fact]:
        """Hold every entity of the graph; every fact of it but those that must not be in it."""
        for entity in self._graph.members:
            self.add(entity)
        return [fact for fact in self._graph.facts if fact not in self._without]

    def sample_facts(self, centre: int, draws: Draws) -> list[Fact]:
        """The facts it must hold, a sample of those at ``centre``, and a sample of the others.

        From each entity the facts to a few others are looked at, so that a dense source costs no more than a sparse one.
        """
        near: list[Fact] = []
        far: list[Fact] = []
        entities, facts_from = self.entities, self._graph.facts_from
        for start in entities:
            facts = facts_from[start]
            ends = list(filter(facts.__contains__, entities))
            if start == centre:
                for end in ends:
                    near += facts[end]
                continue
            if centre in facts:
                near += facts[centre]
            if len(ends) > _LOOKED_AT:
                word, places = draws.word(), len(ends)
                # Written out: this is the inner loop of a dataset from triples. A dict keeps the order, each once.
                looked_at = {
                    ends[(word & 0xFFFF) * places >> 16]: None,
                    ends[(word >> 16 & 0xFFFF) * places >> 16]: None,
                    ends[(word >> 32 & 0xFFFF) * places >> 16]: None,
                    ends[(word >> 48) * places >> 16]: None,
                }
            else:
                looked_at = dict.fromkeys(ends)
            for end in looked_at:
                if end != centre:
                    far += facts[end]
        size = len(self)
        room = max(EDGES_PER_NODE * size - len(self._facts), size // 2)
        first = self._draw(near, min(size, room), draws)
        return [*self._facts, *first, *self._draw(far, room - len(first), draws)]

    def _draw(self, pool: list[Fact], count: int, draws: Draws) -> list[Fact]:
        """Draw facts from a pool that it neither holds already nor must not hold."""
        found: list[Fact] = []
        held, without, next_word = self._facts, self._without, draws.word
        for left in range(len(pool), 0, -1):
            if len(found) >= count:
                break
            place = next_word() * left >> 64
            fact = pool[place]
            pool[place] = pool[left - 1]
            if fact not in held and fact not in without:
                found.append(fact)
        return found
