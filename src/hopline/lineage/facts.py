"""From what the other rooms know to parts of a manifest. What is not known becomes null, with the reason."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

import hopline
from hopline.config import GateConfig, GraphConfig, ResolvedConfig, section_hash
from hopline.errors import DataError
from hopline.lineage.gate import GateDecision
from hopline.lineage.manifest import explain
from hopline.lineage.record import RunManifest
from hopline.lineage.schema import (
    Candidate,
    CodePart,
    ConfigPart,
    EnvironmentPart,
    GateRecord,
    Metric,
    OverrideRecord,
    PipelinePart,
)
from hopline.lineage.values import portable
from hopline.storage import sha256_bytes

__all__ = [
    "candidate",
    "code_part",
    "config_part",
    "environment_part",
    "gate_record",
    "metrics_table",
    "pipeline_part",
    "section_hashes",
]

_CODE_VARIABLES: Final[Mapping[str, str]] = {
    "git_commit": "HOPLINE_GIT_COMMIT",
    "wheel_digest": "HOPLINE_WHEEL_DIGEST",
    "constraints_digest": "HOPLINE_CONSTRAINTS_DIGEST",
    "image_digest": "HOPLINE_IMAGE_DIGEST",
}
_PIPELINE_VARIABLES: Final[Mapping[str, str]] = {
    "pipeline_digest": "HOPLINE_PIPELINE_DIGEST",
    "kfp_run_id": "KFP_RUN_ID",
    "job_name": "HOPLINE_JOB_NAME",
    "job_uid": "HOPLINE_JOB_UID",
}


def section_hashes(config: GraphConfig) -> dict[str, str]:
    """Hash every section of a config by ``hopline.config.section_hash``."""
    sections = (name for name in type(config).model_fields if name != "name")
    return {name: section_hash(getattr(config, name)) for name in sections}


def config_part(resolved: ResolvedConfig) -> ConfigPart:
    """Part 5 from a resolved config. Of the file's path only the name is kept: the folder says nothing about the run."""
    config = resolved.config
    return ConfigPart(
        source=Path(resolved.source).name or resolved.source,
        config_hash=section_hash(config),
        sections=section_hashes(config),
        resolved=portable(config.to_dict()),
        overrides=tuple(
            OverrideRecord.model_validate({"key": item.key, "value": portable(item.value), "origin": item.origin})
            for item in resolved.overrides
        ),
    )


def environment_part(run_manifest: Mapping[str, Any]) -> EnvironmentPart:
    """Part 6 from a training run manifest: the keys that both have.

    Raises:
        DataError: a value has the wrong type.
    """
    record = RunManifest.from_record(run_manifest)
    fields = [name for name in EnvironmentPart.model_fields if name != "reasons"]
    values = {name: getattr(record, name, None) for name in fields}
    if isinstance(values["gpus"], list):
        values["gpus"] = tuple(values["gpus"])
    try:
        return EnvironmentPart.known(
            values,
            otherwise="the training stage did not record it",
            reasons={name: record.reasons[name] for name in fields if name in record.reasons},
        )
    except ValidationError as error:
        raise DataError(f"run manifest: {explain(error)}") from None


