"""The whole config. Every key is documented at its field; ``hopline config schema`` prints them all."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, model_validator

from hopline.config.base import Section
from hopline.config.cluster import ClusterConfig
from hopline.config.dataset import DatasetConfig
from hopline.config.model import LossConfig, ModelConfig
from hopline.config.publishing import EvaluationConfig, PublishConfig
from hopline.config.training import TrainingConfig

__all__ = ["ARCHITECTURE_VERSION", "GraphConfig"]

ARCHITECTURE_VERSION: Final = "hopline-graph-v1"
"""Changes whenever old weights no longer mean the same; a model of another version is refused."""


def _model_name(value: str) -> str:
    if not value or len(value) > 63 or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in value):
        raise ValueError("expected 1 to 63 letters, digits, '-', '_' or '.'")
    if not value[0].isalnum():
        raise ValueError("expected a letter or digit first")
    return value


class GraphConfig(Section):
    """A whole run."""

    name: Annotated[str, AfterValidator(_model_name)]
    """Name of the model: versions are published under models/<name>/."""
    dataset: DatasetConfig = DatasetConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    publish: PublishConfig = PublishConfig()
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.model.transductive and self.dataset.entities != "identity":
            raise ValueError(
                f"model.transductive needs dataset.entities: identity, found {self.dataset.entities}; "
                "set one to match the other"
            )
        if self.cluster.processes > 1 and self.training.parallelism == "none":
            raise ValueError(
                f"cluster.processes is {self.cluster.processes}, and training.parallelism says none; expected ddp, or fsdp "
                "for a model that does not fit one device"
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
