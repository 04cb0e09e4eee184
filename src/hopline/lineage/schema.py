"""The ten parts of a manifest, as typed, frozen models. Every key is documented at its field."""

from __future__ import annotations

import itertools
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from hopline.lineage.names import path_problem, paths_problem
from hopline.lineage.record import RunManifest
from hopline.lineage.values import BigInt, Count, Part, Sha256, Text

__all__ = [
    "SELECTION_RULE",
    "Attempt",
    "Calibration",
    "Candidate",
    "ChampionReference",
    "CheckpointReference",
    "CodePart",
    "ConfigPart",
    "DatasetPart",
    "EnvironmentPart",
    "EvaluationPart",
    "FileRecord",
    "GateRecord",
    "GeneratorRecord",
    "Metric",
    "OverrideRecord",
    "ParentsPart",
    "PipelinePart",
    "SelectionRule",
    "ShardRecord",
    "SliceRow",
    "SourceFile",
    "SourceRecord",
    "SplitRecord",
    "Subjects",
    "TrainingPart",
]

SELECTION_RULE: Final = "highest-score-earliest-step"
"""The candidate with the highest selection score on valid; among equals the earliest step; one without a score never."""


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
    """The training stage's own record, as it wrote it beside the chosen checkpoint."""


class Metric(Part):
    """One measured figure."""

    value: float | None = None
    n: Count | None = None
    """Examples, queries or bins that it was measured on."""
    interval: tuple[float, float] | None = None
    """95% confidence interval."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise ValueError("the interval's lower end lies above its upper end")
        return self


class Candidate(Part):
    """One row of the table of candidate checkpoints."""

    step: Count
    uri: Text
    sha256: Sha256
    """Digest of the candidate's index.json, which holds the digests of its files."""
    tensors_digest: Sha256 | None = None
    """Digest of its weights; that of the chosen one is the digest of the published weights."""
    score: float | None = None
    """Selection score on valid; higher is better."""
    metrics: dict[str, float]
    """Its metrics on valid that the score is made of; one that was not a finite number is left out."""


class SelectionRule(Part):
    """How one of the candidates was chosen."""

    id: Literal["highest-score-earliest-step"]
    text: Text
    """The rule in words."""
    weights: dict[str, float]
    """Metric on valid -> its weight in the selection score, which is the weighted mean."""


class CheckpointReference(Part):
    """A checkpoint by its digest."""

    uri: Text | None = None
    step: Count | None = None
    sha256: Sha256


class Calibration(Part):
    """The confidence temperature and what it was fitted on."""

    method: Text
    temperature: Annotated[float, Field(gt=0)]
    split: Text
    n: Count | None = None


class SliceRow(Part):
    """Metrics on a part of the test split."""

    name: Text
    """Such as `hops=2`."""
    n: Count
    metrics: dict[str, float]
    """Metrics by name; one that is not defined on this slice is left out."""


class EvaluationPart(Part):
    """Part 8: what was measured, and why this checkpoint was chosen."""

    split: Text
    """The split of the metrics."""
    split_digest: Sha256
    metrics: dict[str, Metric]
    evaluator_digest: Sha256
    """Digest of the evaluation's sources."""
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1)]
    """Every candidate, by step."""
    rule: SelectionRule
    chosen: CheckpointReference
    calibration: Calibration | None = None
    slices: tuple[SliceRow, ...] | None = None

    @model_validator(mode="after")
    def _table(self) -> Self:
        steps = [candidate.step for candidate in self.candidates]
        if any(a >= b for a, b in itertools.pairwise(steps)):
            raise ValueError("the candidates are not sorted by step, or one step stands twice")
        return self

    def values(self) -> dict[str, float | None]:
        """The metrics as a flat table of name and value."""
        return {name: metric.value for name, metric in self.metrics.items()}


class ChampionReference(Part):
    """The champion that the version was compared with."""

    manifest_hash: Sha256
    split_digest: Sha256
    """Digest of the split that its metrics were measured on."""
    metrics: dict[str, float]


class GateRecord(Part):
    """The gate as it stood, and what it decided when the manifest was written."""

    minimum: dict[str, float]
    allowed_regression: dict[str, float]
    accepted: bool
    because: tuple[Text, ...]
    """The decision's grounds, one for each condition."""


class ParentsPart(Part):
    """Part 9: what came before."""

    initial_checkpoint: CheckpointReference | None = None
    """Where the first weights came from."""
    champion: ChampionReference | None = None
    gate: GateRecord


class PipelinePart(Part):
    """Part 10: the pipeline run."""

    pipeline_digest: Sha256 | None = None
    """sha256 of the compiled pipeline."""
    kfp_run_id: Text | None = None
    job_name: Text | None = None
    job_uid: Text | None = None
