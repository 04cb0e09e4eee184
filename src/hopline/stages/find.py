"""Find what the earlier stages of a config have made, for a stage that is called alone."""

from __future__ import annotations

import json
import shlex
from typing import Any

import yaml

from hopline.config import ResolvedConfig
from hopline.errors import NotFoundError
from hopline.stages.inputs import dataset_request, evaluate_request, train_request
from hopline.stages.requests import Request, Result, read_record
from hopline.stages.results import EvaluateResult, GenerateResult, TrainResult
from hopline.stages.roots import open_root
from hopline.stages.sources import source_snapshot

__all__ = ["find_evaluate", "find_generate", "find_train"]


def find_generate(config: ResolvedConfig, *, root: str) -> GenerateResult:
    """The dataset of a config. Raises NotFoundError, naming the command that makes it."""
    section = config.config.dataset
    request = dataset_request(section, source_snapshot(section))
    return _find(config, root, request, GenerateResult)


def find_train(config: ResolvedConfig, *, root: str, dataset_hash: str) -> TrainResult:
    """The finished run of a config. Raises NotFoundError, naming the command that makes it."""
    return _find(config, root, train_request(config.config, dataset_hash), TrainResult)


def find_evaluate(config: ResolvedConfig, *, root: str, run: TrainResult) -> EvaluateResult:
    """The evaluation of a run. Raises NotFoundError, naming the command that makes it."""
    return _find(config, root, evaluate_request(config.config, run), EvaluateResult)


def _find(config: ResolvedConfig, root: str, request: Request, kind: type[Result]) -> Result:
    found = read_record(open_root(root), request, kind)
    if found is None:
        words = ["hopline", request.stage, "-c", config.source]
        for override in config.overrides:
            words += ["--set", f"{override.key}={_as_typed(override.value)}"]
        command = shlex.join([*words, "--root", root])
        raise NotFoundError(f"{root}: no {request.stage} output of {config.source} there; run `{command}` first")
    return found


def _as_typed(value: Any) -> str:
    """A value of an override as a person types it: YAML."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        return value if isinstance(value, str) and yaml.safe_load(value) == value else text
    except yaml.YAMLError:
        return text
