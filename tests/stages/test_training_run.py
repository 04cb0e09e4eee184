"""A run as every process of it carries it out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hopline.config import load_config
from hopline.progress import NullSink
from hopline.stages import training_run
from hopline.stages.generate_stage import open_dataset
from hopline.stages.roots import open_root
from hopline.training import CUBLAS_WORKSPACE_ENV, Determinism
from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG, stage


class StoppedError(Exception):
    """The preparations are over."""


@pytest.fixture
def settings_of_torch() -> Iterator[None]:
    """Put back what a run settles for its process."""
    parts = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [part.fp32_precision for part in parts]
    yield
    for part, value in zip(parts, before, strict=True):
        part.fp32_precision = value
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.deterministic = False


@pytest.mark.usefixtures("settings_of_torch")
def test_deterministic_kernels_are_asked_for_before_cuda_starts(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G53, D44: afterwards it is too late for cuBLAS, and torch would refuse its products of matrices."""
    started: list[torch.device] = []
    found: list[Determinism] = []
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # leaves the threads of this process alone
    monkeypatch.setenv(CUBLAS_WORKSPACE_ENV, "of somebody else")
    for name in (CUBLAS_WORKSPACE_ENV, "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", started.append)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(started))

    def run(*arguments: object) -> None:
        found.extend(argument for argument in arguments if isinstance(argument, Determinism))
        raise StoppedError

    monkeypatch.setattr(training_run, "_Run", run)
    dataset = open_dataset(finished.root.as_uri(), finished.results["generate"]["dataset_hash"])
    with pytest.raises(StoppedError):
        training_run.carry_out(load_config(CONFIG).config, open_root(str(finished.root)), dataset, "0" * 64, NullSink())
    assert started == [torch.device("cuda", 0)]
    assert found == [Determinism(requested=True, achieved=True)]
    assert os.environ[CUBLAS_WORKSPACE_ENV] == ":4096:8"


def test_a_version_names_the_parent_of_its_run(finished: Finished, root: Path) -> None:
    """G48: and only a run without one began with random weights."""
    version = Path(finished.results["publish"]["manifest_uri"].removeprefix("file://"))
    first = json.loads(version.read_text())["parents"]
    assert first["initial_checkpoint"] is None
    assert first["reasons"]["initial_checkpoint"] == "training began with random weights"
    run = finished.results["train"]["run_hash"]
    parent = next(c for c in finished.results["train"]["candidates"] if c["step"] == 4)
    uri = f"{root.as_uri()}/runs/{run}/candidates/step-00000004"
    sets = (f"training.init_from={uri}@sha256:{parent['sha256']}", "training.max_steps=2")
    for name in ("generate", "train", "evaluate", "publish"):
        result = stage(name, root, *sets).result
    second = json.loads(Path(result["manifest_uri"].removeprefix("file://")).read_text())["parents"]
    assert second["initial_checkpoint"] == {"uri": uri, "step": 4, "sha256": parent["sha256"]}
    assert "initial_checkpoint" not in second.get("reasons", {})
