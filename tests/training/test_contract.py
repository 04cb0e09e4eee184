"""What the training contract asks for beyond one module: that every row of it is tested, names, and constants."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import hopline.config
import hopline.graph
import hopline.model
import hopline.training
from hopline.config import LossConfig, TrainingConfig
from hopline.datasets import check_structure
from hopline.datasets.jsonl import read_examples
from hopline.errors import DataError
from hopline.graph import AnswerMode, QueryKind, Status
from hopline.training import DEVICE_MEMORY_HEADROOM, PAIR_MARGIN, TRAINING_BYTES_PER_PARAMETER

TESTS = Path(__file__).parents[1]
ROWS = [f"G{row}" for row in range(1, 64)] + [f"D{row}" for row in range(1, 52)]


def test_every_row_is_named_by_a_test() -> None:
    """A row is held by the tests whose docstrings name it; what no test names, nothing holds."""
    named: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                named |= set(re.findall(r"\b[GD]\d+\b", ast.get_docstring(node) or ""))
    assert [row for row in ROWS if row not in named] == []
    assert sorted(named - set(ROWS)) == []


def test_the_names_that_users_of_the_trainer_know() -> None:
    """F: public names stay where people look for them."""
    names = {
        hopline.config: ["GraphConfig"],
        hopline.graph: ["GraphStore", "ReasoningExample", "STATUS_INDEX"],
        hopline.model: ["GraphModel"],
        hopline.training: [
            "ARCHITECTURE_VERSION", "COMPONENTS", "CUBLAS_WORKSPACE_ENV", "EvaluationEvent", "GraphTrainer", "LossInputs",
            "MultiTaskLoss", "TrainStepOutput", "build_run_manifest", "rank_device", "require_device_memory",
            "resolve_device", "seed_everything", "setup_distributed",
        ],
    }  # fmt: skip
    for module, wanted in names.items():
        for name in wanted:
            assert name in module.__all__
            assert hasattr(module, name)


def test_numbers_that_were_constants_are_defaults_of_the_config() -> None:
    """G3, G11, G15, G27, G32, G36: betas, floor, margin, scale and the window of the spike rule can be set; unset, they are
    what they were."""
    training = TrainingConfig()
    assert training.betas == (0.9, 0.95)
    assert training.final_learning_rate_ratio == 0.1
    assert training.link_logit_scale == 2.0
    assert (training.skip_grad_norm, training.skip_minimum, training.skip_window) == (0.0, 50, 200)
    assert LossConfig().pair_margin == PAIR_MARGIN == 1.0
    assert (TRAINING_BYTES_PER_PARAMETER, DEVICE_MEMORY_HEADROOM) == (16, 0.85)


@pytest.mark.parametrize(
    ("key", "value"), [("link_head", "dot"), ("precision", "fp8"), ("parallelism", "dp"), ("max_steps", 0)]
)
def test_a_value_that_means_nothing_is_no_default(key: str, value: object) -> None:
    """D17, D18: an unknown link head is not the cosine, and 0 steps are not as many as usual."""
    with pytest.raises(ValidationError, match=key):
        TrainingConfig.model_validate({key: value})


def test_answers_outside_the_graph_are_refused_where_datasets_are_made(bench, tmp_path: Path) -> None:
    """D14: they are not dropped without a word, so a supported example has an answer to find, and a count counts what is
    there."""
    split = bench.dataset.split("train")
    relations = bench.dataset.vocabulary.num_relations
    examples = [split.example(unit) for unit in range(len(split))]
    for example in examples:
        check_structure(example, relations)
        if example.status is Status.SUPPORTED and example.kind in (QueryKind.LINK, QueryKind.MULTI_HOP):
            assert example.answers
    chosen = next(example for example in examples if example.answers)
    with pytest.raises(DataError, match=f"node {chosen.graph.num_nodes} is not there"):
        check_structure(replace(chosen, answers=(*chosen.answers, chosen.graph.num_nodes)), relations)
    record = {
        "nodes": ["Ann", "Bob"],
        "edges": [["Ann", "parent", "Bob"]],
        "query": {"anchors": ["Ann"], "relations": ["parent"], "answer_mode": "entities"},
        "answers": ["Bob", "Eve"],
    }
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(DataError, match=r"examples\.jsonl:1: answer 'Eve' is not among the nodes"):
        read_examples(path)
    columns = split.columns(np.arange(len(split)))
    counted = [example for example in examples if example.query.answer_mode is AnswerMode.COUNT]
    assert counted
    counts = dict(zip(columns.values["example_id"].tolist(), columns.values["answer_count"].tolist(), strict=False))
    for example in counted:
        if example.pair is None:
            assert counts[example.example_id] == len(example.answers)
