"""``hopline plan``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG, hopline


def test_a_line_for_each_stage_and_each_cause(finished: Finished) -> None:
    done = hopline("plan", "-c", CONFIG, "--root", finished.root, "--set", "training.learning_rate=0.01")
    assert (done.code, done.stderr) == (0, "")
    generate, train, evaluate, publish = done.stdout.splitlines()
    assert generate.split() == ["generate", "reuse", finished.results["generate"]["dataset_uri"]]
    assert train == "train     redo   training.learning_rate: 0.002 -> 0.01"
    assert evaluate.split() == ["evaluate", "redo", "depends", "on", "train"]
    assert publish.split() == ["publish", "redo", "depends", "on", "evaluate"]


def test_json_is_one_object(finished: Finished) -> None:
    found = hopline("plan", "-c", CONFIG, "--root", finished.root, "--set", "model.layers=3", "--json").result
    assert set(found) == {"root", "config", "stages"}
    assert [stage["action"] for stage in found["stages"]] == ["reuse", "redo", "redo", "redo"]
    assert found["stages"][1]["because"] == [{"kind": "config", "name": "model.layers", "before": 2, "now": 3}]


def test_many_causes_are_cut_for_people_alone(finished: Finished) -> None:
    sets = [f"model.{key}={value}" for key, value in {"hidden_dim": 8, "layers": 3}.items()]
    extra = [f"evaluation.selection.m{number}=1.0" for number in range(14)]
    words = [word for one in (*sets, *extra) for word in ("--set", one)]
    done = hopline("plan", "-c", CONFIG, "--root", finished.root, *words)
    assert "and 5 more; --json lists them" in done.stdout
    found = hopline("plan", "-c", CONFIG, "--root", finished.root, *words, "--json").result
    assert len(found["stages"][1]["because"]) == 17


def test_a_missing_source_is_one_line(tmp_path: Path) -> None:
    error = hopline("plan", "-c", CONFIG, "--root", tmp_path, "--set", f"dataset.source={tmp_path}/none").error
    assert "no such folder" in error


def test_neither_torch_nor_boto3_is_loaded(finished: Finished) -> None:
    script = (
        "import json, sys\n"
        "from hopline.cli import main\n"
        "try:\n"
        f"    main(['plan', '-c', {str(CONFIG)!r}, '--root', {str(finished.root)!r}])\n"
        "except SystemExit as done:\n"
        "    assert not done.code, done.code\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.count("reuse") == 4
    assert {"torch", "boto3", "matplotlib"} & set(json.loads(done.stderr)) == set()
