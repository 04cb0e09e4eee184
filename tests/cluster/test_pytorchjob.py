"""PyTorchJobs of configs: what they look like, and that every one of them is valid."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopline.cluster import SPEC_HASH, JobSpec, check_document, job_spec, render_pytorchjob, to_yaml
from hopline.config import load_config
from hopline.stages import encode_config
from hopline.storage import canonical_json, sha256_bytes

ROOT = Path(__file__).parents[2]
Make = Callable[..., JobSpec]


def replicas(document: Any) -> Any:
    return document["spec"]["pytorchReplicaSpecs"]


def container(document: Any, role: str = "Master") -> Any:
    (found,) = replicas(document)[role]["template"]["spec"]["containers"]
    return found


def pods(document: Any) -> Iterator[Any]:
    """Each pod template as the pod that the operator makes of it."""
    for replica in replicas(document).values():
        template = replica["template"]
        metadata = {"name": "pod", "labels": template["metadata"]["labels"]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_one_node_is_a_master(spec: Make) -> None:
    document = render_pytorchjob(spec())
    assert list(replicas(document)) == ["Master"]
    assert document["spec"]["nprocPerNode"] == "1"
    assert container(document)["command"] == ["hopline"]
    assert container(document)["args"][0] == "train"
    assert "initContainers" not in replicas(document)["Master"]["template"]["spec"]
    assert document["spec"]["runPolicy"] == {
        "cleanPodPolicy": "Running",
        "backoffLimit": 10,
        "activeDeadlineSeconds": 604800,
        "ttlSecondsAfterFinished": 86400,
    }


def test_several_nodes_are_a_master_and_workers_that_look_like_it(spec: Make) -> None:
    document = render_pytorchjob(spec("cluster.nodes=4", "cluster.resources.gpus=8", "training.parallelism=fsdp"))
    assert {role: replica["replicas"] for role, replica in replicas(document).items()} == {"Master": 1, "Worker": 3}
    assert replicas(document)["Worker"]["template"] == replicas(document)["Master"]["template"]
    assert document["spec"]["nprocPerNode"] == "8"
    for where in ("requests", "limits"):
        assert container(document)["resources"][where]["nvidia.com/gpu"] == "8"


def test_elastic_nodes_are_workers_alone(spec: Make) -> None:
    options = ("cluster.nodes=2", "cluster.elastic={min_nodes: 1, max_nodes: 4}", "training.parallelism=ddp")
    document = render_pytorchjob(spec(*options))
    assert {role: replica["replicas"] for role, replica in replicas(document).items()} == {"Worker": 2}
    assert document["spec"]["elasticPolicy"] == {
        "rdzvBackend": "c10d",
        "minReplicas": 1,
        "maxReplicas": 4,
        "maxRestarts": 3,
    }
    assert {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"} in container(document, "Worker")["env"]


def test_everything_that_a_config_asks_for_is_there(spec: Make) -> None:
    document = render_pytorchjob(
        spec(
            "cluster.namespace=team",
            "cluster.queue=team-queue",
            "cluster.priority_class=high",
            "cluster.node_selector={pool: spot}",
            "cluster.tolerations=[{key: spot, operator: Exists, effect: NoExecute, seconds: 30}]",
            "cluster.volumes=[{name: ca, path: /etc/ca, config_map: ca}, {name: k, path: /etc/k, secret: k},"
            " {name: d, path: /data, claim: d, read_only: false}]",
            "cluster.image_pull_secrets=[registry]",
            "cluster.store={secret: keys, access_key: a, secret_key: b, endpoint: 'http://store:8333', region: us-east-1}",
            "cluster.resources={cpu_limit: 8, memory_limit: 32Gi, ephemeral_storage_limit: 50Gi, shared_memory: 4Gi}",
            "cluster.limits={deadline_seconds: null, ttl_seconds: null, backoff_limit: 2, grace_seconds: 30}",
        )
    )
    pod = replicas(document)["Master"]["template"]["spec"]
    assert document["metadata"]["namespace"] == "team"
    assert document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-queue"
    assert document["spec"]["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 2}
    assert pod["priorityClassName"] == "high"
    assert pod["nodeSelector"] == {"pool": "spot"}
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["terminationGracePeriodSeconds"] == 30
    assert "serviceAccountName" not in pod
    assert pod["volumes"] == [
        {"name": "tmp", "emptyDir": {"sizeLimit": "50Gi"}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}},
        {"name": "ca", "configMap": {"name": "ca"}},
        {"name": "k", "secret": {"secretName": "k"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "d", "readOnly": False}},
    ]
    made = container(document)
    assert {"name": "d", "mountPath": "/data", "readOnly": False} in made["volumeMounts"]
    assert made["resources"] == {
        "requests": {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "20Gi"},
        "limits": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "50Gi"},
    }
    env = {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in made["env"]}
    assert env["AWS_ACCESS_KEY_ID"] == {"secretKeyRef": {"name": "keys", "key": "a"}}
    assert env["AWS_SECRET_ACCESS_KEY"] == {"secretKeyRef": {"name": "keys", "key": "b"}}
    assert (env["AWS_ENDPOINT_URL_S3"], env["AWS_REGION"]) == ("http://store:8333", "us-east-1")
    assert check_document(document).findings == ()


def test_a_service_account_is_used_without_its_token(spec: Make) -> None:
    pod = replicas(render_pytorchjob(spec("cluster.store.service_account=trainer")))["Master"]["template"]["spec"]
    assert pod["serviceAccountName"] == "trainer"
    assert pod["automountServiceAccountToken"] is False


def test_arguments_and_variables_arrive_as_they_are(spec: Make) -> None:
    """Kubernetes replaces ``$(NAME)`` in both, and reads ``$$`` as one."""

    def arrive(text: str) -> str:
        parts = re.split(r"\$\$", text)
        assert not any("$(" in part for part in parts)
        return "$".join(parts)

    document = render_pytorchjob(spec("cluster.env={A: 'x$(HOME)$$y'}", "dataset.source='s3://b/$(HOME)'"))
    config_json = arrive(container(document)["args"][2])
    assert json.loads(config_json)["config"]["dataset"]["source"] == "s3://b/$(HOME)"
    values = {variable["name"]: variable.get("value") for variable in container(document)["env"]}
    assert arrive(values["A"]) == "x$(HOME)$$y"


def test_the_spec_hash_is_of_everything_else(spec: Make) -> None:
    document = render_pytorchjob(spec())
    bare = copy.deepcopy(document)
    digest = bare["metadata"]["annotations"].pop(SPEC_HASH)
    assert digest == sha256_bytes(canonical_json(bare))
    assert render_pytorchjob(spec()) == document
    other = render_pytorchjob(spec("cluster.resources.memory=64Gi"))
    assert other["metadata"]["name"] == document["metadata"]["name"]
    assert other["metadata"]["annotations"][SPEC_HASH] != digest


def test_yaml_has_no_references_and_reads_back(spec: Make) -> None:
    document = render_pytorchjob(spec("cluster.nodes=2", "training.parallelism=ddp"))
    text = to_yaml(document)
    assert yaml.safe_load(text) == document
    assert not re.search(r"[&*]id\d", text)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "nodes": st.integers(1, 3),
        "processes": st.integers(1, 4),
        "elastic": st.just({"min_nodes": 1, "max_nodes": 3}),
        "queue": st.just("queue"),
        "priority_class": st.just("high"),
        "namespace": st.just("team"),
        "resources": st.fixed_dictionaries({"cpu": st.integers(1, 64), "shared_memory": st.sampled_from(["0", "1Gi"])}),
        "volumes": st.just([{"name": "ca", "path": "/etc/ca", "config_map": "ca"}]),
        "store": st.sampled_from([{"secret": "keys"}, {"service_account": "trainer", "region": "eu-central-1"}]),
        "limits": st.fixed_dictionaries({"backoff_limit": st.integers(0, 9), "grace_seconds": st.integers(1, 999)}),
        "tolerations": st.just([{"operator": "Exists"}]),
    },
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=OPTIONS)
def test_every_job_is_valid_and_so_are_its_pods(spec: Make, options: dict[str, Any]) -> None:
    overrides = [f"cluster.{name}={json.dumps(value)}" for name, value in options.items()]
    document = render_pytorchjob(spec(*overrides, "training.parallelism=ddp"))
    assert [str(finding) for finding in check_document(document).findings] == []
    for pod in pods(document):
        kubernetes_validate.validate(pod, "1.36", strict=True)
        assert check_document(pod).status == "OK"


def jobs_of_the_repository() -> list[Path]:
    return [path for path in sorted((ROOT / "configs").glob("*.yaml")) if "backend: pytorchjob" in path.read_text()]


@pytest.mark.parametrize("path", jobs_of_the_repository(), ids=lambda path: path.stem)
def test_the_jobs_of_the_configs_are_valid(path: Path) -> None:
    resolved = load_config(path)
    if resolved.config.cluster.image is None:
        resolved = load_config(path, ["cluster.image=registry.example/hopline/train:1.0"])
    config = resolved.config
    document = render_pytorchjob(job_spec(config, config_json=encode_config(resolved), root="s3://bucket/root"))
    assert [str(finding) for finding in check_document(document).findings] == []
    total = sum(replica["replicas"] for replica in replicas(document).values())
    assert total == config.cluster.nodes
    for pod in pods(document):
        kubernetes_validate.validate(pod, "1.36", strict=True)
