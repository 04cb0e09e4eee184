"""The run manifest."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import hopline
from hopline.config import ARCHITECTURE_VERSION, section_hash
from hopline.training import CUBLAS_WORKSPACE_ENV, Determinism, build_run_manifest, model_hash

KEYS = (
    "model_version",
    "config_hash",
    "architecture_version",
    "dataset_hash",
    "generator_version",
    "seed",
    "step",
    "python",
    "platform",
    "torch",
    "cuda",
    "device",
    "pat_config",
    "pat_config_hash",
    "generator_hash",
    "model_hash",
    "git_commit",
    "git_dirty",
    "parameter_count",
    "parameter_buckets",
    "deterministic_requested",
    "cublas_workspace_config",
    "environment",
    "checkpoint_sha256",
    "link_objective",
)
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "HOPLINE_GIT_COMMIT",
    "HOPLINE_IMAGE_DIGEST",
    CUBLAS_WORKSPACE_ENV,
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def manifest(bench):
    """The manifest of a training that has done nothing yet."""

    def build(trainer=None, determinism: Determinism | None = None, **training: Any) -> dict[str, Any]:
        trainer = trainer or bench.trainer(bench.config(**training))
        return build_run_manifest(trainer, bench.dataset.index, determinism or Determinism(True, True))

    return build


def test_every_fact_is_there_and_each_null_has_its_reason(manifest) -> None:
    """G48: all keys; what is not known is null, and the manifest says why."""
    facts = manifest()
    assert set(KEYS) <= set(facts)
    nulls = {name for name, value in facts.items() if value is None}
    assert nulls == set(facts["reasons"])
    assert all(facts["reasons"].values())
    assert {"checkpoint_sha256", "environment", "image_digest", "cublas_workspace_config", "gpus"} <= nulls
    assert "unknown" not in facts.values()
    assert json.loads(json.dumps(facts, sort_keys=True, allow_nan=False)) == facts


def test_the_facts_are_those_of_this_training(bench, manifest) -> None:
    """G48, G49, D43: digests of the data and of the generator's code, not of a version's name."""
    trainer = bench.run(bench.config(max_steps=2, seed=5))
    facts = manifest(trainer)
    index = bench.dataset.index
    assert (facts["step"], facts["seed"]) == (2, 5)
    assert facts["dataset_hash"] == bench.dataset.dataset_hash
    assert facts["generator_version"] == index.generator.version
    assert facts["generator_hash"] == index.generator.code_digest
    assert len(facts["generator_hash"]) == 64
    assert facts["architecture_version"] == ARCHITECTURE_VERSION
    assert facts["config_hash"] == section_hash(trainer.config)
    assert facts["model_version"] == trainer.config.model.model_version
    assert facts["pat_config"] == trainer.config.model.pat.model_dump(mode="json")
    assert facts["pat_config_hash"] == section_hash(trainer.config.model.pat)
    assert facts["model_hash"] == model_hash(trainer.model.state_dict())
    assert facts["parameter_count"] == sum(p.numel() for p in trainer.model.parameters())
    total = facts["parameter_buckets"].pop("total")
    assert total == sum(facts["parameter_buckets"].values()) == facts["parameter_count"]
    assert (facts["python"], facts["torch"]) == (platform.python_version(), torch.__version__)


def test_the_hash_of_the_model_follows_its_weights(bench, manifest) -> None:
    """G49."""
    trainer = bench.trainer()
    before = manifest(trainer)["model_hash"]
    with torch.no_grad():
        next(trainer.model.parameters()).view(-1)[0] += 1
    assert manifest(trainer)["model_hash"] != before


def test_what_the_run_ran_on(manifest) -> None:
    """G33, D47: size of the world, precision asked and used, batch."""
    facts = manifest(precision="bf16", batch_size=4, gradient_accumulation=3)
    assert (facts["precision_asked"], facts["precision_used"]) == ("bf16", "fp32")
    assert facts["batch"] == {"batch_size": 4, "gradient_accumulation": 3}
    assert (facts["device"], facts["world_size"]) == ("cpu", 1)
    assert facts["topology"] == {
        "nodes": 1,
        "processes_per_node": 1,
        "threads": torch.get_num_threads(),
        "parallelism": "none",
    }
    assert {facts[name] for name in ("gpus", "nccl", "driver")} == {None}


def test_the_link_objective_is_the_one_that_was_trained(manifest) -> None:
    """D18: with the mlp head there is no cosine and no scale."""
    cosine = manifest(link_logit_scale=3.0)["link_objective"]
    assert cosine == {"form": "link_logit_scale * cosine", "link_logit_scale": 3.0}
    assert manifest(link_head="mlp")["link_objective"] == {"form": "mlp", "link_logit_scale": None}


def test_determinism_is_what_was_achieved(manifest) -> None:
    """D44: the request and the outcome are two facts, and the record says why they differ."""
    facts = manifest(determinism=Determinism(True, False, "too late"))
    assert (facts["deterministic_requested"], facts["deterministic_achieved"]) == (True, False)
    assert facts["deterministic_reason"] == "too late"
    for asked, why in ((True, "it was achieved"), (False, "it was not asked for")):
        facts = manifest(determinism=Determinism(asked, asked))
        assert (facts["deterministic_requested"], facts["deterministic_achieved"]) == (asked, asked)
        assert (facts["deterministic_reason"], facts["reasons"]["deterministic_reason"]) == (None, why)


def test_the_environment_that_matters_and_no_more(manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    """G48: the variables of the launch if they are set; no secret of the environment ever gets in."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv(CUBLAS_WORKSPACE_ENV, ":16:8")
    monkeypatch.setenv("HOPLINE_IMAGE_DIGEST", "sha256:abc")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-mine")
    facts = manifest()
    assert facts["environment"] == {"RANK": "0", "CUDA_VISIBLE_DEVICES": ""}
    assert facts["cublas_workspace_config"] == ":16:8"
    assert facts["image_digest"] == "sha256:abc"
    assert not {"environment", "cublas_workspace_config", "image_digest"} & set(facts["reasons"])
    assert "a-secret-of-mine" not in json.dumps(facts)


