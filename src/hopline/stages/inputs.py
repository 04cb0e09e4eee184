"""What decides the output of each stage: the inputs that its request hash covers, and what they leave out on purpose."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from hopline.config import ClusterConfig, DatasetConfig, EvaluationConfig, GraphConfig, PublishConfig
from hopline.datasets import SourceFiles
from hopline.stages.requests import Request
from hopline.stages.results import TrainResult

__all__ = ["dataset_request", "evaluate_request", "publish_request", "run_config", "train_request"]

_NO_CONTENT: Final = {"shard_size", "workers"}
"""Fields of the dataset section that change no content."""

_NO_RESULT: Final = {
    "backward_chunk_edges",
    "backward_chunk_nodes",
    "backward_chunk_size",
    "checkpoint_every",
    "compile",
    "keep_checkpoints",
    "log_every",
    "parallelism",
    "prefetch",
}
"""Fields of the training section that change no weights."""


def run_config(config: GraphConfig) -> GraphConfig:
    """The config as far as it decides a run, the rest at its defaults: equal runs get candidates with equal bytes."""

    def reset(section: BaseModel, names: set[str]) -> BaseModel:
        fields = type(section).model_fields
        return section.model_copy(update={name: fields[name].get_default() for name in names})

    return config.model_copy(
        update={
            "dataset": reset(config.dataset, _NO_CONTENT),
            "training": reset(config.training, _NO_RESULT),
            "evaluation": EvaluationConfig(selection=config.evaluation.selection),
            "publish": PublishConfig(),
            "cluster": ClusterConfig(),
        }
    )


def dataset_request(section: DatasetConfig, source: SourceFiles) -> Request:
    """What decides a dataset: its config section, and the digest of every source file."""
    return Request(
        "generate",
        {
            "dataset": section.model_dump(mode="json", exclude=_NO_CONTENT),
            "source": {file.path: file.sha256 for file in source.files},
        },
    )


def train_request(config: GraphConfig, dataset_hash: str) -> Request:
    """What decides a run; its hash is the run hash. The selection is part of it: it decides which candidates are kept."""
    return Request(
        "train",
        {
            "dataset_hash": dataset_hash,
            "model": config.model.model_dump(mode="json"),
            "loss": config.loss.model_dump(mode="json"),
            "training": {
                **config.training.model_dump(mode="json", exclude=_NO_RESULT),
                # Which parent it is, not where it lies.
                "init_from": (config.training.init_from or "").rpartition("@")[2] or None,
            },
            "selection": config.evaluation.selection,
        },
    )


def evaluate_request(config: GraphConfig, run: TrainResult) -> Request:
    """What decides an evaluation: the candidates and the evaluation section."""
    return Request(
        "evaluate",
        {
            "name": config.name,
            "run_hash": run.run_hash,
            "candidates": {str(candidate.step): candidate.sha256 for candidate in run.candidates},
            "evaluation": config.evaluation.model_dump(mode="json"),
        },
    )


def publish_request(config: GraphConfig, run_hash: str, checkpoint_sha256: str, evaluation: str) -> Request:
    """What decides a version: the chosen checkpoint, its evaluation, and the whole config, which the manifest holds."""
    return Request(
        "publish",
        {
            "config": config.to_dict(),
            "run_hash": run_hash,
            "checkpoint_sha256": checkpoint_sha256,
            "evaluation": evaluation,
        },
    )
