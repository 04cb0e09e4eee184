"""What a training job is, whatever kind of object runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from hopline.config import (
    ClusterConfig,
    ElasticConfig,
    GraphConfig,
    JobLimits,
    ResourcesConfig,
    Toleration,
    VolumeMount,
)
from hopline.config.kubernetes import holds_secret
from hopline.errors import ConfigError
from hopline.storage import canonical_json, sha256_bytes

__all__ = ["JobSpec", "SecretVariable", "job_spec"]

_NAME_LIMIT: Final = 63 - len("-master-0")
"""Pods and services are called after the job, and are DNS labels."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SecretVariable:
    """An environment variable whose value a Secret holds."""

    name: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A training job.

    Attributes:
        name: name of the object: a DNS-1035 label, short enough for the names of its pods.
        namespace: None = where it is applied.
        image: what trains.
        arguments: of the ``hopline`` command.
        nodes: how many pods.
        processes: training processes in each pod.
        elastic: between how many pods it goes on; None = it needs all of them.
        max_restarts: how often the processes are started again within running containers.
        resources: what one pod asks for.
        env: plain environment variables.
        secret_env: environment variables from secrets.
        service_account: whose identity the cloud sees; None = the namespace's default.
        queue: Kueue's LocalQueue.
        priority_class: PriorityClass of the pods.
        node_selector: labels that a node must have.
        tolerations: taints that it puts up with.
        volumes: besides /tmp and /dev/shm.
        image_pull_secrets: names of Secrets.
        limits: when it ends by itself.
        labels: labels of the object, for finding it.
        annotations: what it is for, whole.
    """

    name: str
    namespace: str | None
    image: str
    arguments: tuple[str, ...]
    nodes: int
    processes: int
    elastic: ElasticConfig | None
    max_restarts: int
    resources: ResourcesConfig
    env: Mapping[str, str]
    secret_env: tuple[SecretVariable, ...]
    service_account: str | None
    queue: str | None
    priority_class: str | None
    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    volumes: tuple[VolumeMount, ...]
    image_pull_secrets: tuple[str, ...]
    limits: JobLimits
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def job_spec(
    config: GraphConfig,
    *,
    config_json: str,
    root: str,
    dataset_uri: str | None = None,
    dataset_hash: str | None = None,
    run_hash: str | None = None,
) -> JobSpec:
    """The job that trains a config; equal arguments give equal jobs, and a job's name is that of its run.

    Args:
        config: the config; its cluster section says how the job looks.
        config_json: the same config as the one text in which it travels.
        root: URI of the root.
        dataset_uri: of the dataset; None = training finds it in the root.
        dataset_hash: its hash; goes with ``dataset_uri``.
        run_hash: of the run, where it is known; None = the name is made of config, root and dataset.

    Raises:
        ConfigError: the config describes no job that can run; the message names the key.
    """
    cluster = config.cluster
    image = _checked(config, root)
    _check_dataset(dataset_uri, dataset_hash)
    arguments = ["train", "--config-json", config_json, "--root", root]
    if dataset_uri is not None and dataset_hash is not None:
        arguments += ["--dataset-uri", dataset_uri, "--dataset-hash", dataset_hash]
    if any(map(holds_secret, arguments)):
        raise ConfigError(
            "the config, the root or the dataset URI holds what looks like a secret, and everyone who may read a job reads "
            "its arguments; name a Secret in cluster.store instead"
        )
    hashes = {"run-hash": run_hash, "dataset-hash": dataset_hash}
    return JobSpec(
        name=_name(config, run_hash or _identity(config, root, dataset_hash)),
        namespace=cluster.namespace,
        image=image,
        arguments=tuple(arguments),
        nodes=cluster.nodes,
        processes=cluster.processes_per_node,
        elastic=cluster.elastic,
        max_restarts=cluster.max_restarts,
        resources=cluster.resources,
        env=_environment(cluster),
        secret_env=_secret_environment(cluster),
        service_account=cluster.store.service_account,
        queue=cluster.queue,
        priority_class=cluster.priority_class,
        node_selector=cluster.node_selector,
        tolerations=cluster.tolerations,
        volumes=cluster.volumes,
        image_pull_secrets=cluster.image_pull_secrets,
        limits=cluster.limits,
        labels={"hopline.io/model": config.name.rstrip("-_.")}
        | ({"hopline.io/run": run_hash[:16]} if run_hash else {}),
        annotations={f"hopline.io/{name}": value for name, value in hashes.items() if value},
    )


def _checked(config: GraphConfig, root: str) -> str:
    """The image, after the checks of what the sections of a config cannot see alone."""
    cluster = config.cluster
    if cluster.image is None:
        raise ConfigError(
            "cluster.image is not set; set it to the image that trains, for example "
            "--set cluster.image=registry.example/hopline/train:1.0"
        )
    processes = cluster.nodes * cluster.processes_per_node
    if processes > 1 and config.training.parallelism == "none":
        raise ConfigError(
            f"training.parallelism is none, and the job has {processes} processes ({cluster.nodes} nodes with "
            f"{cluster.processes_per_node}); set training.parallelism to ddp or fsdp"
        )
    if not root.startswith("s3://"):
        path = urlsplit(root).path
        mounts = [volume.path for volume in cluster.volumes if not volume.read_only]
        if not any(path == mount or path.startswith(f"{mount.rstrip('/')}/") for mount in mounts):
            raise ConfigError(
                f"root {root}: no pod of the job can write there; give an s3:// URI, or mount a claim at it with "
                "cluster.volumes and read_only: false"
            )
    return cluster.image


def _check_dataset(uri: str | None, digest: str | None) -> None:
    if (uri is None) != (digest is None):
        raise ConfigError(
            "the URI of a dataset and its hash go together; give both --dataset-uri and --dataset-hash, or none"
        )
    if digest is not None and not _SHA256.fullmatch(digest):
        raise ConfigError(f"--dataset-hash {digest}: expected 64 hex digits")


def _identity(config: GraphConfig, root: str, dataset_hash: str | None) -> str:
    """What tells two runs apart: everything but where they run."""
    content = {key: value for key, value in config.to_dict().items() if key != "cluster"}
    return sha256_bytes(canonical_json({"config": content, "root": root, "dataset_hash": dataset_hash}))


def _name(config: GraphConfig, identity: str) -> str:
    """``hopline-<model>-<12 digits of the run>``, within what the names of pods leave."""
    tail = f"-{identity[:12]}"
    most = config.cluster.elastic.max_nodes if config.cluster.elastic else config.cluster.nodes
    limit = min(_NAME_LIMIT, 63 - len(f"-worker-{most - 1}")) - len(tail)
    model = re.sub(r"[^a-z0-9]+", "-", config.name.lower()).strip("-")
    return f"hopline-{model}"[:limit].rstrip("-") + tail


def _environment(cluster: ClusterConfig) -> dict[str, str]:
    env: dict[str, str] = {}
    if cluster.store.endpoint is not None:
        env["AWS_ENDPOINT_URL_S3"] = cluster.store.endpoint
    if cluster.store.region is not None:
        env["AWS_REGION"] = cluster.store.region
    if cluster.elastic is not None:
        # Where agents share one store, one that comes back waits for a minute and the job dies (torch 2.13).
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        # The operator tells it to jobs with a Master alone.
        env["PET_NPROC_PER_NODE"] = str(cluster.processes_per_node)
    if cluster.resources.gpus:
        env["NCCL_DEBUG"] = "WARN"
    return env | cluster.nccl | cluster.env


def _secret_environment(cluster: ClusterConfig) -> tuple[SecretVariable, ...]:
    store = cluster.store
    if store.secret is None:
        return ()
    return (
        SecretVariable("AWS_ACCESS_KEY_ID", store.secret, store.access_key),
        SecretVariable("AWS_SECRET_ACCESS_KEY", store.secret, store.secret_key),
    )
