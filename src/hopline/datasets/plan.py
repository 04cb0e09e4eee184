"""What a dataset will hold, before an example is made: the vocabulary, the units of each split, and who makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from hopline.config import DatasetConfig
from hopline.datasets.convert import columns_from_examples
from hopline.datasets.draws import hash64
from hopline.datasets.evidence import Assembler
from hopline.datasets.fingerprint import BLOCK_UNITS, code_digest
from hopline.datasets.import_report import ImportReport
from hopline.datasets.imported import ImportedExamples
from hopline.datasets.index import SCHEMA_VERSION, PatternInfo, SourceFiles
from hopline.datasets.leakage import structure_keys
from hopline.datasets.link_queries import LinkQueries
from hopline.datasets.mining import mine_patterns, mine_rules
from hopline.datasets.patterns import Patterns
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.source import SYNTHETIC, is_examples
from hopline.datasets.splits import SPLITS
from hopline.datasets.synthetic import SyntheticExamples
from hopline.datasets.train_graph import TrainGraph
from hopline.datasets.triple_queries import TripleQueries
from hopline.datasets.triples import TripleData, load_triples
from hopline.datasets.vocabulary import Vocabulary
from hopline.datasets.wishes import WishList
from hopline.datasets.world import World
from hopline.errors import ConfigError
from hopline.graph import ExampleColumns, ReasoningExample

__all__ = ["Plan", "make_plan"]

_PLAN_FILE: Final = "plan.json"
_TRIPLES_FILE: Final = "triples.npz"

_LEAST_AT_ONCE, _MOST_AT_ONCE, _NODES_AT_ONCE = 16, 2048, 1 << 17
"""Units, and nodes, of one block of synthetic examples: enough to be fast, few enough for the processor's cache."""


