"""The triples of a source as ids, divided into splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hopline.config import DatasetConfig
from hopline.datasets.import_report import ImportReport, UnknownRelation
from hopline.datasets.index import SourceFiles
from hopline.datasets.source import naming_source
from hopline.datasets.splits import SPLITS, NameSplits, is_calibration
from hopline.datasets.triple_files import TRIPLE_FILES, TripleFile, read_triples, triple_paths
from hopline.errors import ConfigError, DataError

__all__ = ["TripleData", "load_triples"]

_FROM_VALID: Final = ("valid", "calibration")


class _Line(NamedTuple):
    """A triple by name, and where it was found."""

    head: str
    relation: str
    tail: str
    file: str
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class TripleData:
    """The triples of a source as ids.

    Attributes:
        relations: names, sorted; the id of a relation is its place.
        entities: names; those of the training triples first, sorted, then the others, sorted.
        triples: for each split, int64 ``[n, 3]`` of head, relation, tail, in the order of the file, each once.
        dropped: how many triples of a split were left out because an earlier split has them.
        unseen: how many entities are in no training triple.
        report: what else was left out.
    """

    relations: tuple[str, ...]
    entities: tuple[str, ...]
    triples: Mapping[str, NDArray[np.int64]]
    dropped: Mapping[str, int]
    unseen: int
    report: ImportReport = field(default_factory=ImportReport)

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @property
    def num_entities(self) -> int:
        return len(self.entities)


def load_triples(source: SourceFiles, config: DatasetConfig) -> TripleData:
    """Read the triples of a source, divide them by ``config.triple_split``, and carve calibration out of valid.

    Triples of valid and test whose relation training does not have are left out and reported: a model cannot know them.

    Raises:
        DataError: a file is missing, empty or not UTF-8, a line has not three fields, or a split is left without triples.
            The message names file and line.
        ConfigError: ``config.graph`` is full, and the source has more entities than ``config.max_nodes``.
    """
    with naming_source(source):
        return _load(source, config)


def _load(source: SourceFiles, config: DatasetConfig) -> TripleData:
    assert source.folder is not None
    given = config.triple_split == "given"
    paths = triple_paths(source.folder, given=given)
    digests = {file.path: file.sha256 for file in source.files}
    files = {
        name: read_triples(path, header=config.header, sha256=digests.get(path.name)) for name, path in paths.items()
    }
    for name, path in paths.items():
        if not files[name].triples and (given or not any(file.triples for file in files.values())):
            raise DataError(f"{path}: no triples; expected at least one line 'head<TAB>relation<TAB>tail'")
    by_split, crossing = _divide(files, config)
    where = {name: str(paths[name]) if given else str(source.folder) for name in TRIPLE_FILES}
    relations = sorted({line.relation for line in by_split["train"]})
    unknown = _unknown_relations(by_split, frozenset(relations))
    seen = {entity for line in by_split["train"] for entity in (line.head, line.tail)}
    every = {entity for lines in by_split.values() for line in lines for entity in (line.head, line.tail)}
    entities = sorted(seen) + sorted(every - seen)
    triples, dropped = _as_ids(by_split, relations, entities, config)
    for name in TRIPLE_FILES:
        if not len(triples[name]):
            why = _why_empty(name, triples, by_split, unknown, config)
            raise DataError(f"{where[name]}: no triples are left for {name} ({why}); give it other triples")
    if config.graph == "full" and len(entities) > config.max_nodes:
        raise ConfigError(
            f"dataset.graph is full, but {source.uri} has {len(entities)} entities and dataset.max_nodes is "
            f"{config.max_nodes}; raise it, or set graph to sampled"
        )
    return TripleData(
        relations=tuple(relations),
        entities=tuple(entities),
        triples=triples,
        dropped={name: count for name, count in dropped.items() if count},
        unseen=len(every) - len(seen),
        report=ImportReport(
            items={paths[name].name: len(file.triples) for name, file in files.items()},
            headers=tuple(paths[name].name for name, file in files.items() if file.header),
            unknown_relations=unknown,
            crossing_triples=crossing,
            shared_entities=_shared_entities(triples) if config.triple_split == "entity" else None,
        ),
    )


def _divide(files: Mapping[str, TripleFile], config: DatasetConfig) -> tuple[dict[str, list[_Line]], int]:
    """The lines of train, valid and test, and how many are between entities of different splits."""
    splits: dict[str, list[_Line]] = {name: [] for name in TRIPLE_FILES}
    rule = _rule(config)
    crossing = 0
    for name, file in files.items():
        for number, names in file.triples:
            split = name if rule is None else rule(*names)
            if split is None:
                crossing += 1
            else:
                splits[split].append(_Line(*names, file.path.name, number))
    return splits, crossing


def _rule(config: DatasetConfig) -> Callable[[str, str, str], str | None] | None:
    """The split of a triple by its names; None where the files say it."""
    if config.triple_split == "given":
        return None
    if config.triple_split == "triple":
        return NameSplits(config, "triple").of_triple
    entities = NameSplits(config, "entity")

    def by_entity(head: str, _: str, tail: str) -> str | None:
        split = entities.split(head)
        return split if entities.split(tail) == split else None

    return by_entity


def _unknown_relations(splits: dict[str, list[_Line]], known: frozenset[str]) -> tuple[UnknownRelation, ...]:
    """Take the triples of relations that training does not have out of the other splits, and say which they were."""
    found: list[UnknownRelation] = []
    for name in TRIPLE_FILES[1:]:
        strange = [line for line in splits[name] if line.relation not in known]
        counts = Counter(line.relation for line in strange)
        firsts = {line.relation: f"{line.file}:{line.number}" for line in reversed(strange)}
        found += [
            UnknownRelation(relation=relation, split=name, count=count, first=firsts[relation])
            for relation, count in counts.items()
        ]
        splits[name] = [line for line in splits[name] if line.relation in known]
    return tuple(found)


def _as_ids(
    splits: Mapping[str, Sequence[_Line]], relations: Sequence[str], entities: Sequence[str], config: DatasetConfig
) -> tuple[dict[str, NDArray[np.int64]], dict[str, int]]:
    """The triples of all four splits, each once, and how many of a split an earlier one has."""
    relation_ids = {relation: index for index, relation in enumerate(relations)}
    entity_ids = {entity: index for index, entity in enumerate(entities)}
    kept: dict[str, list[tuple[int, int, int]]] = {name: [] for name in SPLITS}
    dropped = dict.fromkeys(kept, 0)
    known: dict[tuple[int, int, int], str] = {}
    for name in TRIPLE_FILES:
        for line in splits[name]:
            triple = (entity_ids[line.head], relation_ids[line.relation], entity_ids[line.tail])
            split = name
            if name == "valid" and is_calibration(config.salt, config.calibration_share, *triple):
                split = "calibration"
            if triple not in known:
                known[triple] = name
                kept[split].append(triple)
            elif known[triple] != name:
                dropped[split] += 1
    return {name: np.array(triples, dtype=np.int64).reshape(-1, 3) for name, triples in kept.items()}, dropped


def _why_empty(
    name: str,
    triples: Mapping[str, NDArray[np.int64]],
    by_split: Mapping[str, Sequence[_Line]],
    unknown: Sequence[UnknownRelation],
    config: DatasetConfig,
) -> str:
    if name == "valid" and len(triples["calibration"]):
        return "all were carved out for calibration"
    if by_split[name]:
        return "all repeated"
    if any(relation.split == name for relation in unknown):
        return "training has none of their relations"
    return f"dataset.triple_split {config.triple_split} with this share gives it none"


def _shared_entities(triples: Mapping[str, NDArray[np.int64]]) -> int:
    """Entities in the graphs of two splits; valid and calibration have one graph."""
    graphs = [triples["train"], np.concatenate([triples[name] for name in _FROM_VALID]), triples["test"]]
    entities = np.concatenate([np.unique(graph[:, [0, 2]]) for graph in graphs])
    return len(entities) - len(np.unique(entities))
