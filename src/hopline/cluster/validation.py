"""The check of manifests: every document of a file, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from hopline.cluster.findings import Finding, show
from hopline.cluster.job_rules import check_pytorchjob
from hopline.cluster.object_rules import OBJECT_RULES, check_metadata
from hopline.cluster.schema import check_type
from hopline.config.loading import expanded_values
from hopline.errors import DataError

__all__ = ["KINDS", "Checked", "check_document", "read_documents", "validate_manifest"]

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "batch/v1": ("CronJob", "Job"),
    "kubeflow.org/v1": ("PyTorchJob",),
    "kustomize.config.k8s.io/v1beta1": ("Kustomization",),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "rbac.authorization.k8s.io/v1": ("Role", "RoleBinding"),
    "v1": ("ConfigMap", "PersistentVolumeClaim", "Pod", "Secret", "ServiceAccount"),
}
"""apiVersion -> the kinds that are checked."""

_LARGEST: Final = 64 * 1024 * 1024
_MOST_VALUES: Final = 1_000_000
_NO_OBJECTS: Final = ("Kustomization",)
"""Kinds that no API server sees."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the check of one document came to.

    Attributes:
        index: which document of the file, from 1.
        kind: its kind; empty if it has none.
        name: its name; empty if it has none.
        checked: False for a kind that is not known here.
        findings: what is wrong; empty for one that is right or was not checked.
    """

    index: int
    kind: str
    name: str
    checked: bool
    findings: tuple[Finding, ...]

    @property
    def status(self) -> str:
        """``OK``, ``FAIL`` or ``NOT CHECKED``."""
        if self.findings:
            return "FAIL"
        return "OK" if self.checked else "NOT CHECKED"


def validate_manifest(text: str, *, source: str) -> tuple[Checked, ...]:
    """Check every document of a YAML or JSON text.

    Args:
        text: the documents.
        source: what errors call it.

    Raises:
        DataError: it is no YAML, holds a key twice, or holds no document.
    """
    documents = [item for document in read_documents(text, source=source) for item in _items(document)]
    if not documents:
        raise DataError(f"{source}: no document in it; expected YAML with apiVersion and kind")
    return tuple(check_document(document, index) for index, document in enumerate(documents, start=1))


def check_document(document: Any, index: int = 1) -> Checked:
    """Check one document. The rules for its content are asked once its types are right."""
    if not isinstance(document, dict):
        finding = Finding("document", show(document), "a mapping with apiVersion and kind", "kubernetes")
        return Checked(index, "", "", True, (finding,))
    metadata = document.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    version, kind = document.get("apiVersion"), document.get("kind")
    missing = [
        Finding(field, "nothing" if value is None else show(value), "a string; it has to be given", "kubernetes")
        for field, value in (("apiVersion", version), ("kind", kind))
        if not isinstance(value, str) or not value
    ]
    if missing:
        return Checked(index, str(kind or ""), str(name), True, tuple(missing))
    assert isinstance(version, str)
    assert isinstance(kind, str)
    if kind not in KINDS.get(version, ()):
        return Checked(index, kind, str(name), *_unknown(version, kind))
    findings = list(check_type(document, kind))
    if not any(finding.rule == "schema" for finding in findings):
        findings += _rules(document, kind)
    return Checked(index, kind, str(name), True, tuple(findings))


def read_documents(text: str, *, source: str) -> list[Any]:
    """The documents of a YAML or JSON text, empty ones left out, as kubectl reads them.

    Raises:
        DataError: it is no YAML, or holds a key twice.
    """
    if len(text) > _LARGEST:
        raise DataError(f"{source}: {len(text)} characters; expected a manifest of at most {_LARGEST}")
    try:
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DataError(f"{source}{place}: {error.problem}; expected YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    if expanded_values(documents, _MOST_VALUES) > _MOST_VALUES:
        raise DataError(f"{source}: its aliases expand to more than {_MOST_VALUES} values; write out what they mean")
    return documents


def _items(document: Any) -> list[Any]:
    """The objects of a List, which is how kubectl prints several; any other document alone."""
    if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _unknown(version: str, kind: str) -> tuple[bool, tuple[Finding, ...]]:
    """A kind that is not checked, or one that is under another version."""
    right = [known for known, kinds in KINDS.items() if kind in kinds]
    group = version.rpartition("/")[0]
    if right and group == right[0].rpartition("/")[0]:
        return True, (Finding("apiVersion", show(version), f"{right[0]} for {kind}", "kubernetes"),)
    return False, ()


def _rules(document: Mapping[str, Any], kind: str) -> Iterator[Finding]:
    if kind not in _NO_OBJECTS:
        yield from check_metadata(document) if kind != "PyTorchJob" else _job_metadata(document)
    if kind == "PyTorchJob":
        yield from check_pytorchjob(document)
    elif kind in OBJECT_RULES:
        yield from OBJECT_RULES[kind](document)


def _job_metadata(document: Mapping[str, Any]) -> Iterator[Finding]:
    """The name of a job has a rule of its own."""
    return (finding for finding in check_metadata(document) if finding.path != "metadata.name")


class _Loader(yaml.SafeLoader):
    """Reads as kubectl does: times stay texts, keys are texts, a key that is given twice is refused."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key is no text", problem_mark=key_node.start_mark)
        if key_node.value in result:
            problem = f"key '{key_node.value}' is given twice"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
        result[key_node.value] = loader.construct_object(value_node, deep=True)
    return result


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
