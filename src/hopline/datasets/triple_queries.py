"""Reasoning queries of every kind but link, drawn from the training graph of a triples source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hopline.config import DatasetConfig
from hopline.datasets.draws import Draws, philox_key
from hopline.datasets.evidence import Assembler, sorted_graph
from hopline.datasets.rulebook import invert_chain
from hopline.datasets.splits import SPLITS, QuerySplits
from hopline.datasets.train_graph import Neighbourhood, TrainGraph, split_graphs
from hopline.datasets.triples import TripleData
from hopline.datasets.wishes import Wish, WishList
from hopline.errors import DataError
from hopline.graph import Query, QueryKind, ReasoningExample, Status

__all__ = ["TripleQueries"]

_ATTEMPTS: Final = 2_000
_CHAIN, _PAIR, _MEETING = range(3)
"""Families of canonical queries: a chain asks the same whether it is answered as a set, a count or a boolean."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """Branches ``(anchor, chain)`` over the entities of a graph, the other anchor of a boolean or relation query, and the
    canonical key."""

    graph: TrainGraph
    branches: tuple[tuple[int, tuple[int, ...]], ...]
    other: int | None
    key: int


class TripleQueries:
    """Draws queries from the training graph; a query belongs to the split that its canonical form is hashed to."""

    def __init__(self, data: TripleData, graph: TrainGraph, assembler: Assembler, config: DatasetConfig) -> None:
        self._data = data
        self._graphs = split_graphs(data, graph, config)
        self._assembler = assembler
        self._config = config
        self._key = philox_key(config.seed, "triple-queries")
        self._splits = QuerySplits(config, data.num_relations)
        self._wishes = WishList(config)
        self._true = {(h, r, t) for triples in data.triples.values() for h, r, t in triples.tolist()}

    def unit(self, split: str, index: int, example_id: int) -> tuple[ReasoningExample, int]:
        """One generated example and its canonical key.

        Raises:
            DataError: the source is too small for another query of this split.
        """
        stream = SPLITS.index(split)
        wish = self._wishes.wish(Draws(self._key, stream, index), split)
        for attempt in range(1, _ATTEMPTS):
            draws = Draws(self._key, stream, index, attempt)
            now = wish.relaxed(attempt, self._wishes)
            problem = self._problem(now, split, draws)
            if problem is None:
                continue
            example = self._make(example_id, now, problem, draws)
            if example is not None:
                return example, problem.key
        raise DataError(
            f"{self._config.source}: after {_ATTEMPTS} attempts no query for {split} fits the training triples; "
            "lower dataset.min_hops, raise dataset.max_answers, or give more triples"
        )

    def _problem(self, wish: Wish, split: str, draws: Draws) -> _Problem | None:
        """A query of the split, without looking at its answers; several are tried until the hash fits."""
        graph = self._graphs[split]
        for _ in range(24):
            if wish.kind is QueryKind.RELATION:
                head, _, tail = draws.choice(graph.facts)
                problem = _Problem(graph, ((head, ()),), tail, self._splits.key(_PAIR, head, tail))
            else:
                problem = self._chain_problem(wish, graph, draws)
            if self._splits.holds(split, problem.key, [chain for _, chain in problem.branches if chain]):
                return problem
        return None

    def _chain_problem(self, wish: Wish, graph: TrainGraph, draws: Draws) -> _Problem:
        head, _, tail = draws.choice(graph.facts)
        anchor = head if draws.word() & 1 else tail
        chain, end = self._random_walk(graph, anchor, wish.hops, draws)
        first = (anchor, chain)
        if wish.kind is not QueryKind.AGGREGATE:
            key = self._splits.key(_CHAIN, anchor, *chain)
            return _Problem(graph, (first,), end if wish.kind is QueryKind.BOOLEAN else None, key)
        # The second chain is walked backwards from an answer of the first, so that they meet.
        back, other = self._random_walk(graph, end, wish.second_hops, draws)
        second = (other, invert_chain(back, self._data.num_relations))
        branches = tuple(sorted((first, second)))
        numbers = [number for anchor, chain in branches for number in (anchor, len(chain), *chain)]
        return _Problem(graph, branches, None, self._splits.key(_MEETING, *numbers))

    def _random_walk(self, graph: TrainGraph, start: int, hops: int, draws: Draws) -> tuple[tuple[int, ...], int]:
        chain: list[int] = []
        node, back = start, -1
        relations = self._data.num_relations
        for _ in range(hops):
            incident = graph.incident[node]
            relation, other = incident[draws.word() * len(incident) >> 64]
            if relation == back:
                relation, other = incident[draws.word() * len(incident) >> 64]
            chain.append(relation)
            node, back = other, relation + relations if relation < relations else relation - relations
        return tuple(chain), node

    def _make(self, example_id: int, wish: Wish, problem: _Problem, draws: Draws) -> ReasoningExample | None:
        whole = self._config.graph == "full"
        size = draws.between(self._config.min_nodes, self._config.max_nodes)
        if whole:
            size = len(problem.graph.members)
        if wish.kind is QueryKind.RELATION:
            near = self._around_pair(problem, draws)
        else:
            near = self._around_chains(wish, problem, size)
        if near is None:
            return None
        anchor = problem.branches[0][0]
        if whole:
            facts = near.take_all()
        else:
            near.grow(size, anchor, draws)
            facts = near.sample_facts(anchor, draws)
        entities = near.entities
        draws.shuffle(entities)
        node = {entity: place for place, entity in enumerate(entities)}
        graph = sorted_graph(
            entities if self._config.entities == "identity" else [-1] * len(entities),
            [(node[head], relation, node[tail]) for head, relation, tail in facts],
        )
        anchors = [node[anchor] for anchor, _ in problem.branches]
        if problem.other is not None:
            anchors.append(node[problem.other])
        query = Query(
            anchors=tuple(anchors),
            chains=() if wish.kind is QueryKind.RELATION else tuple(chain for _, chain in problem.branches),
            answer_mode=wish.mode,
        )
        example = self._assembler.supported(example_id, graph, query, wish.kind)
        if example is None:
            return None
        if wish.kind is QueryKind.RELATION and not self._is_relation(problem, example):
            return None
        if wish.status is Status.MISSING:
            return self._assembler.missing(example, draws)
        if wish.status is Status.CONTRADICTED:
            return self._assembler.contradicted(
                example, draws, forbidden=lambda h, r, t: (entities[h], r, entities[t]) in self._true
            )
        return example

    def _is_relation(self, problem: _Problem, example: ReasoningExample) -> bool:
        assert problem.other is not None
        return example.answer_relation in problem.graph.between(problem.branches[0][0], problem.other)

    def _around_chains(self, wish: Wish, problem: _Problem, size: int) -> Neighbourhood | None:
        """Every walk along the chains to an answer, or None if they take too many nodes or answers."""
        near = Neighbourhood(problem.graph)
        reached: list[list[set[int]]] = []
        for anchor, chain in problem.branches:
            layers = problem.graph.layers(anchor, chain, size)
            if layers is None:
                return None
            reached.append(layers)
        answers = set.intersection(*(layers[-1] for layers in reached))
        if problem.other is not None:
            # A boolean keeps the other ends of its chain, so that they can be told from the one that it asks for.
            if problem.other == problem.branches[0][0]:
                return None
        elif not answers or len(answers) > self._config.max_answers:
            return None
        ends = reached[0][-1] if wish.kind is QueryKind.BOOLEAN else answers
        for (anchor, chain), layers in zip(problem.branches, reached, strict=True):
            near.add(anchor)
            _cross_walks(near, problem.graph, chain, layers, ends)
            if len(near) > size:
                return None
        return near

    def _around_pair(self, problem: _Problem, draws: Draws) -> Neighbourhood | None:
        """Two entities without the facts between them, and a few ways of two hops from one to the other."""
        graph, start, end = problem.graph, problem.branches[0][0], problem.other
        assert end is not None
        relations = self._data.num_relations
        between = graph.between(start, end)
        if start == end or sum(relation < relations for relation in between) != 1:
            return None
        facts = frozenset((start, r, end) if r < relations else (end, r - relations, start) for r in between)
        near = Neighbourhood(graph, facts)
        near.add(start)
        near.add(end)
        middles = sorted((graph.neighbours[start] & graph.neighbours[end]) - {start, end})
        if not middles:
            return None
        draws.shuffle(middles, 4)
        for middle in middles[:4]:
            near.cross(start, draws.choice(graph.between(start, middle)), middle)
            near.cross(middle, draws.choice(graph.between(middle, end)), end)
        return near


def _cross_walks(
    near: Neighbourhood, graph: TrainGraph, chain: Sequence[int], layers: list[set[int]], ends: set[int]
) -> None:
    """Hold every walk along a chain to one of the ends."""
    after = layers[-1] & ends
    for hop in range(len(chain) - 1, -1, -1):
        useful: set[int] = set()
        for entity in sorted(layers[hop]):
            for other in graph.follow(entity, chain[hop]):
                if other in after:
                    useful.add(entity)
                    near.cross(entity, chain[hop], other)
        after = useful
