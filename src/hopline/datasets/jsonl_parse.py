"""From the JSON object of one example to a checked :class:`~hopline.graph.ReasoningExample`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from hopline.datasets.adjacency import Adjacency
from hopline.datasets.jsonl_paths import path_from_json
from hopline.datasets.paths import candidate_walks
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.validation import check_structure
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import DataError
from hopline.graph import AnswerMode, ExampleGraph, Path, Query, QueryKind, ReasoningExample, Status

__all__ = ["INVERSE_MARKS", "ExampleParser"]

INVERSE_MARKS: Final = ("⁻¹", "^-1")
"""A relation name that ends so is read backwards."""
_ANCHORS: Final = {AnswerMode.BOOLEAN: 2, AnswerMode.RELATION: 2, AnswerMode.ENTITIES: 1, AnswerMode.COUNT: 1}
_KEYS: Final = frozenset(
    (
        *("nodes", "edges", "query", "answers", "status", "supporting_paths", "competing_paths", "pair", "split"),
        *("kind", "id", "hops", "known_answers"),
    )
)


@dataclass(frozen=True, slots=True)
class _Frame:
    """What an example and its twin share."""

    names: tuple[str, ...]
    index: Mapping[str, int]
    entities: Sequence[int]
    query: Query
    kind: QueryKind | None
    example_id: int


class ExampleParser:
    """Parses one line; every error begins with ``where``."""

    def __init__(self, where: str, vocabulary: Vocabulary, rules: RuleBook, max_paths: int) -> None:
        self._where = where
        self._vocabulary = vocabulary
        self._rules = rules
        self._max_paths = max_paths
        self._relations = {name: index for index, name in enumerate(vocabulary.relations)}
        self._entities = {name: index for index, name in enumerate(vocabulary.entities or ())}

    def example(self, record: Mapping[str, Any], *, default_id: int) -> tuple[ReasoningExample, tuple[str, ...], bool]:
        """The example, the names of its nodes, and whether the line says what the answer is."""
        names = self._names(record.get("nodes"))
        index = {name: node for node, name in enumerate(names)}
        identity = self._vocabulary.identity
        frame = _Frame(
            names=names,
            index=index,
            entities=[self._entities.get(name, -1) if identity else -1 for name in names],
            query=self._query(record.get("query"), index),
            kind=self._choice(QueryKind, record["kind"], "kind") if "kind" in record else None,
            example_id=self._integer(record.get("id", default_id), "id"),
        )
        labelled = "answers" in record or "status" in record
        example = self._labelled(record, frame)
        if self._vocabulary.identity and "known_answers" in record:
            known = [self._entity(name) for name in self._strings(record["known_answers"], "known_answers")]
            example = replace(example, known_entities=tuple(known))
        if record.get("pair") is not None:
            pair = self.mapping(record["pair"], "pair")
            twin = self._labelled({"edges": record.get("edges"), "status": "supported", **pair}, frame)
            example = replace(example, pair=replace(twin, known_entities=example.known_entities, kind=example.kind))
        try:
            check_structure(example, self._vocabulary.num_relations)
        except DataError as error:
            raise self._error(str(error)) from None
        return example, names, labelled

    def mapping(self, value: Any, what: str) -> Mapping[str, Any]:
        """The value as an object with known keys."""
        if not isinstance(value, dict):
            raise self._error(f"{what} is {_found(value)}, expected an object")
        for key in value:
            if key not in _KEYS:
                near = difflib.get_close_matches(key, sorted(_KEYS), n=1, cutoff=0.0)[0]
                raise self._error(f"unknown key '{key}' in {what}; did you mean '{near}'?")
        return value

    def _labelled(self, record: Mapping[str, Any], frame: _Frame) -> ReasoningExample:
        """The example without its twin."""
        graph, moved = self._graph(record.get("edges"), frame)
        query = frame.query
        relation: int | None = None
        nodes: list[int] = []
        entities: list[int] = []
        answers = self._strings(record.get("answers", []), "answers")
        if query.answer_mode is AnswerMode.RELATION:
            if len(answers) > 1:
                raise self._error(f"answers holds {len(answers)} relations, expected one")
            relation = self._relation(answers[0]) if answers else None
            if relation is not None and relation >= self._vocabulary.num_relations:
                raise self._error(f"the answer is {answers[0]!r}, expected a relation that is not inverted")
        else:
            nodes, entities = self._answers(answers, frame)
        answered = bool(answers) or "answers" not in record
        default = Status.SUPPORTED if answered else Status.MISSING
        status = self._choice(Status, record["status"], "status") if "status" in record else default
        kind = frame.kind or _kind(query)
        example = ReasoningExample(
            example_id=frame.example_id,
            graph=graph,
            query=query,
            kind=kind,
            status=status,
            answers=tuple(nodes),
            answer_entities=tuple(entities),
            answer_relation=relation,
        )
        if "supporting_paths" in record or "competing_paths" in record:
            supporting = self._paths(record.get("supporting_paths", []), "supporting_paths", example, moved)
            competing = self._paths(record.get("competing_paths", []), "competing_paths", example, moved)
        else:
            supporting, competing = self._candidates(example)
        if kind in (QueryKind.LINK, QueryKind.RELATION):
            hops = min(map(len, supporting), default=0)
        else:
            hops = max(map(len, query.chains), default=0)
        hops = self._integer(record.get("hops", hops), "hops")
        return replace(example, supporting_paths=supporting, competing_paths=competing, hops=hops)

    def _names(self, value: Any) -> tuple[str, ...]:
        names = self._strings(value, "nodes")
        if not names:
            raise self._error("nodes is empty, expected the names of the nodes")
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self._error(f"node '{twice}' is named twice in nodes")
        return tuple(names)

    def _query(self, value: Any, index: Mapping[str, int]) -> Query:
        if not isinstance(value, dict) or not {"anchors", "answer_mode"} <= value.keys():
            raise self._error(f"query is {_found(value)}, expected an object with anchors, relations and answer_mode")
        mode = self._choice(AnswerMode, value["answer_mode"], "query.answer_mode")
        anchors = tuple(self._node(name, index) for name in self._strings(value["anchors"], "query.anchors"))
        relations = value.get("relations", [])
        chains: list[tuple[int, ...]] = []
        if isinstance(relations, list) and relations and isinstance(relations[0], list):
            chains = [self._chain(chain) for chain in relations]
        elif relations:
            chains = [self._chain(relations)]
        wanted_anchors = _ANCHORS.get(mode, len(chains))
        wanted_chains = {AnswerMode.RELATION: 0, AnswerMode.AGGREGATE: max(2, len(chains))}.get(mode, 1)
        if len(anchors) != wanted_anchors or len(chains) != wanted_chains:
            raise self._error(
                f"a query for {mode.value} takes {wanted_anchors} anchors and {wanted_chains} chains of relations, "
                f"found {len(anchors)} and {len(chains)}"
            )
        return Query(anchors, tuple(chains), mode)

    def _chain(self, value: Any) -> tuple[int, ...]:
        chain = tuple(self._relation(name) for name in self._strings(value, "query.relations"))
        if not chain:
            raise self._error("query.relations holds an empty chain")
        return chain

    def _graph(self, value: Any, frame: _Frame) -> tuple[ExampleGraph, list[int]]:
        """The graph, and where each edge of the line is in it."""
        if not isinstance(value, list):
            raise self._error(f"edges is {_found(value)}, expected [[head, relation, tail], ...]")
        facts: list[tuple[int, int, int]] = []
        for number, edge in enumerate(value):
            if not isinstance(edge, list) or len(edge) != 3:
                raise self._error(f"edge {number} is {_found(edge)}, expected [head, relation, tail]")
            head, relation, tail = edge
            id_ = self._relation(relation)
            if id_ >= self._vocabulary.num_relations:
                raise self._error(f"edge {number}: relation {relation!r} is inverted; swap head and tail instead")
            facts.append((self._node(head, frame.index), id_, self._node(tail, frame.index)))
        edges = np.array(facts, dtype=np.int64).reshape(-1, 3)
        order = np.argsort(edges[:, 2], kind="stable")
        moved = np.empty(len(order), dtype=np.int64)
        moved[order] = np.arange(len(order))
        edges = edges[order]
        graph = ExampleGraph(
            np.array(frame.entities, dtype=np.int64), np.ascontiguousarray(edges[:, [0, 2]].T), edges[:, 1].copy()
        )
        return graph, moved.tolist()

    def _answers(self, names: Sequence[str], frame: _Frame) -> tuple[list[int], list[int]]:
        nodes: list[int] = []
        entities: list[int] = []
        for name in names:
            node = frame.index.get(name)
            if node is not None:
                nodes.append(node)
            elif not self._vocabulary.identity:
                raise self._error(f"answer '{name}' is not among the nodes")
            if self._vocabulary.identity:
                entities.append(self._entity(name))
        return nodes, entities

    def _paths(self, value: Any, what: str, example: ReasoningExample, moved: Sequence[int]) -> tuple[Path, ...]:
        if not isinstance(value, list):
            raise self._error(f"{what} is {_found(value)}, expected a list of paths")
        heads, tails = example.graph.edge_index.tolist()
        sorted_edges = list(zip(heads, example.graph.edge_type_ids.tolist(), tails, strict=True))
        edges = [sorted_edges[place] for place in moved]
        found: list[Path] = []
        for number, items in enumerate(value):
            try:
                path = path_from_json(items, edges, example.query.anchors)
            except ValueError as error:
                raise self._error(f"{what}[{number}]: {error}") from None
            found.append(tuple(2 * moved[step >> 1] + (step & 1) for step in path))
        return tuple(found)

    def _candidates(self, example: ReasoningExample) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Candidate paths; those that follow the query, or between two anchors, to an answer are its support."""
        adjacency = Adjacency(example.graph, self._vocabulary.num_relations)
        query = example.query
        supporting: list[Path] = []
        competing: list[Path] = []
        for walk in candidate_walks(adjacency, query, self._rules, self._max_paths):
            if query.answer_mode is AnswerMode.RELATION:
                supports = example.answer_relation is not None
            else:
                follows = (walk.start, walk.relations) in zip(query.anchors, query.chains, strict=False)
                supports = walk.end in example.answers and (follows or example.kind is QueryKind.LINK)
            supports = supports and example.status is Status.SUPPORTED
            (supporting if supports else competing).append(walk.steps)
        return tuple(supporting), tuple(competing)

    def _node(self, name: Any, index: Mapping[str, int]) -> int:
        if not isinstance(name, str) or name not in index:
            raise self._error(f"node {_found(name)} is not among the nodes")
        return index[name]

    def _entity(self, name: str) -> int:
        if name not in self._entities:
            raise self._error(f"entity '{name}' is not in the vocabulary of {len(self._entities)} entities")
        return self._entities[name]

    def _relation(self, name: Any) -> int:
        if isinstance(name, str):
            if name in self._relations:
                return self._relations[name]
            for mark in INVERSE_MARKS:
                forward = name.removesuffix(mark)
                if name.endswith(mark) and forward in self._relations:
                    return self._relations[forward] + self._vocabulary.num_relations
        near = difflib.get_close_matches(str(name), list(self._relations), n=1, cutoff=0.0)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise self._error(f"relation {_found(name)} is not one of the {len(self._relations)} known relations{hint}")

    def _strings(self, value: Any, what: str) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._error(f"{what} is {_found(value)}, expected a list of names")
        return value

    def _integer(self, value: Any, what: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
            raise self._error(f"{what} is {_found(value)}, expected an integer of 0 or more")
        return value

    def _choice(self, kind: Any, value: Any, what: str) -> Any:
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(item.value for item in kind)
            raise self._error(f"{what} is {_found(value)}, expected one of {known}") from None

    def _error(self, text: str) -> DataError:
        return DataError(f"{self._where}: {text}")


def _kind(query: Query) -> QueryKind:
    """The kind of a query that does not say: an entity query of one hop asks for a link to predict."""
    if query.answer_mode is not AnswerMode.ENTITIES:
        return QueryKind(query.answer_mode.value)
    if len(query.chains[0]) > 1:
        return QueryKind.MULTI_HOP
    return QueryKind.LINK


def _found(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
