"""``examples.jsonl``, the exchange format: what people import, and what ``hopline predict`` reads. One object a line.

``nodes``
    names; they must differ.
``edges``
    ``[[head, relation, tail], ...]``, by name.
``query``
    ``anchors`` (names), ``relations`` (one chain as a list of names; a list of chains for ``aggregate``; none for
    ``relation``), ``answer_mode``. ``"likes⁻¹"`` or ``"likes^-1"`` follows ``likes`` backwards.
``answers``
    optional: names; entities that are not among the nodes count as answers too where entities have identities. For a
    relation query, relation names. A true boolean has its second anchor as the answer, a false one ``[]``.
``status``, ``supporting_paths``, ``competing_paths``, ``pair``, ``split``
    optional. A path is a list of edge indices; ``"~3"`` crosses edge 3 backwards where that is not plain from the walk.
    ``pair`` is the supported twin: what it does not say is as in its example.
``kind``, ``id``, ``hops``, ``known_answers``
    optional, written by :func:`write_examples` so that nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from hopline.datasets.jsonl_parse import INVERSE_MARKS, ExampleParser
from hopline.datasets.jsonl_paths import path_to_json
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.splits import SPLITS
from hopline.datasets.textfile import numbered_lines
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import DataError
from hopline.graph import QueryKind, ReasoningExample
from hopline.storage import parse_json

__all__ = [
    "ExampleFile",
    "ImportedExample",
    "example_to_json",
    "parse_example",
    "read_examples",
    "read_lines",
    "relations_of",
    "write_examples",
]

_MAX_LINE = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class ImportedExample:
    """One line.

    Attributes:
        example: with candidate paths, also where the line gives none.
        node_names: name of each node.
        labelled: the line says what the answer is.
        split: the split it asks for, if any.
        line: its number.
    """

    example: ReasoningExample
    node_names: tuple[str, ...]
    labelled: bool
    split: str | None
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class ExampleFile:
    """All lines of a file, and what their ids mean."""

    examples: tuple[ImportedExample, ...]
    vocabulary: Vocabulary


def read_examples(path: FilePath, vocabulary: Vocabulary | None = None, *, max_paths: int = 16) -> ExampleFile:
    """Read a file of examples.

    Args:
        path: the file.
        vocabulary: what names mean; None: relations are those of the file, entities are anonymous.
        max_paths: most candidate paths, where a line gives none.

    Raises:
        DataError: the file cannot be read, or a line is no example; the message names file and line, what was found
            and what was expected.
    """
    documents = list(read_lines(path))
    if not documents:
        raise DataError(f"{path}: no examples; expected one JSON object a line")
    if vocabulary is None:
        relations = relations_of(document for _, document in documents if _may_train(document))
        if not relations:
            raise DataError(f"{path}: no edge in any training example; expected 'edges': [[head, relation, tail], ...]")
        vocabulary = Vocabulary(relations=relations)
    rules = RuleBook.of(vocabulary)
    found = tuple(
        parse_example(document, vocabulary, rules=rules, max_paths=max_paths, source=str(path), line=line)
        for line, document in documents
    )
    return ExampleFile(found, vocabulary)


def read_lines(path: FilePath, *, sha256: str | None = None) -> Iterator[tuple[int, Any]]:
    """The JSON value of each line that is not empty, with its number.

    Args:
        path: the file; one whose name ends in ``.gz`` is unpacked.
        sha256: as for :func:`~hopline.datasets.textfile.numbered_lines`.

    Raises:
        DataError: the file cannot be read, or a line is no JSON.
    """
    for number, line in numbered_lines(path, sha256=sha256):
        if line.strip():
            yield number, parse_json(line, source=f"{path}:{number}", max_bytes=_MAX_LINE)


def relations_of(documents: Iterable[Any]) -> tuple[str, ...]:
    """The relations that edges and relation answers of some lines have, sorted; what is no example is passed over."""
    found: set[str] = set()
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        pair = document.get("pair")
        query = document.get("query")
        asks_relation = isinstance(query, Mapping) and query.get("answer_mode") == "relation"
        for part in (document, pair if isinstance(pair, Mapping) else {}):
            edges, answers = part.get("edges"), part.get("answers")
            for edge in edges if isinstance(edges, list) else ():
                if isinstance(edge, list) and len(edge) == 3 and isinstance(edge[1], str):
                    found.add(edge[1])
            if asks_relation and isinstance(answers, list):
                found.update(answer for answer in answers if isinstance(answer, str))
    return tuple(sorted(name for name in found if not name.endswith(INVERSE_MARKS)))


def parse_example(
    document: Any,
    vocabulary: Vocabulary,
    *,
    rules: RuleBook | None = None,
    max_paths: int = 16,
    source: str = "examples",
    line: int = 1,
) -> ImportedExample:
    """One example from the JSON value of its line; see :func:`read_examples`."""
    where = f"{source}:{line}"
    parser = ExampleParser(where, vocabulary, rules or RuleBook.of(vocabulary), max_paths)
    record = parser.mapping(document, "example")
    split = record.get("split")
    if split is not None and split not in SPLITS:
        raise DataError(f"{where}: split is {split!r}, expected one of {', '.join(SPLITS)}")
    example, names, labelled = parser.example(record, default_id=line - 1)
    return ImportedExample(example, names, labelled, split, line)


def write_examples(
    path: FilePath,
    examples: Iterable[ReasoningExample],
    vocabulary: Vocabulary,
    *,
    splits: Iterable[str | None] | None = None,
) -> None:
    """Write examples so that :func:`read_examples` with the same vocabulary gives them back exactly."""
    wanted: Iterator[str | None] = iter(splits) if splits is not None else iter(lambda: None, 0)
    with path.open("w", encoding="utf-8") as file:
        for example, split in zip(examples, wanted, strict=False):
            record = example_to_json(example, vocabulary)
            if split is not None:
                record["split"] = split
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def example_to_json(example: ReasoningExample, vocabulary: Vocabulary) -> dict[str, Any]:
    """The object of one line."""
    names = node_names(example, vocabulary)
    chains = [[vocabulary.relation_name(relation) for relation in chain] for chain in example.query.chains]
    record: dict[str, Any] = {
        "id": example.example_id,
        "kind": example.kind.value,
        "nodes": list(names),
        "query": {
            "anchors": [names[anchor] for anchor in example.query.anchors],
            "relations": chains if len(chains) > 1 else chains[0] if chains else [],
            "answer_mode": example.query.answer_mode.value,
        },
        **_answer_to_json(example, vocabulary, names),
    }
    if example.known_entities:
        record["known_answers"] = [_entity_name(vocabulary, entity) for entity in example.known_entities]
    if example.pair is not None:
        record["pair"] = _answer_to_json(example.pair, vocabulary, names)
    return record


def node_names(example: ReasoningExample, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Names of the nodes: of their entities where those are known, else ``n0``, ``n1``, ..."""
    entities = example.graph.node_entities.tolist()
    return tuple(
        _entity_name(vocabulary, entity) if entity >= 0 else f"n{node}" for node, entity in enumerate(entities)
    )