def test_a_build_tells_its_commit(manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    """D46: an image has no git; the commit comes with it."""
    monkeypatch.setenv("HOPLINE_GIT_COMMIT", "c0ffee")
    monkeypatch.setenv("PATH", "")
    facts = manifest()
    assert (facts["git_commit"], facts["git_dirty"]) == ("c0ffee", None)
    assert "not the state of the work tree" in facts["reasons"]["git_dirty"]


def git(folder: Path, *arguments: str) -> str:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.strip()


@pytest.fixture
def work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work tree with one commit that this package seems to lie in."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    package = tmp_path / "tree" / "src" / "hopline"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    root = tmp_path / "tree"
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "One")
    monkeypatch.setattr(hopline, "__file__", str(package / "__init__.py"))
    return root


def test_git_facts_are_those_of_the_package(manifest, work_tree: Path, tmp_path: Path, monkeypatch) -> None:
    """G48, D46: not those of the folder that the process happens to run in."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    facts = manifest()
    assert (facts["git_commit"], facts["git_dirty"]) == (git(work_tree, "rev-parse", "HEAD"), False)
    (work_tree / "new").write_text("")
    assert manifest()["git_dirty"] is True


def test_without_git_its_facts_are_null(manifest, work_tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G50: git is not installed."""
    monkeypatch.setenv("PATH", "")
    facts = manifest()
    assert (facts["git_commit"], facts["git_dirty"]) == (None, None)
    assert "git failed or is not installed" in facts["reasons"]["git_commit"]


def test_an_installed_package_has_no_git_facts(manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G50, D46: site-packages that happen to lie in somebody else's work tree tell nothing about Hopline."""
    monkeypatch.setattr(hopline, "__file__", str(tmp_path / "lib" / "site-packages" / "hopline" / "__init__.py"))
    (tmp_path / ".git").mkdir()
    facts = manifest()
    assert (facts["git_commit"], facts["git_dirty"]) == (None, None)
    assert "no git work tree" in facts["reasons"]["git_commit"]
