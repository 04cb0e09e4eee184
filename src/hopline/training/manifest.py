"""The run manifest: what a checkpoint was made of and on. Unknown facts are null, with the reason beside them."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

import hopline
from hopline.config import ARCHITECTURE_VERSION, section_hash
from hopline.datasets import DatasetIndex
from hopline.training.reproducibility import CUBLAS_WORKSPACE_ENV, Determinism, model_hash
from hopline.training.trainer import GraphTrainer

__all__ = ["build_run_manifest"]

_ENVIRONMENT: Final = ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK")
_COMMIT: Final = "HOPLINE_GIT_COMMIT"
_GIT: Final = ("git_commit", "git_dirty")
_IMAGE: Final = "HOPLINE_IMAGE_DIGEST"
_NO_CUDA: Final = "training ran on the CPU"


def build_run_manifest(trainer: GraphTrainer, index: DatasetIndex, determinism: Determinism) -> dict[str, Any]:
    """Facts about a training as it stands, ready for JSON; collective, and right on the main process.

    ``reasons`` says why a value is null. Git facts come from the build (``HOPLINE_GIT_COMMIT``), else from the work tree
    that this package lies in, never from the folder that the process happens to run in.
    """
    config, training = trainer.config, trainer.config.training
    on_cuda = trainer.device.type == "cuda"
    commit, dirty, git_reasons = _git_facts()
    facts: dict[str, Any] = {
        "model_version": config.model.model_version,
        "config_hash": section_hash(config),
        "architecture_version": ARCHITECTURE_VERSION,
        "dataset_hash": index.dataset_hash,
        "generator_version": index.generator.version,
        "generator_hash": index.generator.code_digest,
        "seed": training.seed,
        "step": trainer.step,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": _nccl_version() if on_cuda else None,
        "driver": None,
        "gpus": trainer.world.gather(torch.cuda.get_device_name(trainer.device)) if on_cuda else None,
        "device": str(trainer.device),
        "world_size": trainer.world.size,
        "topology": {
            "nodes": -(-trainer.world.size // trainer.world.local_size),
            "processes_per_node": trainer.world.local_size,
            "threads": torch.get_num_threads(),
            "parallelism": training.parallelism if trainer.world.size > 1 else "none",
        },
        "precision_asked": training.precision,
        "precision_used": trainer.effective_precision,
        "pat_config": config.model.pat.model_dump(mode="json"),
        "pat_config_hash": section_hash(config.model.pat),
        "model_hash": model_hash(trainer.weights()),
        "git_commit": commit,
        "git_dirty": dirty,
        "image_digest": os.environ.get(_IMAGE) or None,
        "parameter_count": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "parameter_buckets": dict(trainer.model.parameter_buckets()),
        "deterministic_requested": determinism.requested,
        "deterministic_achieved": determinism.achieved,
        "deterministic_reason": determinism.reason,
        "cublas_workspace_config": os.environ.get(CUBLAS_WORKSPACE_ENV),
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} or None,
        "checkpoint_sha256": None,
        "link_objective": _link_objective(trainer),
        "batch": {"batch_size": training.batch_size, "gradient_accumulation": training.gradient_accumulation},
    }
    reasons = {
        "cuda": "this build of torch has no CUDA",
        "nccl": _NO_CUDA,
        "gpus": _NO_CUDA,
        "driver": _driver_reason() if on_cuda else _NO_CUDA,
        **git_reasons,
        "image_digest": f"{_IMAGE} was not set",
        "deterministic_reason": "it was achieved" if determinism.achieved else "it was not asked for",
        "cublas_workspace_config": f"{CUBLAS_WORKSPACE_ENV} was not set",
        "environment": f"none of {', '.join(_ENVIRONMENT)} was set",
        "checkpoint_sha256": "the record is of the run; each candidate has its own digest",
    }
    if on_cuda:
        facts["driver"] = _driver_version()
    facts["reasons"] = {name: why for name, why in reasons.items() if facts[name] is None}
    return facts


def _link_objective(trainer: GraphTrainer) -> Mapping[str, Any]:
    training = trainer.config.training
    if training.link_head == "mlp":
        return {"form": "mlp", "link_logit_scale": None}
    return {"form": "link_logit_scale * cosine", "link_logit_scale": training.link_logit_scale}


def _git_facts() -> tuple[str | None, bool | None, Mapping[str, str]]:
    """Commit, whether the work tree had changes, and why one of them is not known."""
    told = os.environ.get(_COMMIT)
    if told:
        return told, None, {"git_dirty": f"{_COMMIT} tells the commit, not the state of the work tree"}
    root = Path(hopline.__file__).resolve().parents[2]
    if not (root / ".git").exists() or not (root / "src" / "hopline").is_dir():
        return None, None, dict.fromkeys(_GIT, f"{_COMMIT} was not set, and the package lies in no git work tree")
    commit, status = _git(root, "rev-parse", "HEAD"), _git(root, "status", "--porcelain")
    dirty = None if status is None else bool(status)
    return commit, dirty, dict.fromkeys(_GIT, f"{_COMMIT} was not set, and git failed or is not installed")


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        found = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _nccl_version() -> str:
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def _driver_version() -> str | None:
    path = Path("/proc/driver/nvidia/version")
    return path.read_text(encoding="utf-8").splitlines()[0].strip() if path.is_file() else None


def _driver_reason() -> str:
    return "/proc/driver/nvidia/version is not there"
