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
    """`synthetic`; `pykeen://umls`, `pykeen://kinships` or `pykeen://nations`; or, as a path, file:// or s3:// URI: a folder
    of train/valid/test triples, one file of triples, an examples.jsonl or a folder of such files, or an archive (.zip, .tar,
    .tar.gz, .tgz) of one of these. Text files may be compressed (.gz)."""
    header: Literal["auto", "present", "absent"] = "auto"
    """From triples: whether the first line of a file names its columns. `auto`: it does if it reads like "head
    relation tail" or "subject predicate object"."""
    seed: int = 0
    """Seed of every draw; another seed is another dataset."""
    triple_split: Literal["given", "triple", "entity"] = "given"
    """From triples: who is in which split. `given`: the files train, valid and test say so. `triple`: a salted hash of each
    triple, over all files of the source; a triple and its reverse stay together. `entity`: a salted hash of each entity, so
    that splits share no entity; each split then has a graph of its own, and triples that cross splits are left out."""
    query_split: Literal["query", "signature", "length"] = "query"
    """Which generated queries, or lines of a JSONL file that name no split, are in which split. `query`: a salted hash of
    the query. `signature`: of its chain of relations, so that test asks for compositions that training never saw. `length`:
    train, valid and calibration get chains of up to max_hops, test longer ones, of up to test_max_hops."""
    split_seed: Count | None = None
    """Salt of those hashes; null = seed. Give it to redraw examples while every item stays in its split."""
    valid_share: Share = 0.1
    """What the hash of a triple, an entity or a line gives to valid."""
    test_share: Share = 0.1
    """What it gives to test. The rest is for train."""
    graph: Literal["sampled", "full"] = "sampled"
    """From triples: `sampled`: each example has a sample of the training graph, of min_nodes to max_nodes. `full`: the whole
    training graph, without what the query asks for; max_nodes must allow it."""
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
        if self.valid_share + self.test_share >= 1:
            raise ValueError(
                f"valid_share {self.valid_share} and test_share {self.test_share} leave nothing for train; "
                "lower one: together they must be below 1"
            )
        return self

    @model_validator(mode="after")
    def _splits(self) -> Self:
        if self.source == "synthetic":
            if self.triple_split != "given":
                raise ValueError(
                    f"triple_split is {self.triple_split}, but source is synthetic and has no triples; set it to given"
                )
            if self.query_split == "signature":
                raise ValueError("query_split is signature, but source is synthetic; set it to query or length")
            if self.graph == "full":
                raise ValueError("graph is full, but source is synthetic: every world is new; set it to sampled")
        if self.triple_split == "entity" and self.entities == "identity":
            raise ValueError(
                "triple_split is entity, so no entity of test is known from training, but entities is identity; "
                "set entities to anonymous"
            )
        if self.query_split == "length" and (self.test_max_hops or 0) <= self.max_hops:
            found = "null" if self.test_max_hops is None else self.test_max_hops
            raise ValueError(
                f"query_split is length, so test gets chains of more than max_hops, {self.max_hops}, but test_max_hops is "
                f"{found}; raise it above max_hops"
            )
        return self

    def hop_range(self, split: str) -> tuple[int, int]:
        """Shortest and longest chain of a split's generated queries."""
        if split != "test" or self.test_max_hops is None:
            return self.min_hops, self.max_hops
        shortest = self.max_hops + 1 if self.query_split == "length" else self.min_hops
        return shortest, max(shortest, self.test_max_hops)

    @property
    def salt(self) -> int:
        """What the hashes that divide triples, queries and lines are salted with."""
        return self.seed if self.split_seed is None else self.split_seed
