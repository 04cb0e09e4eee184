"""Where training runs. Nothing in this section changes a result, and no hash of a run covers it."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from hopline.config.base import Count, Positive, Section
from hopline.config.kubernetes import (
    DnsLabel,
    DnsSubdomain,
    LabelKey,
    LabelValue,
    Quantity,
    is_variable_name,
    looks_secret,
    matching,
    names_secret,
    parse_quantity,
)

__all__ = [
    "ClusterConfig",
    "ElasticConfig",
    "JobLimits",
    "ResourcesConfig",
    "StoreAccess",
    "Toleration",
    "VolumeMount",
]

_IMAGE: Final = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64})?")
_FIELD: Final = matching(r"[-._a-zA-Z0-9]{1,253}", "a key of a Secret: letters, digits, '-', '_' and '.'")
_PATH: Final = matching(r"/[^:]+", "an absolute path without ':'")
_ENDPOINT: Final = matching(r"https?://[^\s@/]+(/[^\s@]*)?", "an http:// or https:// URL without user and password")
_REGION: Final = matching(r"[a-z0-9-]+", "a region such as eu-central-1")

_SET_BY_THE_JOB: Final = re.compile(
    r"PET_\w+|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|HOPLINE_\w+|AWS_\w+|(TORCH_)?NCCL_\w+"
    r"|HOME|TMPDIR|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR|PATH"
)
"""Variables that the operator, the image or another key of this section sets."""


_VOLUMES: Final = ("tmp", "shared-memory")
_PATHS: Final = ("/tmp", "/dev/shm")  # noqa: S108 - paths of a container


def _amount(quantity: str) -> Decimal:
    amount = parse_quantity(quantity)
    assert amount is not None, quantity  # Quantity has checked it
    return amount


class ElasticConfig(Section):
    """How far a job may shrink and grow."""

    min_nodes: Positive
    """Training goes on with this many nodes."""
    max_nodes: Positive
    """Nodes that may join."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_nodes > self.max_nodes:
            raise ValueError(f"min_nodes is {self.min_nodes}, above max_nodes {self.max_nodes}; swap or raise one")
        return self


class ResourcesConfig(Section):
    """What one node of a job asks for. A limit that is null is the request."""

    gpus: Count = 0
    """GPUs; one training process drives each. 0 = train on processors."""
    gpu_resource: LabelKey = "nvidia.com/gpu"
    """What the cluster calls a GPU."""
    cpu: Quantity = "4"
    """Processors."""
    cpu_limit: Quantity | None = None
    """Most processors; null = as requested."""
    memory: Quantity = "16Gi"
    """Memory, shared memory included."""
    memory_limit: Quantity | None = None
    """Most memory; null = as requested."""
    ephemeral_storage: Quantity = "20Gi"
    """Disk under /tmp: copies of shards, compiled kernels, logs."""
    ephemeral_storage_limit: Quantity | None = None
    """Most disk; null = as requested."""
    shared_memory: Quantity = "2Gi"
    """Size of /dev/shm; it counts as memory."""

    @model_validator(mode="after")
    def _limits(self) -> Self:
        for name in ("cpu", "memory", "ephemeral_storage"):
            request, limit = getattr(self, name), getattr(self, f"{name}_limit")
            if limit is not None and _amount(limit) < _amount(request):
                raise ValueError(f"{name}_limit is {limit}, below {name} {request}; raise it or leave it out")
        memory = self.memory_limit or self.memory
        if _amount(self.shared_memory) >= _amount(memory):
            raise ValueError(
                f"shared_memory is {self.shared_memory}, and memory {memory} has to hold it and the training; "
                "lower one or raise the other"
            )
        return self


