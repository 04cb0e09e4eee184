"""The validator and the real CRD say the same of every document, right or wrong.

The CRD is closed: a field that it does not name is refused, as ``kubectl apply`` does. The corpus has, for every place in
the CRD, a document with something right there, and documents with something wrong there; and jobs as they are rendered,
with something changed at random.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopline.cluster import JobSpec, check_document, render_pytorchjob

Schema = dict[str, Any]

WRONG = [None, "text", 7, 2**40, 2**70, 1.5, True, [], {}, ["text"], {"name": "text"}]


@pytest.fixture(scope="session")
def crd(crds: Path) -> Schema:
    document = yaml.safe_load((crds / "kubeflow.org_pytorchjobs.yaml").read_text(encoding="utf-8"))
    (version,) = document["spec"]["versions"]
    return close(version["schema"]["openAPIV3Schema"])


@pytest.fixture(scope="session")
def accepts(crd: Schema) -> Callable[[Any], bool]:
    """Whether the closed CRD accepts a document; its metadata, which the API server checks apart, is left out."""
    keywords = {"x-kubernetes-list-map-keys": distinct_keys, "x-kubernetes-list-type": distinct_items}
    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, keywords)
    checker = jsonschema.FormatChecker(formats=())
    for bits in (32, 64):
        checker.checks(f"int{bits}")(functools.partial(fits, bits))
    checker.checks("date-time")(is_time)
    validator = kind(crd, format_checker=checker)
    return validator.is_valid


def close(node: Any) -> Any:
    """The schema with ``additionalProperties: false`` wherever properties are declared, and int-or-string as it is meant."""
    if isinstance(node, list):
        return [close(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: close(value) for key, value in node.items() if key != "description" or isinstance(value, dict)}
    if isinstance(closed.get("properties"), dict) and "type" in closed and "additionalProperties" not in closed:
        closed["additionalProperties"] = False
    return closed


def distinct_keys(_: Any, keys: list[str], value: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, list):
        fields = schema["items"]["properties"]
        found = [
            json.dumps([item.get(key, fields[key].get("default")) for key in keys])
            for item in value
            if isinstance(item, dict)
        ]
        if len(set(found)) < len(found):
            yield jsonschema.ValidationError("a key is there twice")


def distinct_items(_: Any, kind: str, value: Any, __: Schema) -> Iterator[jsonschema.ValidationError]:
    if kind == "set" and isinstance(value, list):
        found = [json.dumps(item, sort_keys=True) for item in value]
        if len(set(found)) < len(found):
            yield jsonschema.ValidationError("an item is there twice")


def fits(bits: int, value: Any) -> bool:
    return (
        not isinstance(value, int | float) or isinstance(value, bool) or -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    )


def is_time(value: Any) -> bool:
    pattern = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
    return not isinstance(value, str) or re.fullmatch(pattern, value) is not None


def example(node: Schema) -> Any:
    """Something small that a schema accepts."""
    if node.get("x-kubernetes-int-or-string"):
        return "1"
    kind = node["type"]
    if kind == "object":
        return {name: example(node["properties"][name]) for name in node.get("required", [])}
    if kind == "string":
        return "2026-01-31T12:00:00Z" if node.get("format") == "date-time" else "text"
    return {"array": [], "integer": 1, "boolean": True}[kind]


def places(node: Schema, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    """Every place that a schema describes, as a path, with the schema of what stands there."""
    yield path, node
    for name, below in node.get("properties", {}).items():
        if path or name not in ("apiVersion", "kind", "metadata"):
            yield from places(below, (*path, name))
    if "items" in node:
        yield from places(node["items"], (*path, 0))
    if isinstance(node.get("additionalProperties"), dict):
        yield from places(node["additionalProperties"], (*path, "Worker"))


def around(schema: Schema, path: tuple[str | int, ...], value: Any) -> Any:
    """A document with a value at a place, and else only what has to be there."""
    if not path:
        return value
    step, *rest = path
    if isinstance(step, int):
        return [around(schema["items"], tuple(rest), value)]
    here = example(schema)
    below = schema["properties"][step] if step in schema.get("properties", {}) else schema["additionalProperties"]
    here[step] = around(below, tuple(rest), value)
    return here


def variants(node: Schema) -> Iterator[Any]:
    """Values for a place: right ones first, then wrong ones, and some that may be either."""
    right = example(node)
    yield right
    yield from WRONG
    if node.get("type") == "object":
        yield {**right, "unknownField": 1}
        for name in node.get("required", []):
            yield {key: value for key, value in right.items() if key != name}
    if node.get("type") == "array":
        item = example(node["items"])
        yield [item]
        yield [item, item]
    if node.get("x-kubernetes-int-or-string"):
        yield from ("16Gi", "500m", "1e3", "-1", "16 Gi", "1.5.2", "", "text", 3)


def ours(document: Any) -> bool:
    """Whether the validator finds the types of a document right."""
    return not any(finding.rule == "schema" for finding in check_document(document).findings)


def titled(content: Any) -> Any:
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **content}


def test_at_every_place_of_the_crd(crd: Schema, accepts: Callable[[Any], bool]) -> None:
    count, refused, differ = 0, 0, []
    for path, node in places(crd):
        if not path:
            continue
        for value in variants(node):
            document = titled(around(crd, path, value))
            expected = accepts(document)
            count += 1
            refused += not expected
            if ours(document) is not expected:
                differ.append((path, value, "accepted" if expected else "refused"))
    assert not differ, f"{len(differ)} of {count}, the first: {differ[:5]}"
    assert count > 10_000
    assert 0.3 < refused / count < 0.9


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


def nodes(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if path or key == "spec":
            yield from nodes(item, (*path, key))


def changed(document: Any, path: tuple[str | int, ...], how: str, value: Any) -> Any:
    document = copy.deepcopy(document)
    here = document
    for step in path[:-1]:
        here = here[step]
    last = path[-1]
    if how == "replace":
        here[last] = value
    elif how == "remove":
        del here[last]
    elif how == "rename" and isinstance(last, str):
        here[f"{last}s"] = here.pop(last)
    elif how == "repeat" and isinstance(here[last], list):
        here[last] = here[last] * 2
    elif isinstance(here[last], dict):
        here[last]["unknownField"] = value
    return document


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
