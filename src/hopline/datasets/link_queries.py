"""Link queries from triples: one relation to predict, the fact itself taken out of the graph.

The graph and the candidate paths of a query are a function of the query without its answer, the training triples, and the
seed. Where entities are anonymous the answer has to be a node, so samples are drawn until one holds it. A whole graph holds
every entity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopline.config import DatasetConfig
from hopline.datasets.adjacency import Adjacency
from hopline.datasets.draws import Draws, philox_key
from hopline.datasets.evidence import sorted_graph
from hopline.datasets.paths import candidate_walks
from hopline.datasets.rule_reach import RuleReach
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.splits import SPLITS
from hopline.datasets.train_graph import Neighbourhood, TrainGraph, split_graphs
from hopline.datasets.triples import TripleData
from hopline.graph import AnswerMode, Query, QueryKind, ReasoningExample, Status

__all__ = ["LinkQueries"]

Fact = tuple[int, int, int]

_ATTEMPTS: Final = 16
"""Samples that are drawn for an answer that has to be a node."""


class LinkQueries:
    """Every triple as two queries: unit ``2i`` asks for the tail of triple ``i``, unit ``2i + 1`` for its head."""

    def __init__(self, data: TripleData, graph: TrainGraph, rules: RuleBook, config: DatasetConfig) -> None:
        self._data = data
        self._graphs = split_graphs(data, graph, config)
        self._reach = {graph: RuleReach(graph, rules) for graph in self._graphs.values()}
        self._own_graphs = config.triple_split == "entity"
        self._rules = rules
        self._config = config
        self._identity = config.entities == "identity"
        self._key = philox_key(config.seed, "link-queries")
        self._known = {name: self._targets(_seen_by(name, config.ranking_filter)) for name in SPLITS}

    def units(self, split: str) -> int:
        """How many link queries a split has."""
        return 2 * len(self._data.triples[split])

    def unit(self, split: str, index: int) -> ReasoningExample:
        """One link query."""
        head, relation, tail = (int(value) for value in self._data.triples[split][index // 2])
        in_graph = split == "train" or self._own_graphs
        own = frozenset({(head, relation, tail)}) if in_graph else frozenset[tuple[int, int, int]]()
        if index % 2:
            anchor, signed, target = tail, relation + self._data.num_relations, head
        else:
            anchor, signed, target = head, relation, tail
        graph = self._graphs[split]
        whole = self._config.graph == "full"
        for attempt in range(1 if self._identity or whole else _ATTEMPTS):
            draws = Draws(self._key, SPLITS.index(split), index, attempt)
            near = Neighbourhood(graph, own)
            near.add(anchor)
            if whole:
                break
            self._sample(near, graph, anchor, signed, draws)
            if target in near:
                break
        if not self._identity:
            near.add(target)
        facts = near.take_all() if whole else near.sample_facts(anchor, draws)
        return self._example(index, split, (anchor, signed, target), near.entities, facts, draws)

    def _example(
        self,
        index: int,
        split: str,
        query: tuple[int, int, int],
        entities: list[int],
        facts: Sequence[Fact],
        draws: Draws,
    ) -> ReasoningExample:
        anchor, signed, target = query
        draws.shuffle(entities)
        node = {entity: place for place, entity in enumerate(entities)}
        graph = sorted_graph(
            entities if self._identity else [-1] * len(entities),
            [(node[head], relation, node[tail]) for head, relation, tail in facts],
        )
        asked = Query(anchors=(node[anchor],), chains=((signed,),), answer_mode=AnswerMode.ENTITIES)
        walks = candidate_walks(Adjacency(graph, self._data.num_relations), asked, self._rules, self._config.max_paths)
        goal = node.get(target, -1)
        supports = [walk.end == goal and self._rules.leads_to(signed, walk.relations) for walk in walks]
        supporting = tuple(walk.steps for walk, support in zip(walks, supports, strict=True) if support)
        known: tuple[int, ...] = ()
        if self._identity:
            known = tuple(sorted(self._known[split].get((anchor, signed), frozenset()) - {target}))
        return ReasoningExample(
            example_id=index,
            graph=graph,
            query=asked,
            kind=QueryKind.LINK,
            status=Status.SUPPORTED,
            answers=(goal,) if goal >= 0 else (),
            answer_entities=(target,) if self._identity else (),
            known_entities=known,
            supporting_paths=supporting,
            competing_paths=tuple(walk.steps for walk, support in zip(walks, supports, strict=True) if not support),
            hops=min(map(len, supporting), default=0),
        )

    def _sample(self, near: Neighbourhood, graph: TrainGraph, anchor: int, signed: int, draws: Draws) -> None:
        """Beside the anchor: what rules lead to, best first, up to two thirds of the nodes, and a sample of what is near."""
        size = draws.between(self._config.min_nodes, self._config.max_nodes)
        turn = draws.word()
        scores, ways = self._reach[graph].reach(near, anchor, signed, turn)
        odd = turn | 1
        ranked = sorted([(-score, end * odd & 0xFFFFFFFFFFFF, end) for end, score in scores.items()])
        for _, _, end in ranked:
            if len(near) >= 2 * size // 3:
                break
            _, chain, middle = ways[end]
            if middle < 0:
                near.cross(anchor, chain[0], end)
            else:
                near.cross(anchor, chain[0], middle)
                near.cross(middle, chain[1], end)
        near.grow(size, anchor, draws)

    def _targets(self, splits: tuple[str, ...]) -> dict[tuple[int, int], frozenset[int]]:
        found: dict[tuple[int, int], set[int]] = {}
        arrays: list[NDArray[np.int64]] = [self._data.triples[name] for name in splits]
        for head, relation, tail in np.concatenate(arrays).tolist():
            found.setdefault((head, relation), set()).add(tail)
            found.setdefault((tail, relation + self._data.num_relations), set()).add(head)
        return {query: frozenset(targets) for query, targets in found.items()}


def _seen_by(split: str, ranking_filter: str) -> tuple[str, ...]:
    """The splits whose triples filtered ranking leaves out as true; training knows its own alone."""
    if split == "train":
        return ("train",)
    return SPLITS if split == "test" or ranking_filter == "all" else ("train", "valid", "calibration")
