"""The model, and the loss that it is trained with."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from hopline.config.base import Count, Positive, Section, Weight

__all__ = ["LossConfig", "LossWeights", "ModelConfig", "PathAttentionConfig"]


class PathAttentionConfig(Section):
    """Path attention (PAT): all candidate paths of an example share one softmax."""

    heads: Positive = 2
    """Attention heads; they must divide model.hidden_dim."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the path scores before the softmax."""


class ModelConfig(Section):
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


class LossWeights(Section):
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


class LossConfig(Section):
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
