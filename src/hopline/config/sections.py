"""The typed sections of a config. Every key is documented at its field; ``hopline config schema`` prints them all."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "ARCHITECTURE_VERSION",
    "CurriculumStage",
    "DatasetConfig",
    "EvaluationConfig",
    "ExampleCounts",
    "GateConfig",
    "GraphConfig",
    "KindShares",
    "LossConfig",
    "LossWeights",
    "ModelConfig",
    "PathAttentionConfig",
    "PublishConfig",
    "TrainingConfig",
]

ARCHITECTURE_VERSION: Final = "hopline-graph-v1"
"""Changes whenever old weights no longer mean the same; a model of another version is refused."""

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]


def _model_name(value: str) -> str:
    if not value or len(value) > 63 or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in value):
        raise ValueError("expected 1 to 63 letters, digits, '-', '_' or '.'")
    if not value[0].isalnum():
        raise ValueError("expected a letter or digit first")
    return value


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ExampleCounts(_Section):
    """How many examples each split gets."""

    train: Positive = 8000
    """Examples to train on."""
    valid: Positive = 400
    """Examples that the selection of a checkpoint sees."""
    calibration: Positive = 400
    """Examples that the confidence temperature is fitted on."""
    test: Positive = 600
    """Examples that are measured once, after the choice."""


class KindShares(_Section):
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


class DatasetConfig(_Section):
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


class PathAttentionConfig(_Section):
    """Path attention (PAT): all candidate paths of an example share one softmax."""

    heads: Positive = 2
    """Attention heads; they must divide model.hidden_dim."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the path scores before the softmax."""


class ModelConfig(_Section):
    """Architecture of GraphModel."""

    model_version: str = "hopline-reasoner"
    """A label for people; recorded, and part of the run hash."""
    hidden_dim: Annotated[int, Field(ge=8, multiple_of=4)] = 64
    """Width H of node states."""
    layers: Annotated[int, Field(ge=1, le=32)] = 4
    """Propagation layers."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout on node states between layers and in the heads."""
    max_hops: Annotated[int, Field(ge=1, le=32)] = 10
    """Longest chain that the query encoder reads."""
    max_count: Annotated[int, Field(ge=1, le=1000)] = 10
    """Counts are classes 0..max_count; larger counts share the last."""
    transductive: bool = False
    """Identity embeddings and the bilinear branch that ranks all entities; needs dataset.entities: identity."""
    transductive_rank: Annotated[int, Field(ge=4)] = 256
    """Complex dimensions of the bilinear branch."""
    transductive_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout on the bilinear query vector."""
    on_policy_selection: bool = False
    """The heads after path selection see the paths that the model selected instead of the gold supporting paths."""
    pat: PathAttentionConfig = PathAttentionConfig()
    """Path attention."""

    @model_validator(mode="after")
    def _heads(self) -> Self:
        if self.hidden_dim % self.pat.heads:
            raise ValueError(f"pat.heads is {self.pat.heads}, which does not divide hidden_dim {self.hidden_dim}")
        return self


class LossWeights(_Section):
    """Weight of each component in the total; 0 switches it off."""

    node: Weight = 0.05
    """Contrast of the node states of linked and unlinked pairs."""
    link: Weight = 0.1
    """Whether an edge joins two nodes."""
    next_hop: Weight = 0.3
    """Which relation continues a supporting path."""
    relation: Weight = 1.0
    """Relation of each supporting hop, and the answer of relation queries."""
    path: Weight = 0.5
    """Whether a candidate path supports an answer, with its threshold."""
    pat: Weight = 0.2
    """Margin between supporting and competing paths."""
    answer: Weight = 1.0
    """Which entities answer."""
    verification: Weight = 0.5
    """Whether the query is supported."""
    contradiction: Weight = 0.5
    """Which status holds."""
    count: Weight = 0.5
    """How many entities answer."""
    confidence: Weight = 0.2
    """Expected set-F1 of the own answer."""
    pair_margin: Weight = 0.5
    """Margin between a missing example and its supported twin."""


class LossConfig(_Section):
    """The multi-task loss."""

    weights: LossWeights = LossWeights()
    """Weight of each component."""
    pair_margin: Annotated[float, Field(gt=0)] = 1.0
    """How far the support logit of a twin has to lie above its missing example's."""
    pat_margin: Annotated[float, Field(gt=0)] = 1.0
    """How far supporting paths have to lie above competing ones."""
    n3: Weight = 0.0
    """N3 regularisation of the bilinear branch (Lacroix et al. 2018)."""
    negatives_per_edge: Positive = 1
    """Unlinked pairs of nodes that are drawn for each edge, for the components node and link."""
    edge_queries: Count = 16
    """Edges of each graph that the bilinear branch is asked about, for the component link; only with model.transductive."""


class CurriculumStage(_Section):
    """Until a step, only some examples are drawn."""

    until_step: Positive
    """The stage ends before this optimizer step."""
    max_hops: Annotated[int, Field(ge=1, le=10)] | None = None
    """Longest chain that is drawn; null = any."""
    kinds: tuple[Literal["link", "multi_hop", "count", "aggregate", "boolean", "relation"], ...] | None = None
    """Kinds that are drawn; null = all."""


