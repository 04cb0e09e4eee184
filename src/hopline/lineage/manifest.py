"""The manifest: ten parts, written as canonical JSON whose sha256 is the version's id and the name of its folder."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError

from hopline.errors import DataError
from hopline.lineage.schema import (
    CodePart,
    ConfigPart,
    DatasetPart,
    EnvironmentPart,
    EvaluationPart,
    ParentsPart,
    PipelinePart,
    Subjects,
    TrainingPart,
)
from hopline.lineage.values import Part
from hopline.storage import canonical_json, parse_json, sha256_bytes

__all__ = ["SCHEMA_ID", "SCHEMA_VERSION", "ForeignManifestError", "Manifest"]

SCHEMA_ID: Final = "urn:hopline:manifest"
SCHEMA_VERSION: Final = 1
MAX_MANIFEST_BYTES: Final = 8 << 20
"""Many times what a manifest has. Values take much more memory than their text, so a stranger's could exhaust a machine."""


class ForeignManifestError(DataError):
    """A JSON file that is no manifest of Hopline, or one of a schema version that this version does not read."""


class Manifest(Part):
    """Everything that is known of a published version."""

    schema_id: Literal["urn:hopline:manifest"] = "urn:hopline:manifest"
    schema_version: Literal[1] = 1
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    """Name of the model, as a config takes it; its versions lie under ``models/<name>/``."""
    subjects: Subjects
    dataset: DatasetPart
    code: CodePart
    config: ConfigPart
    environment: EnvironmentPart
    training: TrainingPart
    evaluation: EvaluationPart
    parents: ParentsPart
    pipeline: PipelinePart

    @classmethod
    def build(
        cls,
        *,
        name: str,
        subjects: Subjects,
        dataset: DatasetPart,
        code: CodePart,
        config: ConfigPart,
        environment: EnvironmentPart,
        training: TrainingPart,
        evaluation: EvaluationPart,
        parents: ParentsPart,
        pipeline: PipelinePart,
    ) -> Self:
        """Put the parts together.

        Raises:
            DataError: the parts contradict each other, or hold a value that canonical JSON cannot.
        """
        try:
            manifest = cls(
                name=name,
                subjects=subjects,
                dataset=dataset,
                code=code,
                config=config,
                environment=environment,
                training=training,
                evaluation=evaluation,
                parents=parents,
                pipeline=pipeline,
            )
        except ValidationError as error:
            raise DataError(f"manifest: {explain(error)}") from None
        # What cannot be read back must not be published.
        return cls.parse(manifest.to_bytes(), source="manifest")

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> Self:
        """Read a manifest that somebody else may have written; ``source`` (a file or URI) is named in every error.

        Raises:
            ForeignManifestError: it is JSON, but not a manifest, or of another schema version.
            DataError: it is not JSON, a key is missing, unknown or given twice, a value is of the wrong type, a null has no
                reason, or the bytes are not in canonical form.
        """
        document = parse_json(data, source=source, max_bytes=MAX_MANIFEST_BYTES)
        if not isinstance(document, dict) or document.get("schema_id") != SCHEMA_ID:
            found = document.get("schema_id") if isinstance(document, dict) else type(document).__name__
            raise ForeignManifestError(
                f"{source}: is no manifest of Hopline: found schema_id {found!r}, expected {SCHEMA_ID!r}"
            )
        version = document.get("schema_version")
        if type(version) is not int or version != SCHEMA_VERSION:
            raise ForeignManifestError(
                f"{source}: found schema_version {version!r}, and this version of Hopline reads {SCHEMA_VERSION}; "
                "use the version of Hopline that wrote it, or a newer one"
            )
        try:
            manifest = cls.model_validate_json(data)
        except ValidationError as error:
            raise DataError(f"{source}: {explain(error)}") from None
        if manifest.to_bytes() != data:
            raise DataError(
                f"{source}: is not in canonical form (RFC 8785): the same values are written in other bytes; "
                "it was re-formatted or edited: fetch it again"
            )
        return manifest

    def to_bytes(self) -> bytes:
        """The canonical JSON (RFC 8785) that is published. Raises ``DataError`` for a value that it cannot hold."""
        return self._canonical

    @property
    def manifest_hash(self) -> str:
        """sha256 of ``to_bytes()``: the version's id."""
        return sha256_bytes(self._canonical)

    @cached_property
    def _canonical(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


def explain(error: ValidationError) -> str:
    """The first problem of a document in one line: where, what was found, what was expected; and how many more."""
    problems = error.errors(include_url=False)
    first: Any = problems[0]
    where = ".".join(str(part) for part in first["loc"]) or "document"
    text = repr(first["input"])
    found = f"; found {text if len(text) <= 60 else text[:57] + '...'}" if first["type"] != "missing" else ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {' '.join(first['msg'].split())}{found}{more}"
