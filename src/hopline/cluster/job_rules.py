"""What a PyTorchJob has to be beyond its types: what the Training Operator refuses, and what Hopline asks of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hopline.cluster.findings import Finding, below, show
from hopline.cluster.pod_rules import check_labels, check_pod
from hopline.cluster.security_rules import check_security

__all__ = ["check_pytorchjob"]

_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ROLES: Final = ("Master", "Worker")
_CONTAINER: Final = "pytorch"
_RESTARTS: Final = ("Always", "OnFailure", "Never", "ExitCode")
_CLEAN: Final = ("None", "Running", "All")
_BACKENDS: Final = ("c10d", "etcd", "etcd-v2")
_MANAGERS: Final = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
_PROCESSES: Final = "PET_NPROC_PER_NODE"
_SHARED_STORE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def check_pytorchjob(document: Mapping[str, Any]) -> Iterator[Finding]:
    """A PyTorchJob, whose types are right."""
    spec = document.get("spec")
    if spec is None:
        yield _operator("spec", "nothing", "the job")
        return
    replicas = spec["pytorchReplicaSpecs"]
    yield from _check_name(document.get("metadata", {}), replicas)
    yield from _check_roles(replicas, elastic="elasticPolicy" in spec)
    yield from _check_processes(spec)
    if "elasticPolicy" in spec:
        yield from _check_elastic(spec["elasticPolicy"], replicas)
        yield from _check_elastic_pods(spec, replicas)
    yield from _check_run_policy(spec.get("runPolicy", {}), replicas)
    for role, replica in replicas.items():
        template = replica.get("template", {})
        if "spec" in template:
            path = below("spec.pytorchReplicaSpecs", role) + ".template"
            yield from check_labels(template.get("metadata", {}).get("labels", {}), f"{path}.metadata.labels")
            yield from check_pod(template["spec"], f"{path}.spec")
            yield from check_security(template["spec"], f"{path}.spec")
            yield from _check_training_pod(template["spec"], f"{path}.spec")


def _check_name(metadata: Mapping[str, Any], replicas: Mapping[str, Any]) -> Iterator[Finding]:
    name = metadata.get("name", "")
    if not _DNS_1035.fullmatch(name):
        expected = "1 to 63 of a-z, 0-9 and '-', a letter first, a letter or digit last"
        yield _operator("metadata.name", show(name) if name else "nothing", expected)
        return
    last = max(replicas.get("Worker", {}).get("replicas", 1) - 1, 0)
    longest = f"{name}-worker-{last}" if "Worker" in replicas else f"{name}-master-0"
    if len(longest) > 63:
        yield _operator(
            "metadata.name",
            f"{len(name)} characters",
            f"{63 - len(longest) + len(name)} at most: a pod is called {longest}",
        )


def _check_roles(replicas: Mapping[str, Any], *, elastic: bool) -> Iterator[Finding]:
    path = "spec.pytorchReplicaSpecs"
    if not replicas:
        yield _operator(path, "no replicas", "a Master, or Workers")
    for role, replica in replicas.items():
        here = below(path, role)
        if role not in _ROLES:
            yield _operator(here, "this role", " or ".join(_ROLES))
        containers = replica.get("template", {}).get("spec", {}).get("containers", [])
        if _CONTAINER not in [container["name"] for container in containers]:
            names = ", ".join(show(container["name"]) for container in containers) or "no container"
            yield _operator(
                f"{here}.template.spec.containers", names, f"one named {_CONTAINER}: the operator looks for it"
            )
        count = replica.get("replicas")
        if role == "Master" and count != 1:
            yield _operator(f"{here}.replicas", show(count) if count is not None else "nothing", "1")
        elif count is not None and count < 1:
            yield _operator(f"{here}.replicas", show(count), "1 or more")
        yield from _check_restarts(replica, here)
    if "Master" not in replicas and "Worker" in replicas and not elastic:
        yield _ours(
            path, "Workers alone", "a Master too, or an elasticPolicy: without one, nobody is told where to meet"
        )


def _check_restarts(replica: Mapping[str, Any], path: str) -> Iterator[Finding]:
    policy = replica.get("restartPolicy", "")
    here = f"{path}.restartPolicy"
    if policy not in ("", *_RESTARTS):
        yield _operator(here, show(policy), " or ".join(_RESTARTS))
    elif policy != "OnFailure":
        # ExitCode restarts 137 and 143 without bound, and a job that failed so never gets a completion time, nor its TTL.
        yield _ours(here, show(policy) if policy else "nothing", "OnFailure, which backoffLimit bounds")
    own = replica.get("template", {}).get("spec", {}).get("restartPolicy")
    if own is not None:
        yield _operator(f"{path}.template.spec.restartPolicy", show(own), f"nothing: {here} decides")


def _check_processes(spec: Mapping[str, Any]) -> Iterator[Finding]:
    count = spec.get("nprocPerNode")
    if count is not None and count not in ("auto", "cpu", "gpu") and not re.fullmatch(r"[1-9][0-9]*", count):
        yield _operator("spec.nprocPerNode", show(count), 'a string: auto, cpu, gpu, or a number such as "8"')
    if "nProcPerNode" in spec.get("elasticPolicy", {}):
        if count is not None:
            yield _operator("spec.elasticPolicy.nProcPerNode", "this field beside spec.nprocPerNode", "one of them")
        else:
            yield _ours("spec.elasticPolicy.nProcPerNode", "this field", "spec.nprocPerNode, which takes its place")


def _check_elastic(policy: Mapping[str, Any], replicas: Mapping[str, Any]) -> Iterator[Finding]:
    path = "spec.elasticPolicy"
    if "Worker" not in replicas:
        yield _operator("spec.pytorchReplicaSpecs.Worker", "nothing", "Workers: an elasticPolicy is for them")
        return
    if "Master" in replicas:
        yield _ours(
            "spec.pytorchReplicaSpecs.Master", "a Master", "Workers alone: the end of any of them may come first"
        )
    backend = policy.get("rdzvBackend", "c10d")
    if backend not in _BACKENDS:
        yield _operator(f"{path}.rdzvBackend", show(backend), " or ".join(_BACKENDS))
    if policy.get("maxRestarts", 0) < 0:
        yield _operator(f"{path}.maxRestarts", show(policy["maxRestarts"]), "0 or more")
    count = replicas["Worker"].get("replicas", 1)
    least, most = policy.get("minReplicas"), policy.get("maxReplicas")
    if (least is None) != (most is None):
        # The operator reads both as soon as one is there.
        missing = "minReplicas" if least is None else "maxReplicas"
        yield _operator(f"{path}.{missing}", "nothing", "minReplicas and maxReplicas, or neither")
    elif least is not None and most is not None:
        if least < 1:
            yield _operator(f"{path}.minReplicas", show(least), "1 or more")
        if least > most:
            yield _operator(f"{path}.minReplicas", show(least), f"at most maxReplicas {most}")
        elif not least <= count <= most:
            yield _ours("spec.pytorchReplicaSpecs.Worker.replicas", show(count), f"{least} to {most}, as in {path}")


def _check_elastic_pods(spec: Mapping[str, Any], replicas: Mapping[str, Any]) -> Iterator[Finding]:
    """What the operator does not tell the pods of an elastic job."""
    count = spec.get("nprocPerNode", "1")
    pod = replicas.get("Worker", {}).get("template", {}).get("spec", {})
    for index, container in enumerate(pod.get("containers", [])):
        values = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
        here = f"spec.pytorchReplicaSpecs.Worker.template.spec.containers[{index}].env"
        if container["name"] != _CONTAINER:
            continue
        if values.get(_SHARED_STORE) != "1":
            yield _ours(
                here, f"{_SHARED_STORE} not set to 1", "it: else an agent that comes back waits, and the job dies"
            )
        if count != "1" and values.get(_PROCESSES) != count and "Master" not in replicas:
            found = show(values[_PROCESSES]) if values.get(_PROCESSES) else "nothing"
            yield _ours(
                here, f"{_PROCESSES} {found}", f"{show(count)}: the operator tells it to jobs with a Master alone"
            )


def _check_run_policy(policy: Mapping[str, Any], replicas: Mapping[str, Any]) -> Iterator[Finding]:
    path = "spec.runPolicy"
    if policy.get("cleanPodPolicy", "Running") not in _CLEAN:
        yield _operator(f"{path}.cleanPodPolicy", show(policy["cleanPodPolicy"]), " or ".join(_CLEAN))
    if policy.get("managedBy", _MANAGERS[0]) not in _MANAGERS:
        yield _operator(f"{path}.managedBy", show(policy["managedBy"]), " or ".join(_MANAGERS))
    for field in ("activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"):
        if policy.get(field, 0) < 0:
            yield _operator(f"{path}.{field}", show(policy[field]), "0 or more")
    if "backoffLimit" not in policy and any(
        replica.get("restartPolicy") == "OnFailure" for replica in replicas.values()
    ):
        yield _ours(f"{path}.backoffLimit", "nothing", "a number: without one, OnFailure never fails")


def _check_training_pod(pod: Mapping[str, Any], path: str) -> Iterator[Finding]:
    if pod.get("automountServiceAccountToken") is not False:
        found = show(pod["automountServiceAccountToken"]) if "automountServiceAccountToken" in pod else "nothing"
        yield _ours(f"{path}.automountServiceAccountToken", found, "false: training asks the API server nothing")
    memory = {
        volume["name"]: volume["emptyDir"]
        for volume in pod.get("volumes", [])
        if volume.get("emptyDir", {}).get("medium") == "Memory"
    }
    for index, container in enumerate(pod["containers"]):
        if container["name"] != _CONTAINER:
            continue
        mounted = {mount["mountPath"].rstrip("/"): mount["name"] for mount in container.get("volumeMounts", [])}
        name = mounted.get("/dev/shm")  # noqa: S108 - a path of the container
        here = f"{path}.containers[{index}].volumeMounts"
        if name not in memory:
            yield _ours(here, "no memory at /dev/shm", "an emptyDir of medium Memory there: 64 MiB are not enough")
        elif "sizeLimit" not in memory[name]:
            yield _ours(f"{path}.volumes", f"no sizeLimit of {name}", "one: memory without a limit takes the node's")


def _operator(path: str, found: str, expected: str) -> Finding:
    return Finding(path, found, expected, "operator")


def _ours(path: str, found: str, expected: str) -> Finding:
    return Finding(path, found, expected, "hopline")
