"""One config file describes a run."""

from hopline.config.loading import Override, ResolvedConfig, load_config, resolve_config, section_hash
from hopline.config.sections import (
    ARCHITECTURE_VERSION,
    CurriculumStage,
    DatasetConfig,
    EvaluationConfig,
    ExampleCounts,
    GateConfig,
    GraphConfig,
    KindShares,
    LossConfig,
    LossWeights,
    ModelConfig,
    PathAttentionConfig,
    PublishConfig,
    TrainingConfig,
)

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
    "Override",
    "PathAttentionConfig",
    "PublishConfig",
    "ResolvedConfig",
    "TrainingConfig",
    "load_config",
    "resolve_config",
    "section_hash",
]
