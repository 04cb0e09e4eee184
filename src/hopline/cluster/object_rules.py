"""What the objects beside a job have to be beyond their types."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml

from hopline.cluster.findings import Finding, below, show
from hopline.cluster.pod_rules import check_labels, check_pod
from hopline.cluster.security_rules import check_security
from hopline.config.kubernetes import holds_secret, is_dns_label, is_dns_subdomain

__all__ = ["OBJECT_RULES", "check_metadata"]

_PROVIDERS: Final = "providers"


def check_metadata(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Name, namespace and labels of any object."""
    metadata = document.get("metadata", {})
    name = metadata.get("name", "")
    if not name and not metadata.get("generateName"):
        yield _refused("metadata.name", "nothing", "a name")
    elif name and not is_dns_subdomain(name) and document["kind"] not in ("Role", "RoleBinding"):
        yield _refused("metadata.name", show(name), "a-z, 0-9, '-' and '.', a letter or digit at both ends")
    if "namespace" in metadata and not is_dns_label(metadata["namespace"]):
        yield _refused("metadata.namespace", show(metadata["namespace"]), "1 to 63 of a-z, 0-9 and '-'")
    yield from check_labels(metadata.get("labels", {}), "metadata.labels")


def _check_config_map(document: Mapping[str, Any]) -> Iterator[Finding]:
    for key, value in document.get("data", {}).items():
        if holds_secret(value):
            yield _ours(below("data", key), "what looks like a secret", "the name of a Secret")
    if document.get("metadata", {}).get("name") == "kfp-launcher":
        yield from _check_providers(document.get("data", {}))


def _check_providers(data: Mapping[str, str]) -> Iterator[Finding]:
    """How steps of Kubeflow Pipelines reach their store."""
    path = below("data", _PROVIDERS)
    try:
        providers = yaml.safe_load(data.get(_PROVIDERS, "{}"))
        default = (providers or {}).get("s3", {}).get("default")
    except (yaml.YAMLError, AttributeError):
        yield _ours(
            path, "a text that is no mapping of providers", "YAML: s3: {default: {endpoint, region, credentials}}"
        )
        return
    if default is None:
        return
    credentials = default.get("credentials", {}) if isinstance(default, dict) else {}
    reference = credentials.get("secretRef", {}) if isinstance(credentials, dict) else {}
    if not credentials.get("fromEnv", False):
        for field in ("secretName", "accessKeyKey", "secretKeyKey"):
            if not reference.get(field):
                yield _ours(f"{path} s3.default.credentials.secretRef.{field}", "nothing", "it, or fromEnv: true")


def _check_secret(document: Mapping[str, Any]) -> Iterator[Finding]:
    for field in ("data", "stringData"):
        if document.get(field):
            yield _ours(field, "values of a secret in a file", "none: `kubectl create secret` keeps them out of files")


def _check_role(document: Mapping[str, Any]) -> Iterator[Finding]:
    for index, rule in enumerate(document.get("rules", [])):
        path = f"rules[{index}]"
        for field in ("apiGroups", "resources", "verbs"):
            if "*" in rule.get(field, []):
                yield _ours(f"{path}.{field}", show("*"), "what is needed, by name")
        if "secrets" in rule.get("resources", []) and not rule.get("resourceNames"):
            yield _ours(f"{path}.resourceNames", "nothing", "the names of the secrets: a role that reads all holds all")
        if not rule.get("resources") and not rule.get("nonResourceURLs"):
            yield _refused(f"{path}.resources", "nothing", "at least one resource")


def _check_role_binding(document: Mapping[str, Any]) -> Iterator[Finding]:
    for index, subject in enumerate(document.get("subjects", [])):
        if subject["kind"] == "ServiceAccount" and not subject.get("namespace"):
            yield _refused(f"subjects[{index}].namespace", "nothing", "the namespace of the ServiceAccount")


