"""A job as a PyTorchJob (kubeflow.org/v1).

It starts from ``manifests/base/pytorchjob.yaml``, which people apply as it stands, and puts in what the job asks for: what
is true of every job, its security above all, is written there and nowhere else.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml

import hopline
from hopline.cluster.jobspec import JobSpec
from hopline.config import ResourcesConfig, Toleration, VolumeMount
from hopline.storage import canonical_json, sha256_bytes

__all__ = ["SPEC_HASH", "render_pytorchjob", "to_yaml"]

SPEC_HASH: Final = "hopline.io/spec-hash"
"""Annotation: sha256 of the manifest without it. Two jobs of one name are the same job if it is equal."""

QUEUE: Final = "kueue.x-k8s.io/queue-name"

_CONTAINER: Final = "pytorch"
_CONFIG_VOLUME: Final = "config"

Document = dict[str, Any]


def render_pytorchjob(spec: JobSpec) -> Document:
    """The manifest of a job; a pure function of it.

    One node is a Master. Several nodes are a Master and Workers, whose end is the Master's. Elastic nodes are Workers alone,
    any of which may go.
    """
    document = copy.deepcopy(_base())
    metadata, body = document["metadata"], document["spec"]
    metadata["name"] = spec.name
    if spec.namespace is not None:
        metadata["namespace"] = spec.namespace
    metadata["labels"] |= spec.labels
    if spec.queue is not None:
        metadata["labels"][QUEUE] = spec.queue
    metadata["annotations"] = dict(spec.annotations)
    body["nprocPerNode"] = str(spec.processes)
    body["runPolicy"] = _run_policy(body["runPolicy"], spec)
    master = body["pytorchReplicaSpecs"]["Master"]
    master["template"]["metadata"]["labels"] |= spec.labels
    _fill_pod(master["template"]["spec"], spec)
    body["pytorchReplicaSpecs"] = _replicas(master, spec)
    if spec.elastic is not None:
        body["elasticPolicy"] = {
            "rdzvBackend": "c10d",
            "minReplicas": spec.elastic.min_nodes,
            "maxReplicas": spec.elastic.max_nodes,
            "maxRestarts": spec.max_restarts,
        }
    metadata["annotations"][SPEC_HASH] = sha256_bytes(canonical_json(document))
    return document


def to_yaml(*documents: Mapping[str, Any]) -> str:
    """Documents as ``kubectl apply -f -`` takes them."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


@cache
def _base() -> Document:
    packed = resources.files("hopline.cluster") / "pytorchjob.yaml"
    if not packed.is_file():  # not from a wheel: the repository has it
        packed = Path(hopline.__file__).parents[2] / "manifests" / "base" / "pytorchjob.yaml"
    document: Document = yaml.safe_load(packed.read_text(encoding="utf-8"))
    return document


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out instead of referring to them: people read and edit the result."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _run_policy(base: Mapping[str, Any], spec: JobSpec) -> Document:
    limits = {
        "backoffLimit": spec.limits.backoff_limit,
        "activeDeadlineSeconds": spec.limits.deadline_seconds,
        "ttlSecondsAfterFinished": spec.limits.ttl_seconds,
    }
    return {name: value for name, value in (dict(base) | limits).items() if value is not None}


def _replicas(master: Document, spec: JobSpec) -> Document:
    if spec.elastic is not None:
        return {"Worker": master | {"replicas": spec.nodes}}
    if spec.nodes == 1:
        return {"Master": master}
    return {"Master": master, "Worker": copy.deepcopy(master) | {"replicas": spec.nodes - 1}}


def _fill_pod(pod: Document, spec: JobSpec) -> None:
    # The base makes the dataset and reads the config from a ConfigMap: here the one is done, and the other an argument.
    del pod["initContainers"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != _CONFIG_VOLUME]
    pod["volumes"] += map(_volume, spec.volumes)
    sizes = {
        "tmp": spec.resources.ephemeral_storage_limit or spec.resources.ephemeral_storage,
        "shared-memory": spec.resources.shared_memory,
    }
    for volume in pod["volumes"]:
        if volume["name"] in sizes:
            volume["emptyDir"]["sizeLimit"] = sizes[volume["name"]]
    pod["terminationGracePeriodSeconds"] = spec.limits.grace_seconds
    chosen = {
        "serviceAccountName": spec.service_account,
        "priorityClassName": spec.priority_class,
        "nodeSelector": dict(spec.node_selector),
        "tolerations": [_toleration(toleration) for toleration in spec.tolerations],
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
    }
    for name, value in chosen.items():
        pod.pop(name, None)
        if value:
            pod[name] = value
    (container,) = pod["containers"]
    assert container["name"] == _CONTAINER, container["name"]
    container["image"] = spec.image
    container["args"] = [_literal(argument) for argument in spec.arguments]
    container["env"] = _env(container["env"], spec)
    container["resources"] = _resources(spec.resources)
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != _CONFIG_VOLUME]
    container["volumeMounts"] += [
        {"name": volume.name, "mountPath": volume.path, "readOnly": volume.read_only} for volume in spec.volumes
    ]


def _env(base: Iterable[Mapping[str, Any]], spec: JobSpec) -> list[Document]:
    plain = {variable["name"]: variable["value"] for variable in base if "value" in variable} | dict(spec.env)
    return [{"name": name, "value": _literal(value)} for name, value in plain.items()] + [
        {"name": variable.name, "valueFrom": {"secretKeyRef": {"name": variable.secret, "key": variable.key}}}
        for variable in spec.secret_env
    ]


def _literal(text: str) -> str:
    """A text that arrives as it is: Kubernetes replaces ``$(NAME)`` in arguments and variables, and ``$$`` by ``$``."""
    return text.replace("$", "$$")


def _resources(resources: ResourcesConfig) -> Document:
    gpus = {resources.gpu_resource: str(resources.gpus)} if resources.gpus else {}
    requests = {
        "cpu": resources.cpu,
        "memory": resources.memory,
        "ephemeral-storage": resources.ephemeral_storage,
    }
    limits = {
        "cpu": resources.cpu_limit or resources.cpu,
        "memory": resources.memory_limit or resources.memory,
        "ephemeral-storage": resources.ephemeral_storage_limit or resources.ephemeral_storage,
    }
    return {"requests": requests | gpus, "limits": limits | gpus}


def _toleration(toleration: Toleration) -> Document:
    fields = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.seconds,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _volume(volume: VolumeMount) -> Document:
    if volume.claim is not None:
        return {"name": volume.name, "persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
    if volume.config_map is not None:
        return {"name": volume.name, "configMap": {"name": volume.config_map}}
    return {"name": volume.name, "secret": {"secretName": volume.secret}}
