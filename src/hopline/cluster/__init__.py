"""Training on a cluster: what a job is, its manifest, and the check of manifests."""

from hopline.cluster.jobspec import JobSpec, SecretVariable, job_spec
from hopline.cluster.pytorchjob import SPEC_HASH, render_pytorchjob, to_yaml

__all__ = ["SPEC_HASH", "JobSpec", "SecretVariable", "job_spec", "render_pytorchjob", "to_yaml"]