class TrainingConfig(_Section):
    """Optimisation, evaluation cadence and checkpoints."""

    seed: int = 0
    """Seed of initial weights, batch order and dropout."""
    max_steps: Positive = 1000
    """Optimizer steps."""
    batch_size: Positive = 128
    """Examples in one micro step, over all ranks."""
    gradient_accumulation: Positive = 1
    """Micro steps in one optimizer step."""
    backward_chunk_size: Positive = 128
    """Examples, twins included, whose activations live at once on a rank."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    """Peak learning rate."""
    weight_decay: Weight = 0.01
    """Decoupled decay of matrices; vectors, thresholds and scales have none."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Moment decays of AdamW."""
    warmup_ratio: Share = 0.05
    """Share of max_steps that warms up linearly; at least one step."""
    final_learning_rate_ratio: Share = 0.1
    """Floor of the cosine, as a share of the peak."""
    grad_clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest global gradient norm."""
    skip_grad_norm: Weight = 0.0
    """Skip an update whose norm exceeds this many medians of the last updates; 0 = never."""
    skip_window: Positive = 200
    """Applied norms that the median is taken over."""
    skip_minimum: Positive = 50
    """Applied norms that have to be known before anything is skipped."""
    max_non_finite: Positive = 5
    """Non-finite updates in a row after which training counts as diverged."""
    precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Autocast on CUDA; elsewhere fp32."""
    deterministic: bool = True
    """Bitwise equal runs where kernels allow; the record says what was achieved."""
    evaluation_every: Count = 250
    """Steps between evaluations on valid; 0 = only at the end."""
    checkpoint_every: Count = 250
    """Steps between checkpoints of the training state; 0 = only at the end."""
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    """Newest training states that are kept."""
    keep_candidates: Positive = 3
    """Best candidates that are kept for the evaluation stage."""
    patience: Positive | None = None
    """Evaluations without a better score after which training stops; null = never."""
    freeze_query_encoder: bool = False
    """Keep the query encoder as it is."""
    query_encoder_lr_scale: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate of the query encoder, as a multiple."""
    transductive_lr_scale: Annotated[float, Field(gt=0)] = 1.0
    """Learning rate of the bilinear branch, as a multiple."""
    link_head: Literal["cosine", "mlp"] = "cosine"
    """How an edge is scored from two node states."""
    link_logit_scale: Annotated[float, Field(gt=0)] = 2.0
    """Multiplies the cosine of the link head."""
    curriculum: tuple[CurriculumStage, ...] = ()
    """Stages in order of until_step; after the last, everything is drawn."""
    log_every: Positive = 10
    """Steps between log lines."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        steps = [stage.until_step for stage in self.curriculum]
        if any(b <= a for a, b in itertools.pairwise(steps)):
            raise ValueError(f"curriculum: until_step must rise from stage to stage, found {steps}")
        return self


class EvaluationConfig(_Section):
    """Metrics, calibration and the choice of a checkpoint."""

    batch_size: Positive = 256
    """Examples in one forward pass."""
    selection: dict[str, float] = Field(default_factory=lambda: {"overall.score": 1.0})
    """Metric names on valid and their weights; the selection score is their weighted mean."""
    calibration_bins: Annotated[int, Field(ge=2)] = 15
    """Equal-mass bins of the calibration error and the reliability diagram."""
    samples: Count = 12
    """Sample predictions in the report."""

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if not self.selection or sum(self.selection.values()) <= 0 or any(w < 0 for w in self.selection.values()):
            raise ValueError(f"selection needs weights of 0 or more with a sum above 0, found {self.selection}")
        return self


class GateConfig(_Section):
    """When a new version becomes the champion."""

    minimum: dict[str, float] = {}
    """Test metric -> least value."""
    allowed_regression: dict[str, float] = {}
    """Test metric -> how far it may fall below the champion's on the same test split."""


class PublishConfig(_Section):
    """Publishing."""

    gate: GateConfig = GateConfig()
    """The champion gate."""
    shard_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 30)] = 1 << 30
    """Largest file of weights, in bytes."""


class GraphConfig(_Section):
    """A whole run."""

    name: Annotated[str, AfterValidator(_model_name)]
    """Name of the model: versions are published under models/<name>/."""
    dataset: DatasetConfig = DatasetConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    publish: PublishConfig = PublishConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.model.transductive and self.dataset.entities != "identity":
            raise ValueError(
                f"model.transductive needs dataset.entities: identity, found {self.dataset.entities}; "
                "set one to match the other"
            )
        longest = max(self.dataset.max_hops, self.dataset.test_max_hops or 0)
        if longest > self.model.max_hops:
            raise ValueError(
                f"model.max_hops is {self.model.max_hops}, below the longest chain of the dataset, {longest}"
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """The whole config with every default, ready for JSON."""
        return self.model_dump(mode="json")
