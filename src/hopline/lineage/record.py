"""The training stage's run manifest inside ours: the same keys, and a reason wherever a value is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from hopline.errors import DataError
from hopline.lineage.values import BigInt, Part, Sha256, Text, portable

__all__ = ["RunManifest"]

_REASONS: Final[Mapping[str, str]] = {
    "cuda": "this build of torch has no CUDA",
    "cublas_workspace_config": "CUBLAS_WORKSPACE_CONFIG was not set",
    "environment": "none of the variables was set",
    "git_commit": "no commit was given to the build, and there was no work tree",
    "git_dirty": "there was no work tree",
}
_NOT_RECORDED: Final = "the training stage did not record it"


class RunManifest(Part):
    """What ``hopline.training.build_run_manifest`` records of a checkpoint. Further keys are kept as they are."""

    model_config = ConfigDict(extra="allow")

    model_version: Text | None = None
    config_hash: Text | None = None
    architecture_version: Text | None = None
    dataset_hash: Sha256 | None = None
    generator_version: Text | None = None
    seed: BigInt | None = None
    step: BigInt | None = None
    python: Text | None = None
    platform: Text | None = None
    torch: Text | None = None
    cuda: Text | None = None
    device: Text | None = None
    pat_config: dict[str, JsonValue] | None = None
    pat_config_hash: Text | None = None
    generator_hash: Text | None = None
    model_hash: Sha256 | None = None
    git_commit: Text | None = None
    git_dirty: bool | None = None
    parameter_count: BigInt | None = None
    parameter_buckets: dict[str, JsonValue] | None = None
    deterministic_requested: bool | None = None
    cublas_workspace_config: Text | None = None
    environment: dict[str, str] | None = None
    checkpoint_sha256: Sha256 | None = None
    link_objective: dict[str, JsonValue] | None = None

    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    @classmethod
    def from_record(cls, record: Mapping[str, Any], *, reasons: Mapping[str, str] | None = None) -> Self:
        """Take over a run manifest; a value that is missing, None, empty or ``"unknown"`` becomes null with a reason.

        Raises:
            DataError: a value has the wrong type, or a number is not finite.
        """
        given = {key: value for key, value in record.items() if key != "reasons"}
        known = {key: None if value in ("unknown", "") else value for key, value in given.items()}
        own = record.get("reasons")
        why = {**_REASONS, **(own if isinstance(own, Mapping) else {}), **(reasons or {})}
        try:
            return cls.known(portable(known), otherwise=_NOT_RECORDED, reasons=why)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "run manifest"
            raise DataError(f"run manifest: {where}: {first['msg']}; found {first['input']!r}") from None
        except ValueError as error:
            raise DataError(f"run manifest: {error}") from None
