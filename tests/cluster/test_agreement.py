"""The validator and the real schemas say the same of every document, right or wrong.

A schema is closed: a field that it does not name is refused, as ``kubectl apply`` does. The corpus has, for every place in
it, a document with something right there, and documents with something wrong there; and jobs as they are rendered, with
something changed at random.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopline.cluster import JobSpec, check_document, render_pytorchjob
from tests.cluster.corpus import WRONG, Schema, acceptor, changed, close, differences, nodes

QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
POD = {
    "type": "object",
    "properties": {
        "containers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
                "additionalProperties": False,
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        }
    },
    "required": ["containers"],
    "additionalProperties": False,
}
"""A pod as small as it gets: the CRD covers the rest."""


@pytest.fixture(scope="session")
def crd(crds: Path) -> Schema:
    document = yaml.safe_load((crds / "kubeflow.org_pytorchjobs.yaml").read_text(encoding="utf-8"))
    (version,) = document["spec"]["versions"]
    return close(version["schema"]["openAPIV3Schema"])


@pytest.fixture(scope="session")
def accepts(crd: Schema) -> Callable[[Any], bool]:
    """Whether the closed CRD accepts a document; its metadata, which the API server checks apart, is left out."""
    return acceptor(crd)


def ours(document: Any) -> bool:
    """Whether the validator finds the types of a document right."""
    return not any(finding.rule == "schema" for finding in check_document(document).findings)


def test_at_every_place_of_the_crd(crd: Schema, accepts: Callable[[Any], bool]) -> None:
    title = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    count, refused, differ = differences(crd, accepts, ours, title)
    assert not differ, f"{len(differ)} of {count}, the first: {differ[:5]}"
    assert count > 10_000
    assert 0.3 < refused / count < 0.9


@pytest.mark.parametrize(
    ("version", "kind", "group"),
    [
        ("batch/v1", "CronJob", "batch"),
        ("networking.k8s.io/v1", "NetworkPolicy", "networking"),
        ("rbac.authorization.k8s.io/v1", "Role", "rbac"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "rbac"),
        ("v1", "ConfigMap", "core"),
        ("v1", "PersistentVolumeClaim", "core"),
        ("v1", "Secret", "core"),
        ("v1", "ServiceAccount", "core"),
    ],
)
def test_at_every_place_of_the_objects_beside_a_job(version: str, kind: str, group: str) -> None:
    """The schemas of Kubernetes, without nulls, which mean that a field is left out."""
    files = resources.files("kubernetes_validate") / "kubernetes-json-schema" / "v1.36.0-local-strict"
    definitions = json.loads((files / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    schema = written_out(definitions[f"io.k8s.api.{group}.v1.{kind}"], definitions)
    count, refused, differ = differences(schema, acceptor(schema), ours, {"apiVersion": version, "kind": kind})
    assert not differ, f"{len(differ)} of {count}, the first: {differ[:5]}"
    assert count > 30
    assert 0.3 < refused / count < 0.95


def written_out(node: Any, definitions: Schema) -> Any:
    """A schema of Kubernetes in the form of a CRD: references written out, unknown fields refused, no nulls, no status."""
    if isinstance(node, list):
        return [written_out(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    name = node.get("$ref", "").rpartition("/")[2]
    if name.endswith((".Quantity", ".IntOrString")):
        bounds = {"pattern": QUANTITY} if name.endswith(".Quantity") else {}
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True, **bounds}
    if name.endswith("v1.PodSpec"):
        return POD
    if name:
        return written_out(definitions[name], definitions)
    result = {key: written_out(value, definitions) for key, value in node.items() if key not in ("description", "$id")}
    if isinstance(result.get("type"), list):
        (result["type"],) = [kind for kind in result["type"] if kind != "null"]
    if isinstance(result.get("properties"), dict) and "type" in result:
        result["properties"].pop("status", None)
        result.setdefault("additionalProperties", False)
    return result


JOBS = [
    (),
    ("cluster.nodes=3", "training.parallelism=ddp", "cluster.queue=q", "cluster.store.secret=keys"),
    ("cluster.elastic={min_nodes: 1, max_nodes: 4}", "cluster.resources.gpus=2", "training.parallelism=ddp"),
    (
        "cluster.volumes=[{name: a, path: /a, claim: c, read_only: false}, {name: b, path: /b, config_map: d}]",
        "cluster.tolerations=[{key: spot, operator: Exists, effect: NoExecute, seconds: 30}]",
        "cluster.node_selector={pool: spot}",
        "cluster.image_pull_secrets=[one, two]",
    ),
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_of_jobs_with_something_changed(
    data: st.DataObject, accepts: Callable[[Any], bool], spec: Callable[..., JobSpec]
) -> None:
    document = render_pytorchjob(spec(*data.draw(st.sampled_from(JOBS))))
    places_of_it = [path for path in nodes(document) if path]
    for _ in range(data.draw(st.integers(0, 2))):
        path = data.draw(st.sampled_from(places_of_it))
        how = data.draw(st.sampled_from(["replace", "remove", "rename", "repeat", "unknown"]))
        try:
            document = changed(document, path, how, data.draw(st.sampled_from(WRONG)))
        except (KeyError, IndexError, TypeError):
            continue  # the first change took the place away
    assert ours(document) is accepts(document)


def test_the_manifest_that_jobs_start_from(accepts: Callable[[Any], bool]) -> None:
    path = Path(__file__).parents[2] / "manifests" / "base" / "pytorchjob.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert accepts(document)
    assert check_document(document).status == "OK"
