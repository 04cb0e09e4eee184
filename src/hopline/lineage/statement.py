"""What a publisher signs: an in-toto Statement with SLSA provenance, which follows from the manifest alone.

https://in-toto.io/Statement/v1, https://slsa.dev/provenance/v1.
"""

from __future__ import annotations

from typing import Any, Final

from hopline.errors import DataError
from hopline.lineage.manifest import Manifest
from hopline.lineage.names import MANIFEST
from hopline.storage import canonical_json, parse_json

__all__ = ["BUILD_TYPE", "PAYLOAD_TYPE", "PREDICATE_TYPE", "STATEMENT_TYPE", "statement", "statement_problem"]

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:hopline:build:retraining:1"
"""Names the rule by which ``statement`` is made; another rule gets another number."""

_LOCAL: Final = "urn:hopline:builder:process"
_KUBEFLOW: Final = "urn:hopline:builder:kubeflow"


def statement(manifest: Manifest) -> dict[str, Any]:
    """Say about a version what its manifest says, in the words of in-toto and SLSA.

    The subjects are the published files and ``manifest.json`` itself: a signature over them is one over everything in it.
    """
    digests = {file.path: file.sha256 for file in manifest.subjects.files} | {MANIFEST: manifest.manifest_hash}
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"buildDefinition": _definition(manifest), "runDetails": _details(manifest)},
    }


def statement_problem(payload: bytes, manifest_hash: str, manifest: Manifest | None, *, source: str) -> str | None:
    """Say in what ``payload`` is not the statement about a version; None if it is.

    Args:
        payload: what the envelope holds.
        manifest_hash: sha256 of the manifest's bytes as they were found.
        manifest: the manifest, if it can be read.
        source: names the payload.
    """
    try:
        document = parse_json(payload, source=source)
        if not isinstance(document, dict) or document.get("_type") != STATEMENT_TYPE:
            return f"what is signed is no in-toto statement; expected {STATEMENT_TYPE}"
        if document.get("predicateType") != PREDICATE_TYPE:
            return f"what is signed is a {document.get('predicateType')!a}, expected {PREDICATE_TYPE}"
        said = _subjects(document)
        if problem := _subject_problem(said, manifest_hash, manifest):
            return problem
        if manifest is None:
            return None
        expected = statement(manifest)
        build = document["predicate"]["buildDefinition"]["buildType"]
        if build != BUILD_TYPE:
            return f"its build type is {build!a}, and this version of Hopline checks {BUILD_TYPE}; use a newer one"
        if canonical_json(document) != canonical_json(expected):
            return (
                "it names the files of this version, and says otherwise what its manifest says about how they were made"
            )
    except DataError as error:
        return str(error)
    except (KeyError, TypeError, AttributeError):
        return "what is signed is not laid out as an in-toto statement with SLSA provenance"
    return None


def _subjects(document: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for subject in document["subject"]:
        name = subject["name"]
        if not isinstance(name, str) or name in found:
            raise DataError(f"the statement names {name!a} twice, or as no text")
        found[name] = str(subject["digest"]["sha256"])
    return found


def _subject_problem(said: dict[str, str], manifest_hash: str, manifest: Manifest | None) -> str | None:
    if said.get(MANIFEST) != manifest_hash:
        return f"another manifest is signed: sha256 {said.get(MANIFEST)!a}, and this one has {manifest_hash}"
    if manifest is None:
        return None
    wanted = {file.path: file.sha256 for file in manifest.subjects.files}
    others = sorted(
        name for name in said.keys() | wanted.keys() if name != MANIFEST and said.get(name) != wanted.get(name)
    )
    return f"of {others[0]!a} and {len(others) - 1} more it says otherwise than the manifest" if others else None


def _definition(manifest: Manifest) -> dict[str, Any]:
    config = manifest.config
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": {"name": manifest.name, "config": config.resolved, "config_hash": config.config_hash},
        "internalParameters": {"stages": manifest.code.stages, "run_hash": manifest.training.run_hash},
        "resolvedDependencies": _dependencies(manifest),
    }


def _dependencies(manifest: Manifest) -> list[dict[str, Any]]:
    """What went in, each by its digest. A dataset's and a vocabulary's digests are over their content, not over a file."""
    dataset, code, parents = manifest.dataset, manifest.code, manifest.parents
    found: list[dict[str, Any]] = [
        {"name": "dataset", "digest": {"hopline_dataset": dataset.dataset_hash}},
        {"name": "vocabulary", "digest": {"hopline_vocabulary": dataset.vocabulary_digest}},
    ]
    if dataset.source is not None:
        found += [{"name": f"source/{file.path}", "digest": {"sha256": file.sha256}} for file in dataset.source.files]
    if code.git_commit is not None:
        found.append({"name": "code", "digest": {"gitCommit": code.git_commit}})
    for name, digest in (
        ("patch", code.patch_digest),
        ("wheel", code.wheel_digest),
        ("constraints", code.constraints_digest),
        ("image", code.image_digest and code.image_digest.rpartition("sha256:")[2]),
        ("initial checkpoint", parents.initial_checkpoint and parents.initial_checkpoint.sha256),
        ("champion compared with", parents.champion and parents.champion.manifest_hash),
    ):
        if digest is not None:
            found.append({"name": name, "digest": {"sha256": digest}})
    return found


def _details(manifest: Manifest) -> dict[str, Any]:
    pipeline, training = manifest.pipeline, manifest.training
    cluster = pipeline.kfp_run_id is not None or pipeline.job_uid is not None
    attempts = training.attempts or ()
    metadata = {
        "invocationId": pipeline.kfp_run_id or training.run_hash,
        "startedOn": attempts[0].started if attempts else None,
        "finishedOn": attempts[-1].ended if attempts else None,
    }
    byproducts = [
        {"name": f"candidate/step-{row.step}", "digest": {"sha256": row.sha256}}
        for row in manifest.evaluation.candidates
    ]
    if training.step_log_digest is not None:
        byproducts.append({"name": "step log", "digest": {"sha256": training.step_log_digest}})
    return {
        "builder": {"id": _KUBEFLOW if cluster else _LOCAL, "version": {"hopline": manifest.code.hopline}},
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "byproducts": byproducts,
    }
