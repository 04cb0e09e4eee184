from __future__ import annotations

import subprocess

import pytest

import hopline
from hopline.config import load_config, section_hash
from hopline.errors import DataError
from hopline.lineage import code_part, config_part, environment_part, pipeline_part
from hopline.storage import sha256_bytes

COMMIT = "0123456789" * 4


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_code_is_told_by_the_build():
    environ = {
        "HOPLINE_GIT_COMMIT": COMMIT,
        "HOPLINE_IMAGE_DIGEST": f"registry.example/train@sha256:{'a' * 64}",
        "HOPLINE_WHEEL_DIGEST": "b" * 64,
        "HOPLINE_CONSTRAINTS_DIGEST": "c" * 64,
    }
    part = code_part({"train": "d" * 64}, environ=environ)
    assert part.git_commit == COMMIT
    assert part.image_digest.endswith("a" * 64)
    assert (part.wheel_digest, part.constraints_digest) == ("b" * 64, "c" * 64)
    assert part.hopline == hopline.__version__
    assert part.stages == {"train": "d" * 64}
    assert part.reasons.keys() == {"git_dirty", "patch_digest"}


def test_code_without_anything_says_so():
    part = code_part({}, environ={"HOPLINE_GIT_COMMIT": ""})
    assert part.git_commit is None
    assert "HOPLINE_GIT_COMMIT is not set" in part.reasons["git_commit"]
    assert "HOPLINE_IMAGE_DIGEST is not set" in part.reasons["image_digest"]


@pytest.mark.parametrize("value", ["unknown", "abc", COMMIT + "x", "main"])
def test_a_commit_that_is_none_is_refused(value):
    with pytest.raises(DataError, match="git_commit"):
        code_part({}, environ={"HOPLINE_GIT_COMMIT": value})


def test_code_from_a_work_tree(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    clean = code_part({}, environ={}, work_tree=tmp_path)
    assert len(clean.git_commit) == 40
    assert clean.git_dirty is False
    assert "clean" in clean.reasons["patch_digest"]
    assert clean.constraints_digest == sha256_bytes(b"torch==2.13.0\n")
    (tmp_path / "a").write_text("2\n")
    dirty = code_part({}, environ={}, work_tree=tmp_path)
    assert dirty.git_commit == clean.git_commit
    assert dirty.git_dirty is True
    first = dirty.patch_digest
    (tmp_path / "a").write_text("3\n")
    assert code_part({}, environ={}, work_tree=tmp_path).patch_digest != first
    # what the build says holds, whatever lies around it
    assert code_part({}, environ={"HOPLINE_GIT_COMMIT": COMMIT}, work_tree=tmp_path).git_commit == COMMIT


def test_a_folder_inside_another_work_tree_is_none(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "site-packages").mkdir()
    assert code_part({}, environ={}, work_tree=tmp_path / "site-packages").git_commit is None


def test_an_empty_repository_has_no_commit(tmp_path):
    git(tmp_path, "init", "-q")
    assert code_part({}, environ={}, work_tree=tmp_path).git_commit is None


def test_the_pipeline_run_is_told_by_the_environment():
    part = pipeline_part({"KFP_RUN_ID": "r-1", "HOPLINE_JOB_NAME": "train-1"})
    assert (part.kfp_run_id, part.job_name) == ("r-1", "train-1")
    assert part.reasons.keys() == {"pipeline_digest", "job_uid"}
    with pytest.raises(DataError, match="pipeline_digest"):
        pipeline_part({"HOPLINE_PIPELINE_DIGEST": "x"})


def test_the_config_with_its_hashes_and_overrides(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("name: tiny\n")
    resolved = load_config(
        path, ["training.learning_rate=1", "training.patience=null", "dataset.seed=99999999999999999"]
    )
    part = config_part(resolved)
    assert part.source == "c.yaml"
    assert part.sections["training"] == section_hash(resolved.config.training)
    assert part.sections.keys() == part.resolved.keys() - {"name"}
    assert part.config_hash == section_hash(resolved.config)
    assert part.resolved["dataset"]["seed"] == "99999999999999999"
    assert [(o.key, o.value, o.origin) for o in part.overrides] == [
        ("training.learning_rate", 1, "--set"),
        ("training.patience", None, "--set"),
        ("dataset.seed", "99999999999999999", "--set"),
    ]


def test_the_environment_comes_from_the_training_record():
    part = environment_part(
        {
            "python": "3.11",
            "cuda": None,
            "gpus": ["H200", "H200"],
            "world_size": 2,
            "environment": {"RANK": "0"},
            "step": 3,
        }
    )
    assert part.python == "3.11"
    assert part.gpus == ("H200", "H200")
    assert part.world_size == 2
    assert "no CUDA" in part.reasons["cuda"]
    assert part.reasons["nccl"] == "the training stage did not record it"
    with pytest.raises(DataError, match="world_size"):
        environment_part({"world_size": 0})
