"""Where examples come from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hopline.config.base import Count, Positive, Section, Share, Weight

__all__ = ["DatasetConfig", "ExampleCounts", "KindShares"]


class ExampleCounts(Section):
    """How many examples each split gets."""

    train: Positive = 8000
    """Examples to train on."""
    valid: Positive = 400
    """Examples that the selection of a checkpoint sees."""
    calibration: Positive = 400
    """Examples that the confidence temperature is fitted on."""
    test: Positive = 600
    """Examples that are measured once, after the choice."""


class KindShares(Section):
    """Relative shares of the query kinds among generated examples; they need not add up to one."""

    link: Weight = 1.0
    """One relation to predict. Synthetic data only: from triples, every triple is a link query in both directions."""
    multi_hop: Weight = 4.0
    """A chain of relations to follow to a set of entities."""
    count: Weight = 1.0
    """How many entities a chain reaches."""
    aggregate: Weight = 1.0
    """How many entities two chains reach in common."""
    boolean: Weight = 1.0
    """Whether a chain leads from one entity to another."""
    relation: Weight = 1.0
    """Which relation holds between two entities."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not any(self.model_dump().values()):
            raise ValueError("all shares are 0; give at least one kind a share above 0")
        return self


class DatasetConfig(Section):
    """Where examples come from and how they are made."""

    source: str = "synthetic"
    """`synthetic`; `pykeen://umls`, `pykeen://kinships` or `pykeen://nations`; a folder of train/valid/test triples, or an
    examples.jsonl, as a path, file:// or s3:// URI."""
    seed: int = 0
    """Seed of every draw; another seed is another dataset."""
    entities: Literal["identity", "anonymous"] = "anonymous"
    """`identity`: entities are known by name and every one is a possible answer of a link query (transductive).
    `anonymous`: only the structure counts (inductive)."""
    examples: ExampleCounts = ExampleCounts()
    """Examples for each split. From triples: beside the link queries. From examples.jsonl: ignored, the file decides."""
    link_queries: Literal["all", "none"] = "all"
    """From triples: whether every triple becomes a link query in both directions."""
    ranking_filter: Literal["all", "earlier"] = "all"
    """From triples: whose other true answers a ranking on valid and calibration leaves out. `all`: of every split, as the
    published protocol does, so that figures on valid, calibration and test mean the same. `earlier`: not those of test,
    which then count as errors. Test always leaves out all, training its own alone."""
    calibration_share: Share = 0.3
    """From triples or JSONL without a calibration split: the share of valid that becomes calibration, by salted hash."""
    kinds: KindShares = KindShares()
    """Shares of the query kinds."""
    missing_share: Share = 0.15
    """Share of generated examples whose evidence is cut; each brings its supported twin."""
    contradicted_share: Share = 0.1
    """Share of generated examples with a planted contradiction."""
    min_hops: Annotated[int, Field(ge=1, le=10)] = 1
    """Shortest chain."""
    max_hops: Annotated[int, Field(ge=1, le=10)] = 3
    """Longest chain."""
    test_max_hops: Annotated[int, Field(ge=1, le=10)] | None = None
    """Longest chain in the test split, to test generalisation in length. null = max_hops."""
    min_nodes: Annotated[int, Field(ge=4)] = 20
    """Fewest nodes of a graph; a source too small for it gives smaller graphs."""
    max_nodes: Annotated[int, Field(ge=4, le=5000)] = 60
    """Most nodes of a graph."""
    max_answers: Positive = 8
    """Most answers of a generated set query."""
    max_paths: Annotated[int, Field(ge=2, le=256)] = 16
    """Most candidate paths of an example, supporting and competing together."""
    synthetic_relations: Annotated[int, Field(ge=4, le=1000)] = 20
    """Synthetic only: number of relations of a world."""
    noise_edges: Share = 0.3
    """Synthetic only: random edges beside the world's own, as a share of its edges."""
    shard_size: Positive = 4096
    """Examples in one shard file. Changes no content and no hash."""
    workers: Count = 0
    """Worker processes; 0 = one for each processor. Changes no content and no hash."""

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if self.min_hops > self.max_hops:
            raise ValueError(f"min_hops is {self.min_hops}, above max_hops {self.max_hops}; swap or raise one")
        if self.min_nodes > self.max_nodes:
            raise ValueError(f"min_nodes is {self.min_nodes}, above max_nodes {self.max_nodes}; swap or raise one")
        return self