class Toleration(Section):
    """A taint of nodes that a job puts up with."""

    key: LabelKey | None = None
    """Key of the taint; null with operator Exists = any."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """`Equal`: the taint has this value; `Exists`: whatever its value."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; null = any."""
    seconds: Count | None = None
    """How long a NoExecute taint is put up with; null = for ever."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise ValueError(f"operator Exists takes no value, found {self.value!r}; leave it out or use Equal")
        if self.operator == "Equal" and self.key is None:
            raise ValueError("operator Equal needs a key; add one or use Exists")
        if self.seconds is not None and self.effect != "NoExecute":
            raise ValueError(f"seconds needs effect NoExecute, found {self.effect}; set one to match the other")
        return self


class VolumeMount(Section):
    """One more volume of a job: exactly one of `claim`, `config_map` and `secret` is given."""

    name: DnsLabel
    """Name of the volume."""
    path: Annotated[str, _PATH]
    """Where it is mounted."""
    claim: DnsSubdomain | None = None
    """Name of a PersistentVolumeClaim."""
    config_map: DnsSubdomain | None = None
    """Name of a ConfigMap."""
    secret: DnsSubdomain | None = None
    """Name of a Secret."""
    read_only: bool = True
    """Nothing is written to it."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("claim", "config_map", "secret") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"volume {self.name}: expected one of claim, config_map and secret, found {' and '.join(given) or 'none'}"
            )
        if not self.read_only and self.claim is None:
            raise ValueError(f"volume {self.name}: a {given[0]} cannot be written to; set read_only: true")
        if self.name in _VOLUMES or any(self.path == path or self.path.startswith(f"{path}/") for path in _PATHS):
            raise ValueError(f"volume {self.name}: the job has its own volumes {_VOLUMES} at {_PATHS}; choose others")
        return self


