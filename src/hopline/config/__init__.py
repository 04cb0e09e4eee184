"""One config file describes a run."""

from hopline.config.cluster import (
    ClusterConfig,
    ElasticConfig,
    JobLimits,
    ResourcesConfig,
    StoreAccess,
    Toleration,
    VolumeMount,
)
from hopline.config.dataset import DatasetConfig, ExampleCounts, KindShares
from hopline.config.loading import Override, ResolvedConfig, load_config, resolve_config, section_hash
from hopline.config.model import LossConfig, LossWeights, ModelConfig, PathAttentionConfig
from hopline.config.publishing import EvaluationConfig, GateConfig, PublishConfig
from hopline.config.sections import ARCHITECTURE_VERSION, GraphConfig
from hopline.config.training import CurriculumStage, TrainingConfig

__all__ = [
    "ARCHITECTURE_VERSION",
    "ClusterConfig",
    "CurriculumStage",
    "DatasetConfig",
    "ElasticConfig",
    "EvaluationConfig",
    "ExampleCounts",
    "GateConfig",
    "GraphConfig",
    "JobLimits",
    "KindShares",
    "LossConfig",
    "LossWeights",
    "ModelConfig",
    "Override",
    "PathAttentionConfig",
    "PublishConfig",
    "ResolvedConfig",
    "ResourcesConfig",
    "StoreAccess",
    "Toleration",
    "TrainingConfig",
    "VolumeMount",
    "load_config",
    "resolve_config",
    "section_hash",
]