class _PlanDocument(BaseModel):
    """What a worker process needs beside the triples."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: DatasetConfig
    vocabulary: Vocabulary
    patterns: PatternInfo
    generated: dict[str, int]


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that decides each unit.

    Attributes:
        config: the dataset section.
        vocabulary, patterns: of the source or the synthetic world.
        generated: units of each split that are drawn, beside link queries.
        data: the triples of a triples source.
        imported: the examples of a file of examples.
        report: what was left out of what the source holds.
    """

    config: DatasetConfig
    vocabulary: Vocabulary
    patterns: PatternInfo
    generated: Mapping[str, int]
    data: TripleData | None = None
    imported: ImportedExamples | None = None
    report: ImportReport | None = None

    def units(self, split: str) -> int:
        """How many units a split gets."""
        if self.imported is not None:
            return len(self.imported.splits[split])
        return self.links(split) + self.generated[split]

    def links(self, split: str) -> int:
        """How many of them are link queries from triples; those come first."""
        if self.data is None or self.config.link_queries == "none":
            return 0
        return 2 * len(self.data.triples[split])

    @property
    def total(self) -> int:
        """Units of all splits."""
        return sum(map(self.units, SPLITS))

    def unit(self, split: str, index: int, version: int) -> tuple[ReasoningExample, int | None]:
        """One unit: a pure function of the plan and these numbers.

        Returns:
            The example, and the canonical key of its query; None: the key is that of its structure.
        """
        if self.imported is not None:
            return self.imported.splits[split][index], None
        if self.data is None:
            return self._synthetic.unit(split, index, version), None
        if index < self.links(split):
            head, relation, tail = self.data.triples[split][index // 2].tolist()
            return self._links.unit(split, index), _triple_key(head, relation, tail)
        return self._queries.unit(split, index - self.links(split), index)

    def rows(
        self, split: str, units: NDArray[np.int64], versions: NDArray[np.int64]
    ) -> tuple[ExampleColumns, NDArray[np.uint64]]:
        """Some units as rows, in the order given, and the canonical key of each unit's query."""
        if self.is_synthetic:
            columns = self._synthetic.block(split, units, versions)
            return columns, _structure_keys(columns)
        made = [
            self.unit(split, unit, version) for unit, version in zip(units.tolist(), versions.tolist(), strict=True)
        ]
        columns = columns_from_examples([example for example, _ in made])
        known = np.array([key or 0 for _, key in made], dtype=np.uint64)
        structural = np.array([key is None for _, key in made], dtype=np.bool_)
        return columns, np.where(structural, _structure_keys(columns), known) if structural.any() else known

    @property
    def is_synthetic(self) -> bool:
        """Whether the examples are of a synthetic world."""
        return self.data is None and self.imported is None

    @property
    def units_at_once(self) -> int:
        """How many units :meth:`rows` is best asked for at a time."""
        return (
            max(_LEAST_AT_ONCE, min(_MOST_AT_ONCE, _NODES_AT_ONCE // self.config.max_nodes))
            if self.is_synthetic
            else BLOCK_UNITS
        )

    @cached_property
    def rules(self) -> RuleBook:
        return RuleBook.of(self.vocabulary)

    @cached_property
    def held_out(self) -> NDArray[np.int64]:
        """The triples that may be in no graph, as sorted numbers; see :meth:`fact_numbers`."""
        if self.data is None:
            return np.zeros(0, dtype=np.int64)
        triples = np.concatenate([self.data.triples[name] for name in SPLITS if name != "train"])
        return np.unique(self.fact_numbers(*triples.T))

    def fact_numbers(
        self, heads: NDArray[np.int64], relations: NDArray[np.int64], tails: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """One number for each fact over entity ids."""
        entities = len(self.vocabulary.entities or ())
        return (heads * entities + tails) * self.vocabulary.num_relations + relations

    def save(self, folder: Path) -> None:
        """Write what :meth:`load` needs."""
        document = _PlanDocument(
            config=self.config, vocabulary=self.vocabulary, patterns=self.patterns, generated=dict(self.generated)
        )
        if self.data is not None:
            with (folder / _TRIPLES_FILE).open("wb") as file:
                np.savez(file, allow_pickle=False, **self.data.triples)
        (folder / _PLAN_FILE).write_text(document.model_dump_json(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """The plan of a triples or synthetic source, as another process saved it."""
        document = _PlanDocument.model_validate_json((folder / _PLAN_FILE).read_bytes())
        data = None
        if (folder / _TRIPLES_FILE).exists():
            with np.load(folder / _TRIPLES_FILE, allow_pickle=False) as arrays:
                data = TripleData(
                    relations=document.vocabulary.relations,
                    entities=document.vocabulary.entities or (),
                    triples={name: arrays[name] for name in SPLITS},
                    dropped={},
                    unseen=0,
                )
        return cls(document.config, document.vocabulary, document.patterns, document.generated, data)

    def digest(self, source: SourceFiles) -> str:
        """sha256 of what decides the content: names the work area, so that only the same build continues in it."""
        section = self.config.model_dump_json(exclude={"workers", "shard_size"})
        files = [file.sha256 for file in source.files]
        text = f"{SCHEMA_VERSION}|{BLOCK_UNITS}|{code_digest()}|{section}|{self.config.shard_size}|{files}"
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _synthetic(self) -> SyntheticExamples:
        return SyntheticExamples(self.config, World(self.config.seed, self.config.synthetic_relations))

    @cached_property
    def _train_graph(self) -> TrainGraph:
        assert self.data is not None
        return TrainGraph(self.data.triples["train"], self.data.num_entities, self.data.num_relations)

    @cached_property
    def _links(self) -> LinkQueries:
        assert self.data is not None
        return LinkQueries(self.data, self._train_graph, self.rules, self.config)

    @cached_property
    def _queries(self) -> TripleQueries:
        assert self.data is not None
        patterns = Patterns.of(self.patterns)
        assembler = Assembler(self.rules, patterns, self.config.max_paths, self.config.max_answers)
        return TripleQueries(self.data, self._train_graph, assembler, self.config)


def make_plan(config: DatasetConfig, source: SourceFiles) -> Plan:
    """Read the source and decide what the dataset will hold.

    Raises:
        DataError: the source is wrong.
        ConfigError: the section asks for what the source cannot give.
    """
    counts = config.examples.model_dump()
    if config.source == SYNTHETIC:
        if config.entities == "identity":
            raise ConfigError("dataset.entities: synthetic entities have no identity; set it to anonymous")
        world = World(config.seed, config.synthetic_relations)
        return Plan(config, world.vocabulary, world.patterns.info(), counts)
    assert source.folder is not None
    if is_examples(source.folder):
        imported = ImportedExamples.read(source, config)
        return Plan(config, imported.vocabulary, PatternInfo(), {}, imported=imported, report=imported.report)
    data = load_triples(source, config)
    graph = TrainGraph(data.triples["train"], data.num_entities, data.num_relations)
    vocabulary = Vocabulary(
        relations=data.relations,
        entities=data.entities,
        identity=config.entities == "identity",
        rules=mine_rules(graph, config.seed),
    )
    if not WishList(config).kinds:
        if config.link_queries == "none":
            raise ConfigError(
                "dataset.link_queries is none and dataset.kinds asks for nothing else; give a kind a share"
            )
        counts = dict.fromkeys(counts, 0)
    return Plan(config, vocabulary, mine_patterns(graph).info(), counts, data=data, report=data.report)


def _structure_keys(columns: ExampleColumns) -> NDArray[np.uint64]:
    """The key of each unit's first row."""
    keys: NDArray[np.uint64] = structure_keys(columns)[columns.values["is_twin"] == 0]
    return keys


def _triple_key(head: int, relation: int, tail: int) -> int:
    """The canonical key of a link query: that of its triple, whichever end is asked for."""
    return hash64(b"hopline-triple", head, relation, tail)
