"""The four stages: URIs in, URIs and hashes out; the only place where storage meets the library.

Names are loaded when they are first used, so that a command which needs none of them does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopline.stages.alone import run_alone
    from hopline.stages.encoding import decode_config, encode_config
    from hopline.stages.evaluate_stage import evaluate
    from hopline.stages.generate_stage import generate
    from hopline.stages.publish_stage import publish
    from hopline.stages.published import PublishedModel, load_published
    from hopline.stages.results import (
        CandidateResult,
        EvaluateResult,
        GenerateResult,
        PublishResult,
        StageResult,
        TrainResult,
    )
    from hopline.stages.steps import run_step
    from hopline.stages.train_stage import train

_HOMES = {
    "CandidateResult": "results",
    "EvaluateResult": "results",
    "GenerateResult": "results",
    "PublishResult": "results",
    "PublishedModel": "published",
    "StageResult": "results",
    "TrainResult": "results",
    "decode_config": "encoding",
    "encode_config": "encoding",
    "evaluate": "evaluate_stage",
    "generate": "generate_stage",
    "load_published": "published",
    "publish": "publish_stage",
    "run_alone": "alone",
    "run_step": "steps",
    "train": "train_stage",
}

__all__ = [
    "CandidateResult",
    "EvaluateResult",
    "GenerateResult",
    "PublishResult",
    "PublishedModel",
    "StageResult",
    "TrainResult",
    "decode_config",
    "encode_config",
    "evaluate",
    "generate",
    "load_published",
    "publish",
    "run_alone",
    "run_step",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