class StoreAccess(Section):
    """How a job reaches the root where that is an s3:// URI: by a secret or by a service account. Names only."""

    secret: DnsSubdomain | None = None
    """Name of the Secret that holds the access keys."""
    access_key: Annotated[str, _FIELD] = "AWS_ACCESS_KEY_ID"
    """Under which key the Secret holds the access key's id."""
    secret_key: Annotated[str, _FIELD] = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a key's name
    """Under which key the Secret holds the secret access key."""
    service_account: DnsSubdomain | None = None
    """Name of a ServiceAccount that the cloud lets in (IRSA, Pod Identity, Workload Identity)."""
    endpoint: Annotated[str, _ENDPOINT] | None = None
    """URL of the S3 service; null = AWS."""
    region: Annotated[str, _REGION] | None = None
    """Region; null = what the service account brings, else AWS's default."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.secret is not None and self.service_account is not None:
            raise ValueError(
                f"found both secret {self.secret} and service_account {self.service_account}; the keys of a secret win "
                "over a service account without a word: set one of them"
            )
        return self


class JobLimits(Section):
    """When a job ends by itself, and how."""

    deadline_seconds: Positive | None = 7 * 24 * 3600
    """Seconds that a job may run, waiting in a queue not counted; null = no deadline."""
    ttl_seconds: Count | None = 24 * 3600
    """Seconds after its end at which a job is deleted; null = never."""
    backoff_limit: Count = 10
    """Restarts of containers after which a job fails."""
    grace_seconds: Positive = 120
    """Seconds between a polite stop and a hard one: enough to save a checkpoint."""


class ClusterConfig(Section):
    """Where training runs. Nothing here changes a result."""

    backend: Literal["local", "pytorchjob"] = "local"
    """Where the train step trains: `local`, in the step itself; `pytorchjob`, in a PyTorchJob that it creates."""
    processes: Positive = 1
    """Training processes of this machine where torchrun's PET_NPROC_PER_NODE does not say; more than one needs
    training.parallelism. In a job: processes of a node without GPUs; one with GPUs has a process for each."""
    max_restarts: Count = 3
    """How often a group of processes that lost one is started again before the attempt fails."""
    image: str | None = None
    """Image that trains, by tag or digest."""
    namespace: DnsLabel | None = None
    """Namespace of the job; null = that of kubectl, or of the pipeline's run."""
    nodes: Positive = 1
    """Nodes of a job."""
    elastic: ElasticConfig | None = None
    """Between how many nodes a job goes on, on nodes that can be taken away; null = it needs all of them."""
    resources: ResourcesConfig = ResourcesConfig()
    """What one node of a job asks for."""
    queue: DnsSubdomain | None = None
    """Kueue's LocalQueue in which a job waits for quota; null = no queue."""
    priority_class: DnsSubdomain | None = None
    """PriorityClass of the pods."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that a job puts up with."""
    volumes: tuple[VolumeMount, ...] = ()
    """Volumes besides /tmp and /dev/shm."""
    image_pull_secrets: tuple[DnsSubdomain, ...] = ()
    """Names of the Secrets with which the image is pulled."""
    store: StoreAccess = StoreAccess()
    """How a job reaches an s3:// root."""
    env: dict[str, str] = Field(default_factory=dict)
    """More environment variables of a job. Not for secrets: everyone who may read a job reads them."""
    nccl: dict[str, str] = Field(default_factory=dict)
    """NCCL_ and TORCH_NCCL_ variables of a job, for example NCCL_SOCKET_IFNAME: eth0."""
    limits: JobLimits = JobLimits()
    """When a job ends by itself, and how."""

    @property
    def processes_per_node(self) -> int:
        """Training processes of one node of a job."""
        return self.resources.gpus or self.processes

    @field_validator("image")
    @classmethod
    def _image(cls, value: str | None) -> str | None:
        if value is not None and not _IMAGE.fullmatch(value):
            raise ValueError(
                f"found {value!r}, expected an image such as registry.example/hopline/train:1.0 or ...@sha256:<hex>"
            )
        return value

    @field_validator("env")
    @classmethod
    def _env(cls, values: dict[str, str]) -> dict[str, str]:
        for name, value in values.items():
            if not is_variable_name(name):
                raise ValueError(f"found {name!r}, expected the name of an environment variable, for example MY_FLAG")
            if _SET_BY_THE_JOB.fullmatch(name):
                raise ValueError(f"{name} is set by the job itself or by another key of cluster; leave it out")
            if names_secret(name) or looks_secret(value):
                # The value is not printed: it may be one.
                raise ValueError(
                    f"{name} looks like a secret, and everyone who may read a job reads its env; put it into a Secret "
                    "and mount that with cluster.volumes, or name it in cluster.store"
                )
        return values

    @field_validator("nccl")
    @classmethod
    def _nccl(cls, values: dict[str, str]) -> dict[str, str]:
        for name, value in values.items():
            if not is_variable_name(name) or not name.startswith(("NCCL_", "TORCH_NCCL_")):
                raise ValueError(f"found {name!r}, expected a variable that begins with NCCL_ or TORCH_NCCL_")
            if looks_secret(value):
                raise ValueError(f"{name} looks like a secret, and everyone who may read a job reads it; leave it out")
        return values

    @field_validator("volumes")
    @classmethod
    def _distinct(cls, volumes: tuple[VolumeMount, ...]) -> tuple[VolumeMount, ...]:
        for field in ("name", "path"):
            seen = [getattr(volume, field) for volume in volumes]
            twice = sorted({value for value in seen if seen.count(value) > 1})
            if twice:
                raise ValueError(f"the {field} {twice[0]!r} is given twice; give each volume its own")
        return volumes

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        gpus = self.resources.gpus
        if gpus and self.processes not in (1, gpus):
            raise ValueError(
                f"processes is {self.processes}, resources.gpus is {gpus}, and each GPU has one process; leave processes out"
            )
        if self.elastic is not None and not self.elastic.min_nodes <= self.nodes <= self.elastic.max_nodes:
            raise ValueError(
                f"nodes is {self.nodes}, outside elastic.min_nodes {self.elastic.min_nodes} to "
                f"elastic.max_nodes {self.elastic.max_nodes}; set one to match the others"
            )
        return self