def code_part(
    stages: Mapping[str, str], *, environ: Mapping[str, str] | None = None, work_tree: Path | None = None
) -> CodePart:
    """Part 4, from the variables that a build sets (``HOPLINE_GIT_COMMIT``, ``HOPLINE_IMAGE_DIGEST``, ...), else from git.

    Args:
        stages: digest of the sources that each stage depends on.
        work_tree: a folder that may be a git work tree; git is asked only where a ``.git`` is there, and only if no
            commit was given.

    Raises:
        DataError: a variable holds something else than the commit or digest that it is for.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {field: environ.get(name) or None for field, name in _CODE_VARIABLES.items()}
    reasons = {field: f"{name} is not set" for field, name in _CODE_VARIABLES.items()}
    reasons["git_dirty"] = "the build gave a commit, not the state of its work tree"
    reasons["patch_digest"] = "the state of the work tree is not known"
    if values["git_commit"] is None:
        told = _git_facts(work_tree)
        values.update(told)
        if not told:
            reasons["git_commit"] = f"{_CODE_VARIABLES['git_commit']} is not set, and there is no git work tree"
            reasons["git_dirty"] = "there is no git work tree"
        elif values["git_dirty"] is False:
            reasons["patch_digest"] = "there is no patch: the work tree is clean"
    if values["constraints_digest"] is None and work_tree is not None and (work_tree / "constraints.txt").is_file():
        values["constraints_digest"] = sha256_bytes((work_tree / "constraints.txt").read_bytes())
    values.update(hopline=hopline.__version__, stages=dict(stages))
    try:
        return CodePart.known(values, otherwise="not known", reasons=reasons)
    except ValidationError as error:
        raise DataError(f"code identity ({', '.join(_CODE_VARIABLES.values())}): {explain(error)}") from None


def pipeline_part(environ: Mapping[str, str] | None = None) -> PipelinePart:
    """Part 10 from the environment of a pipeline's step; everything is null outside a pipeline. Raises ``DataError``."""
    environ = os.environ if environ is None else environ
    values = {field: environ.get(name) or None for field, name in _PIPELINE_VARIABLES.items()}
    reasons = {field: f"{name} is not set" for field, name in _PIPELINE_VARIABLES.items()}
    try:
        return PipelinePart.known(values, otherwise="not known", reasons=reasons)
    except ValidationError as error:
        raise DataError(f"pipeline ({', '.join(_PIPELINE_VARIABLES.values())}): {explain(error)}") from None


def metrics_table(
    metrics: Mapping[str, float | None], *, intervals: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, Metric]:
    """Turn flat metrics into records. ``n`` of ``link.mrr`` is the metric ``link.n``, or that of the nearest prefix."""
    intervals = intervals or {}
    table = {}
    for name, value in metrics.items():
        finite = value is not None and math.isfinite(value)
        table[name] = Metric.known(
            {"value": value if finite else None, "n": _count(name, metrics), "interval": intervals.get(name)},
            otherwise="not measured",
            reasons={
                "value": "not defined on this split",
                "n": "the number of examples was not recorded",
                "interval": "no confidence interval was estimated",
            },
        )
    return table


def candidate(
    *,
    step: int,
    uri: str,
    sha256: str,
    score: float | None,
    metrics: Mapping[str, float | None],
    weights: Mapping[str, float],
    tensors_digest: str | None = None,
) -> Candidate:
    """One row of the table: of its metrics on valid, those that the selection weights name."""
    kept = {name: metrics.get(name) for name in weights}
    return Candidate.known(
        {
            "step": step,
            "uri": uri,
            "sha256": sha256,
            "score": score if score is not None and math.isfinite(score) else None,
            "tensors_digest": tensors_digest,
            "metrics": {name: value for name, value in kept.items() if value is not None and math.isfinite(value)},
        },
        otherwise="not recorded",
        reasons={"score": "the score was not a number", "tensors_digest": "its weights were not digested"},
    )


def gate_record(gate: GateConfig, decision: GateDecision) -> GateRecord:
    """The gate and its decision, as part 9 holds them."""
    return GateRecord(
        minimum=dict(gate.minimum),
        allowed_regression=dict(gate.allowed_regression),
        accepted=decision.accepted,
        because=decision.reasons,
    )


def _count(name: str, metrics: Mapping[str, float | None]) -> int | None:
    parts = name.split(".")
    for end in range(len(parts) - 1, -1, -1):
        count = metrics.get(".".join([*parts[:end], "n"]))
        if count is not None and math.isfinite(count) and count >= 0 and float(count).is_integer():
            return int(count)
    return None


def _git_facts(work_tree: Path | None) -> dict[str, Any]:
    if work_tree is None or not (work_tree / ".git").exists():
        return {}
    commit = _git(work_tree, "rev-parse", "HEAD")
    patch = _git(work_tree, "diff", "--binary", "HEAD")
    status = _git(work_tree, "status", "--porcelain")
    if commit is None or patch is None or status is None:
        return {}
    return {
        "git_commit": commit.decode().strip(),
        "git_dirty": bool(status),
        "patch_digest": sha256_bytes(patch) if status else None,
    }


def _git(work_tree: Path, *arguments: str) -> bytes | None:
    command = ["git", "-C", str(work_tree), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
