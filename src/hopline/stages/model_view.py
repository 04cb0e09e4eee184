"""What the model of a config is made of and what it needs, before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from hopline.config import GraphConfig, ResolvedConfig
from hopline.datasets import Dataset, columns_from_examples, snapshot_source
from hopline.datasets.plan import make_plan
from hopline.datasets.source import SYNTHETIC
from hopline.errors import ConfigError, NotFoundError
from hopline.graph import GraphBatch, collate
from hopline.model import GraphModel
from hopline.model.footprint import Parallelism, RankMemory, RowCost, model_parts, rank_memory, row_cost
from hopline.stages.find import find_generate
from hopline.stages.generate_stage import read_index
from hopline.stages.roots import dataset_prefix, open_root
from hopline.training.throughput import message_bytes

__all__ = ["CostView", "MemoryView", "ModelView", "PartView", "view_model"]

_SAMPLE: Final = 12
"""Examples whose shapes stand for all."""


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PartView(_View):
    """A part of the model; ``tensors`` has the shape of each by name."""

    name: str
    parameters: int
    tensors: dict[str, tuple[int, ...]]


class MemoryView(_View):
    """Bytes on one rank at the height of a step; see :class:`hopline.model.footprint.RankMemory`."""

    parallelism: str
    gpus: int
    chunk_rows: int
    """Rows whose activations live at once."""
    weights: int
    gradients: int
    moments: int
    gathered: int
    copies: int
    activations: int | None
    """None where the shapes of rows are not known."""
    total: int


class CostView(_View):
    """Means over a sample of rows; a missing example and its twin are two."""

    rows: int
    nodes: float
    messages: float
    paths: float
    forward_flops: float
    training_flops: float
    """Forward and backward pass."""
    message_bytes: float
    """That the messages of a row move in training, at least."""
    activation_bytes: float


class ModelView(_View):
    """A model on paper."""

    name: str
    num_relations: int
    num_entities: int
    vocabulary: str
    """Where these two come from."""
    parameters: int
    trained: int
    parameter_buckets: dict[str, int]
    parts: tuple[PartView, ...]
    precision: str
    memory: tuple[MemoryView, ...]
    cost: CostView | None
    """None where no rows are at hand."""


def view_model(
    config: ResolvedConfig,
    *,
    root: str,
    num_relations: int | None = None,
    num_entities: int | None = None,
    gpus: Sequence[int] = (8, 16, 64),
) -> ModelView:
    """Describe the model of a config. Its weights are never allocated.

    Args:
        config: the whole config.
        root: where its dataset is looked for.
        num_relations, num_entities: of the vocabulary; None = those of the synthetic world, or of the dataset in the root.
        gpus: numbers of ranks to tell the memory for.

    Raises:
        NotFoundError: the sizes of the vocabulary are not given, and there is no dataset to take them from.
        ConfigError: the model needs entities that the vocabulary has not.
    """
    told = config.config
    relations, entities, where, sample = _vocabulary(config, root, num_relations, num_entities)
    if told.model.transductive and entities < 1:
        raise ConfigError(f"{config.source}: model.transductive needs entities, and {where} has none; give --entities")
    entities = entities if told.model.transductive else 0

    def build() -> GraphModel:
        model = GraphModel(
            told.model,
            num_relations=relations,
            num_entities=entities,
            link_head=told.training.link_head,
            link_logit_scale=told.training.link_logit_scale,
        )
        model.query_encoder.requires_grad_(not told.training.freeze_query_encoder)
        return model

    with torch.device("meta"):
        model = build()
    half = told.training.precision != "fp32"
    cost = None if sample is None else _cost_view(row_cost(build, sample, half=half), told)
    views = []
    shared: tuple[Parallelism, ...] = ("ddp", "fsdp")
    ways: list[tuple[Parallelism, int]] = [("none", 1), *((parallelism, n) for parallelism in shared for n in gpus)]
    for parallelism, world in ways:
        rows = _chunk_rows(told, world, cost)
        activations = None if cost is None else round(rows * cost.activation_bytes)
        memory = rank_memory(model, parallelism=parallelism, world=world, half=half, activation_bytes=activations or 0)
        views.append(_memory_view(memory, rows, activations))
    return ModelView(
        name=told.name,
        num_relations=relations,
        num_entities=entities,
        vocabulary=where,
        parameters=sum(p.numel() for p in model.parameters()),
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
        parameter_buckets=dict(model.parameter_buckets()),
        parts=tuple(
            PartView(name=p.name, parameters=p.parameters, tensors=dict(p.tensors)) for p in model_parts(model)
        ),
        precision=told.training.precision,
        memory=tuple(views),
        cost=cost,
    )


def _vocabulary(
    config: ResolvedConfig, root: str, relations: int | None, entities: int | None
) -> tuple[int, int, str, GraphBatch | None]:
    """Relations, entities, where they come from, and a sample of rows if some are at hand."""
    section = config.config.dataset
    if section.source == SYNTHETIC:
        plan = make_plan(section, snapshot_source(section, None))
        examples = [plan.unit("train", index, 0)[0] for index in range(_SAMPLE)]
        found, where = plan.vocabulary, "the synthetic world"
        rows: GraphBatch | None = collate(columns_from_examples(examples), num_relations=found.num_relations)
    else:
        try:
            result = find_generate(config, root=root)
        except NotFoundError as error:
            if relations is None:
                raise NotFoundError(f"{error}, or give --relations (and --entities)") from None
            return relations, entities or 0, "the options", None
        store = open_root(root)
        found, where = read_index(store, result.dataset_hash).vocabulary, f"dataset {result.dataset_hash[:12]}"
        local = store.local_path(dataset_prefix(result.dataset_hash))
        rows = None if local is None else _rows_of(Dataset.open(local, expected_hash=result.dataset_hash))
    if relations is None and entities is None:
        return found.num_relations, found.num_entities, where, rows
    # Rows of another vocabulary would not fit the model.
    fits = relations in (None, found.num_relations)
    return (
        found.num_relations if relations is None else relations,
        found.num_entities if entities is None else entities,
        "the options",
        rows if fits and (entities is None or entities >= found.num_entities) else None,
    )


def _rows_of(dataset: Dataset) -> GraphBatch:
    split = dataset.split("train")
    return split.batch(np.unique(np.linspace(0, len(split) - 1, _SAMPLE).astype(np.int64)))


def _chunk_rows(config: GraphConfig, world: int, cost: CostView | None) -> int:
    """Rows of the largest chunk on a rank: its share of the batch, within the bounds of a chunk."""
    training = config.training
    share = -(-training.batch_size * training.gradient_accumulation // world)
    bounds = [share, training.backward_chunk_size]
    if cost is not None:
        bounds += [
            int(training.backward_chunk_nodes // cost.nodes),
            int(2 * training.backward_chunk_edges // max(cost.messages, 1)),
        ]
    return max(1, min(bounds))


def _cost_view(row: RowCost, config: GraphConfig) -> CostView:
    return CostView(
        rows=row.rows,
        nodes=row.nodes,
        messages=row.messages,
        paths=row.paths,
        forward_flops=row.forward_flops,
        training_flops=row.training_flops,
        message_bytes=row.messages * message_bytes(config.model.layers, config.model.hidden_dim),
        activation_bytes=row.activation_bytes,
    )


def _memory_view(memory: RankMemory, rows: int, activations: int | None) -> MemoryView:
    return MemoryView(
        parallelism=memory.parallelism,
        gpus=memory.world,
        chunk_rows=rows,
        weights=memory.weights,
        gradients=memory.gradients,
        moments=memory.moments,
        gathered=memory.gathered,
        copies=memory.copies,
        activations=activations,
        total=memory.total,
    )