def _check_network_policy(document: Mapping[str, Any]) -> Iterator[Finding]:
    spec = document.get("spec", {})
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction, [])):
            path = f"spec.{direction}[{index}]"
            for number, peer in enumerate(rule.get(peers, [])):
                yield from _check_peer(peer, f"{path}.{peers}[{number}]")
            for number, port in enumerate(rule.get("ports", [])):
                value = port.get("port")
                if isinstance(value, int) and not 1 <= value <= 65535:
                    yield _refused(f"{path}.ports[{number}].port", show(value), "1 to 65535")


def _check_peer(peer: Mapping[str, Any], path: str) -> Iterator[Finding]:
    if "ipBlock" not in peer:
        return
    if len(peer) > 1:
        yield _refused(path, "ipBlock beside selectors", "one of them")
    block = peer["ipBlock"]
    for place, text in [("cidr", block["cidr"]), *((f"except[{i}]", t) for i, t in enumerate(block.get("except", [])))]:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            yield _refused(f"{path}.ipBlock.{place}", show(text), "a block such as 10.0.0.0/8")


def _check_pod_object(document: Mapping[str, Any]) -> Iterator[Finding]:
    if "spec" not in document:
        yield _refused("spec", "nothing", "the pod")
    else:
        yield from _check_template_spec(document["spec"], "spec")


def _check_job(document: Mapping[str, Any]) -> Iterator[Finding]:
    if "spec" not in document:
        yield _refused("spec", "nothing", "the job")
    else:
        yield from _check_job_spec(document["spec"], "spec")


def _check_cron_job(document: Mapping[str, Any]) -> Iterator[Finding]:
    spec = document["spec"]
    if len(spec["schedule"].split()) != 5 and not spec["schedule"].startswith("@"):
        yield _refused("spec.schedule", show(spec["schedule"]), "five fields: minute, hour, day, month, weekday")
    if "spec" in spec["jobTemplate"]:
        yield from _check_job_spec(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")


def _check_job_spec(spec: Mapping[str, Any], path: str) -> Iterator[Finding]:
    template, here = spec["template"], f"{path}.template"
    yield from check_labels(template.get("metadata", {}).get("labels", {}), f"{here}.metadata.labels")
    if "spec" not in template:
        yield _refused(f"{here}.spec", "nothing", "the pod")
        return
    policy = template["spec"].get("restartPolicy", "Always")
    if policy == "Always":
        yield _refused(f"{here}.spec.restartPolicy", show(policy), "OnFailure or Never")
    yield from _check_template_spec(template["spec"], f"{here}.spec")


def _check_template_spec(pod: Mapping[str, Any], path: str) -> Iterator[Finding]:
    yield from check_pod(pod, path)
    yield from check_security(pod, path)


def _check_kustomization(document: Mapping[str, Any]) -> Iterator[Finding]:
    for index, generator in enumerate(document.get("secretGenerator", [])):
        if "literals" in generator:
            yield _ours(f"secretGenerator[{index}].literals", "values of a secret in a file", "none of them")
    for index, patch in enumerate(document.get("patches", [])):
        if ("patch" in patch) == ("path" in patch):
            yield _refused(
                f"patches[{index}]", "patch and path" if "patch" in patch else "neither patch nor path", "one"
            )


OBJECT_RULES: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[Finding]]]] = {
    "ConfigMap": _check_config_map,
    "CronJob": _check_cron_job,
    "Job": _check_job,
    "Kustomization": _check_kustomization,
    "NetworkPolicy": _check_network_policy,
    "Pod": _check_pod_object,
    "Role": _check_role,
    "RoleBinding": _check_role_binding,
    "Secret": _check_secret,
}
"""Kind -> the check of a document whose types are right."""


def _refused(path: str, found: str, expected: str) -> Finding:
    return Finding(path, found, expected, "kubernetes")


def _ours(path: str, found: str, expected: str) -> Finding:
    return Finding(path, found, expected, "hopline")
