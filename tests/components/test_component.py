"""The functions that KFP copies into the compiled pipeline: what they ask of the library, and what they hand on."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

import hopline.stages
from hopline.stages.results import (
    CandidateResult,
    EvaluateResult,
    GenerateResult,
    PublishResult,
    StageResult,
    TrainResult,
)

STAGES = ("dataset", "train", "evaluate", "publish")
COMMON = {"config_json": "{}", "root": "file:///root"}
DATA = {"dataset_uri": "file:///root/datasets/d", "dataset_hash": "d" * 64}
RUN = {"run_uri": "file:///root/runs/r", "run_hash": "a" * 64}


def function_of(stage: str) -> Callable[..., Any]:
    component = getattr(importlib.import_module(f"components.{stage}"), stage)
    return component.python_func


class Step:
    """Stands in for hopline.stages.run_step and records how it was called."""

    def __init__(self, result: StageResult) -> None:
        self.result = result
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, stage: str, **inputs: Any) -> StageResult:
        self.calls.append((stage, inputs))
        return self.result


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Step]]:
    def run(stage: str, result: StageResult, **arguments: Any) -> tuple[Any, Step]:
        step = Step(result)
        monkeypatch.setattr(hopline.stages, "run_step", step)
        return function_of(stage)(**arguments), step

    return run


def artifact(kind: type[dsl.Artifact], tmp_path: Path) -> Any:
    return kind(name="a", uri=str(tmp_path / f"{kind.__name__}.out"))


def test_dataset_hands_on_uri_and_hash(call: Callable[..., tuple[Any, Step]], tmp_path: Path) -> None:
    made = GenerateResult(**DATA, examples={"train": 7, "test": 2}, reused=True)
    pointer = artifact(dsl.Dataset, tmp_path)
    outputs, step = call("dataset", made, **COMMON, data=pointer)
    assert step.calls == [("generate", COMMON)]
    assert outputs[:2] == (DATA["dataset_uri"], DATA["dataset_hash"])
    assert GenerateResult.model_validate_json(outputs[2]) == made
    assert json.loads(Path(pointer.path).read_text()) == made.model_dump(mode="json")
    assert pointer.metadata["hash"] == DATA["dataset_hash"]
    assert pointer.metadata["examples"] == {"train": 7, "test": 2}


def test_train_hands_on_the_run_and_shows_its_scores(call: Callable[..., tuple[Any, Step]], tmp_path: Path) -> None:
    candidates = (
        CandidateResult(step=10, uri="u", sha256="b" * 64, score=0.25),
        CandidateResult(step=20, uri="v", sha256="c" * 64, score=None),
    )
    done = TrainResult(**RUN, candidates=candidates, steps=20, stop_reason="max_steps", reused=False)
    pointer = artifact(dsl.Model, tmp_path)
    outputs, step = call("train", done, **COMMON, **DATA, run=pointer)
    assert step.calls == [("train", {**COMMON, **DATA})]
    assert outputs[:2] == (RUN["run_uri"], RUN["run_hash"])
    assert TrainResult.model_validate_json(outputs[2]) == done
    assert pointer.metadata["scores"] == {"step-10": 0.25}  # the UI refuses null
    assert pointer.metadata["dataset_hash"] == DATA["dataset_hash"]


def test_evaluate_hands_on_the_choice_metrics_and_report(call: Callable[..., tuple[Any, Step]], tmp_path: Path) -> None:
    report = tmp_path / "root" / "report.html"
    report.parent.mkdir()
    report.write_text("<title>report</title>")
    chosen = EvaluateResult(
        checkpoint_uri="file:///root/c",
        checkpoint_sha256="e" * 64,
        step=10,
        metrics={"link.mrr": 0.5, "path.f1": math.nan},
        report_uri=report.as_uri(),
        reused=False,
    )
    checkpoint, metrics = artifact(dsl.Model, tmp_path), artifact(dsl.Metrics, tmp_path)
    page = artifact(dsl.HTML, tmp_path)
    outputs, step = call(
        "evaluate", chosen, **COMMON, **DATA, **RUN, checkpoint=checkpoint, metrics=metrics, report=page
    )
    assert step.calls == [("evaluate", {**COMMON, **DATA, **RUN})]
    assert outputs[:3] == (chosen.checkpoint_uri, chosen.checkpoint_sha256, chosen.report_uri)
    assert metrics.metadata == {"link.mrr": 0.5}  # NaN is no JSON
    assert Path(page.path).read_text() == "<title>report</title>"
    assert checkpoint.metadata["hash"] == chosen.checkpoint_sha256
    assert checkpoint.metadata["run_hash"] == RUN["run_hash"]


@pytest.mark.parametrize(("before", "after"), [(None, "run-7"), ("", "")])
def test_publish_hands_on_the_manifest_and_tells_the_run(
    call: Callable[..., tuple[Any, Step]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str | None,
    after: str,
) -> None:
    monkeypatch.setenv("KFP_RUN_ID", "")  # so that monkeypatch restores it, whatever the component sets
    if before is None:
        monkeypatch.delenv("KFP_RUN_ID")
    published = PublishResult(
        manifest_uri="file:///m", manifest_hash="f" * 64, champion=False, reasons=("too low",), reused=False
    )
    inputs = {**COMMON, **DATA, **RUN, "checkpoint_uri": "c", "checkpoint_sha256": "e" * 64, "report_uri": "r"}
    pointer = artifact(dsl.Model, tmp_path)
    outputs, step = call("publish", published, **inputs, run_id="run-7", model=pointer)
    import os

    assert os.environ["KFP_RUN_ID"] == after
    assert step.calls == [("publish", inputs)]
    assert outputs[:2] == ("file:///m", "f" * 64)
    assert pointer.metadata["champion"] is False
    assert pointer.metadata["reasons"] == ["too low"]
    assert pointer.metadata["hash"] == "f" * 64


@pytest.mark.parametrize("stage", STAGES)
def test_a_function_needs_nothing_from_its_module(stage: str) -> None:
    """KFP runs the copied source alone, with typing's names, kfp and dsl."""
    source = textwrap.dedent(inspect.getsource(function_of(stage)))
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    known = {argument.arg for argument in function.args.args} | {"dsl", "NamedTuple"} | set(dir(__builtins__))
    known |= set(__builtins__) if isinstance(__builtins__, dict) else set()
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    known |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    for node in ast.walk(function):
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    assert {node.id for node in names} - known == set()
