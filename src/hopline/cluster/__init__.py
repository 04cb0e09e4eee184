"""Training on a cluster: what a job is, its manifest, and the check of manifests."""

from hopline.cluster.findings import Finding
from hopline.cluster.jobspec import JobSpec, SecretVariable, job_spec
from hopline.cluster.pytorchjob import SPEC_HASH, render_pytorchjob, to_yaml
from hopline.cluster.validation import Checked, check_document, validate_manifest

__all__ = [
    "SPEC_HASH",
    "Checked",
    "Finding",
    "JobSpec",
    "SecretVariable",
    "check_document",
    "job_spec",
    "render_pytorchjob",
    "to_yaml",
    "validate_manifest",
]