def _answer_to_json(example: ReasoningExample, vocabulary: Vocabulary, names: Sequence[str]) -> dict[str, Any]:
    graph = example.graph
    heads, tails = graph.edge_index.tolist()
    edges = list(zip(heads, graph.edge_type_ids.tolist(), tails, strict=True))
    if example.kind is QueryKind.RELATION:
        answers = [] if example.answer_relation is None else [vocabulary.relation_name(example.answer_relation)]
    else:
        answers = [names[answer] for answer in example.answers]
        inside = {int(graph.node_entities[answer]) for answer in example.answers}
        answers += [_entity_name(vocabulary, e) for e in example.answer_entities if e not in inside]

    def paths(kept: Sequence[Sequence[int]]) -> list[list[int | str]]:
        return [path_to_json(path, edges, example.query.anchors) for path in kept]

    return {
        "edges": [[names[head], vocabulary.relations[relation], names[tail]] for head, relation, tail in edges],
        "answers": answers,
        "status": example.status.value,
        "supporting_paths": paths(example.supporting_paths),
        "competing_paths": paths(example.competing_paths),
        "hops": example.hops,
    }


def _entity_name(vocabulary: Vocabulary, entity: int) -> str:
    assert vocabulary.entities is not None
    return vocabulary.entities[entity]


def _may_train(document: Any) -> bool:
    return isinstance(document, Mapping) and document.get("split") in (None, "train")
