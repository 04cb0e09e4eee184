"""Examples that people bring as files, divided into splits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hopline.config import DatasetConfig
from hopline.datasets.import_report import ImportReport, UnknownRelation
from hopline.datasets.index import SourceFiles
from hopline.datasets.jsonl import ImportedExample, parse_example, read_lines, relations_of
from hopline.datasets.rulebook import RuleBook, invert_chain
from hopline.datasets.source import example_paths, naming_source
from hopline.datasets.splits import SPLITS, NameSplits, is_calibration
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import ConfigError, DataError
from hopline.graph import ReasoningExample

__all__ = ["ImportedExamples"]


@dataclass(frozen=True, slots=True, eq=False)
class ImportedExamples:
    """The examples of a source by split, their vocabulary, and what was left out."""

    splits: Mapping[str, tuple[ReasoningExample, ...]]
    vocabulary: Vocabulary
    report: ImportReport

    @classmethod
    def read(cls, source: SourceFiles, config: DatasetConfig) -> ImportedExamples:
        """Read the labelled examples of a file, or of all files of a folder.

        A line that names its split is in it; of the others ``config.query_split`` decides. The vocabulary is that of
        training: lines of valid, calibration and test with a relation that no training line has are left out and reported.

        Raises:
            DataError: a line is no labelled example, or train, valid or test gets none; the message names file and line.
            ConfigError: the section asks for what examples do not have.
        """
        if config.entities == "identity":
            raise ConfigError(
                f"dataset.entities is identity, but {source.uri} holds examples, each with names of its own; set it to "
                "anonymous"
            )
        with naming_source(source):
            lines, relations = _read(source, config)
            rule = _LineSplits(config, relations)
            placed: dict[str, list[_Line]] = {name: [] for name in SPLITS}
            own_calibration = any(line.item.split == "calibration" for line in lines)
            for line in lines:
                split = line.item.split or rule.split(line)
                if split == "valid" and not own_calibration and rule.is_calibration(line):
                    split = "calibration"
                placed[split].append(line)
            width = len(relations)
            used = frozenset(r for line in placed["train"] for r in _relation_ids(line.item.example, width))
            if placed["train"] and not used:
                raise DataError(
                    f"{source.folder}: no edge in any training example; expected 'edges': [[head, relation, tail], ...]"
                )
            unknown = _leave_out(placed, used, relations)
            for name in ("train", "valid", "test"):
                if not placed[name]:
                    why = " whose relations training has" if any(item.split == name for item in unknown) else ""
                    raise DataError(f'{source.folder}: no example for {name}{why}; give some lines "split": "{name}"')
        kept = sorted(used)
        return cls(
            splits={
                name: tuple(_numbered(line.item.example, place, kept, width) for place, line in enumerate(found))
                for name, found in placed.items()
            },
            vocabulary=Vocabulary(relations=tuple(relations[relation] for relation in kept)),
            report=ImportReport(items=dict(Counter(line.file for line in lines)), unknown_relations=unknown),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """An example, the file it is in, and its problem as text: what it asks of which graph."""

    item: ImportedExample
    file: str
    problem: str


def _read(source: SourceFiles, config: DatasetConfig) -> tuple[list[_Line], tuple[str, ...]]:
    """All lines, and the relations of all of them."""
    assert source.folder is not None
    digests = {file.path: file.sha256 for file in source.files}
    documents = [
        (path, number, document)
        for path in example_paths(source.folder)
        for number, document in read_lines(path, sha256=digests.get(path.name))
    ]
    if not documents:
        raise DataError(f"{source.folder}: no examples; expected one JSON object a line")
    vocabulary = Vocabulary(relations=relations_of(document for _, _, document in documents))
    rules = RuleBook.of(vocabulary)
    lines = []
    for path, number, document in documents:
        item = parse_example(
            document, vocabulary, rules=rules, max_paths=config.max_paths, source=str(path), line=number
        )
        if not item.labelled:
            raise DataError(f"{path}:{number}: neither answers nor status; only labelled examples can be trained on")
        lines.append(_Line(item, path.name, _problem(document)))
    return lines, vocabulary.relations


def _problem(document: Mapping[str, Any]) -> str:
    asked = [document["nodes"], document["edges"], document["query"]]
    return json.dumps(asked, ensure_ascii=False, sort_keys=True)


class _LineSplits:
    """Where lines that name no split go."""

    def __init__(self, config: DatasetConfig, relations: Sequence[str]) -> None:
        self._config = config
        self._vocabulary = Vocabulary(relations=tuple(relations))
        self._problems = NameSplits(config, "line")
        self._signatures = NameSplits(config, "signature")

    def split(self, line: _Line) -> str:
        """By the hash of what the line asks, by that of its chains, or by its hops."""
        if self._config.query_split == "length":
            example = line.item.example
            if max([example.hops, *map(len, example.query.chains)]) > self._config.max_hops:
                return "test"
            # What the hash would give to test is as short as what training has, and stays there.
            return "valid" if self._problems.split(line.problem) == "valid" else "train"
        if self._config.query_split == "signature" and (chains := self._signature(line.item.example)):
            return self._signatures.split(*chains)
        return self._problems.split(line.problem)

    def is_calibration(self, line: _Line) -> bool:
        """Whether a line of valid is carved out for calibration."""
        number = self._problems.number(line.problem) >> 1
        return is_calibration(self._config.salt, self._config.calibration_share, number)

    def _signature(self, example: ReasoningExample) -> list[str]:
        """Its chains of two hops or more as text; of a relation query the shortest walk between its anchors."""
        chains = list(example.query.chains)
        if not chains:
            walks = example.supporting_paths or example.competing_paths
            types, width = example.graph.edge_type_ids.tolist(), self._vocabulary.num_relations
            chains = [tuple(types[step >> 1] + width * (step & 1) for step in min(walks, key=len))] if walks else []
        return sorted(self._as_text(chain) for chain in chains if len(chain) > 1)

    def _as_text(self, chain: tuple[int, ...]) -> str:
        """A chain by name, the same as that of the chain that leads back."""
        both = (chain, invert_chain(chain, self._vocabulary.num_relations))
        return min("\0".join(map(self._vocabulary.relation_name, one)) for one in both)


def _relation_ids(example: ReasoningExample, width: int) -> Iterator[int]:
    """The relations in ``[0, R)`` that an example is made of."""
    yield from np.unique(example.graph.edge_type_ids).tolist()
    yield from (relation % width for chain in example.query.chains for relation in chain)
    if example.answer_relation is not None:
        yield example.answer_relation
    if example.pair is not None:
        yield from _relation_ids(example.pair, width)


def _leave_out(
    placed: dict[str, list[_Line]], used: frozenset[int], relations: Sequence[str]
) -> tuple[UnknownRelation, ...]:
    """Take out the lines with a relation that training does not use, and say which relations those are."""
    found: dict[tuple[str, int], tuple[int, str]] = {}
    for name in SPLITS[1:]:
        kept = []
        for line in placed[name]:
            strange = sorted(set(_relation_ids(line.item.example, len(relations))) - used)
            for relation in strange[:1]:  # a line is counted once
                count, first = found.get((name, relation), (0, f"{line.file}:{line.item.line}"))
                found[name, relation] = count + 1, first
            if not strange:
                kept.append(line)
        placed[name] = kept
    return tuple(
        UnknownRelation(relation=relations[relation], split=name, count=count, first=first)
        for (name, relation), (count, first) in found.items()
    )


def _numbered(example: ReasoningExample, place: int, kept: Sequence[int], width: int) -> ReasoningExample:
    """The example with its place as id, and with relation ids among those that are kept."""
    changed = replace(example, example_id=place)
    if len(kept) < width:
        moved = np.full(width, -1, dtype=np.int64)
        moved[list(kept)] = np.arange(len(kept))
        changed = replace(
            changed,
            graph=replace(example.graph, edge_type_ids=moved[example.graph.edge_type_ids]),
            query=replace(
                example.query,
                chains=tuple(
                    tuple(int(moved[r % width]) + len(kept) * (r >= width) for r in chain)
                    for chain in example.query.chains
                ),
            ),
            answer_relation=None if example.answer_relation is None else int(moved[example.answer_relation]),
        )
    pair = example.pair
    return replace(changed, pair=None if pair is None else _numbered(pair, place, kept, width))
