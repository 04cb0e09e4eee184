"""Configs of jobs for the tests of this room."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopline.cluster import JobSpec, job_spec
from hopline.config import ResolvedConfig, resolve_config
from hopline.stages import encode_config

ROOT = Path(__file__).parents[2]
IMAGE = "registry.example/hopline/train:1.0"


def resolved(*overrides: str, name: str = "umls") -> ResolvedConfig:
    """A config of a job, one node where no override says more."""
    first = ("cluster.backend=pytorchjob", f"cluster.image={IMAGE}")
    return resolve_config(f"name: {name}\n", source="c.yaml", overrides=[*first, *overrides])


@pytest.fixture
def spec() -> Callable[..., JobSpec]:
    """Makes the job of a config with overrides."""

    def make(*overrides: str, name: str = "umls", root: str = "s3://bucket/root", **inputs: Any) -> JobSpec:
        config = resolved(*overrides, name=name)
        return job_spec(config.config, config_json=encode_config(config), root=root, **inputs)

    return make


@pytest.fixture(scope="session")
def crds() -> Path:
    """The folder of the real CRDs: ``HOPLINE_CRDS``, else ``data/crds`` of a folder above the repository."""
    named = os.environ.get("HOPLINE_CRDS")
    candidates = [Path(named)] if named else [path for up in ROOT.parents for path in up.glob("*/data/crds")]
    for folder in candidates:
        if (folder / "kubeflow.org_pytorchjobs.yaml").is_file():
            return folder
    pytest.skip("the CRDs are not here; name their folder with HOPLINE_CRDS")
