"""The parts about files, data, code, config, training and the pipeline: 2 to 7, and 10."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from hopline.lineage.names import path_problem, paths_problem
from hopline.lineage.record import RunManifest
from hopline.lineage.values import BigInt, Count, Part, Sha256, Text

__all__ = [
    "Attempt",
    "CodePart",
    "ConfigPart",
    "DatasetPart",
    "EnvironmentPart",
    "FileRecord",
    "GeneratorRecord",
    "OverrideRecord",
    "PipelinePart",
    "ShardRecord",
    "SourceFile",
    "SourceRecord",
    "SplitRecord",
    "Subjects",
    "TrainingPart",
]


def _published_path(value: str) -> str:
    if problem := path_problem(value):
        raise ValueError(problem)
    return value


class FileRecord(Part):
    """One published file."""

    path: Annotated[str, AfterValidator(_published_path)]
    """Path in the version's folder, with '/'."""
    size: Count
    """Bytes."""
    sha256: Sha256
    """Digest of the bytes."""
    media_type: Text
    """What the bytes are."""


class Subjects(Part):
    """Part 2: what was published, except the manifest and its signature."""

    files: Annotated[tuple[FileRecord, ...], Field(min_length=1)]
    """Every file, sorted by path."""
    tensors_digest: Sha256
    """Digest of the weights as tensors, whatever files they lie in (``hopline.lineage.tensors_digest``)."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        paths = [file.path for file in self.files]
        if problem := paths_problem(paths):
            raise ValueError(problem)
        if paths != sorted(paths):
            raise ValueError("the files are not sorted by path")
        return self


class ShardRecord(Part):
    """One file of a dataset."""

    file: Text
    units: Count
    rows: Count
    bytes: Count
    sha256: Sha256


class SplitRecord(Part):
    """One split of the dataset."""

    units: Count
    """Examples; one with its twin counts once."""
    rows: Count
    """Examples, twins counted."""
    digest: Sha256
    """Digest of the split's logical content; two measurements are comparable where it is equal."""
    shards: tuple[ShardRecord, ...]
    """The files that held the split when the model was made."""


class GeneratorRecord(Part):
    """What made the dataset."""

    name: Text
    version: Text | None = None
    code_digest: Sha256 | None = None
    """Digest of the generator's sources."""


class SourceFile(Part):
    """One file that the dataset was made from."""

    path: Text
    bytes: Count
    sha256: Sha256


class SourceRecord(Part):
    """What the dataset was made from."""

    uri: Text
    files: tuple[SourceFile, ...]


class DatasetPart(Part):
    """Part 3: the data."""

    dataset_hash: Sha256
    """Digest of the dataset's logical content."""
    splits: dict[str, SplitRecord]
    generator: GeneratorRecord
    config: dict[str, JsonValue]
    """The dataset section of the config that made it."""
    seed: BigInt
    source: SourceRecord | None = None
    vocabulary_digest: Sha256
    """sha256 of the vocabulary as canonical JSON."""
    split_rule: Text | None = None
    """How examples were divided into splits, in words."""
    leakage: JsonValue = None
    """What the leakage check found."""


class CodePart(Part):
    """Part 4: the code that published the model, as told by the build, the environment, or a work tree that is there."""

    hopline: Text
    """Version of Hopline."""
    git_commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")] | None = None
    git_dirty: bool | None = None
    """The work tree had changes beside the commit."""
    patch_digest: Sha256 | None = None
    """sha256 of `git diff --binary HEAD`, where the tree was dirty."""
    wheel_digest: Sha256 | None = None
    constraints_digest: Sha256 | None = None
    """sha256 of constraints.txt."""
    image_digest: Annotated[str, Field(pattern=r"^(\S+@)?sha256:[0-9a-f]{64}$")] | None = None
    stages: dict[str, Sha256]
    """Stage -> digest of the sources that its result depends on."""


class OverrideRecord(Part):
    """One override of the config file."""

    key: Text
    value: JsonValue
    origin: Text
    """Where it came from, such as `--set`."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_a_value(cls, data: object) -> object:
        if isinstance(data, dict) and "value" in data and data["value"] is None and "reasons" not in data:
            return {**data, "reasons": {"value": "the override sets null"}}
        return data


class ConfigPart(Part):
    """Part 5: the full resolved config. Its own nulls are settings (`null = never`), not unknowns."""

    source: Text
    """The config file's name."""
    config_hash: Sha256
    """Hash of the whole config."""
    sections: dict[str, Sha256]
    """Section -> its hash."""
    resolved: dict[str, JsonValue]
    """Every key with its value; defaults are filled in."""
    overrides: tuple[OverrideRecord, ...]


class EnvironmentPart(Part):
    """Part 6: where the model was trained."""

    python: Text | None = None
    platform: Text | None = None
    torch: Text | None = None
    cuda: Text | None = None
    nccl: Text | None = None
    driver: Text | None = None
    device: Text | None = None
    gpus: tuple[Text, ...] | None = None
    """Names of the GPUs, one for each rank that had one."""
    world_size: Annotated[int, Field(ge=1)] | None = None
    topology: JsonValue = None
    """Nodes, processes on each, and how the model was spread over them."""
    precision_asked: Text | None = None
    precision_used: Text | None = None
    deterministic_requested: bool | None = None
    deterministic_achieved: bool | None = None
    cublas_workspace_config: Text | None = None
    environment: dict[str, str] | None = None
    """The environment variables that decide how training is spread."""


class Attempt(Part):
    """One time that training ran, from its start or from a checkpoint."""

    started: Text | None = None
    """Time in UTC, as ISO 8601."""
    ended: Text | None = None
    end_reason: Text | None = None
    """Why it ended."""
    ranks: Annotated[int, Field(ge=1)] | None = None
    resumed_from: Sha256 | None = None
    """Digest of the training state that it continued."""
    first_sample: Count | None = None
    """Position in the stream of samples where it began."""
    last_sample: Count | None = None
    """Position after the last sample that it took."""


class TrainingPart(Part):
    """Part 7: how the weights came about."""

    run_hash: Sha256
    attempts: tuple[Attempt, ...] | None = None
    steps: Count
    stop_reason: Text | None = None
    samples_seen: Count | None = None
    skipped_updates: Count | None = None
    non_finite_updates: Count | None = None
    step_log_digest: Sha256 | None = None
    run_manifest: RunManifest
    """The trainer's own record, with its keys."""


class PipelinePart(Part):
    """Part 10: the pipeline run."""

    pipeline_digest: Sha256 | None = None
    """sha256 of the compiled pipeline."""
    kfp_run_id: Text | None = None
    job_name: Text | None = None
    job_uid: Text | None = None
