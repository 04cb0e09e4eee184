"""Documents that a schema accepts and refuses, and what accepts them by the book: JSON Schema with Kubernetes' own words."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema

Schema = dict[str, Any]
Path = tuple[str | int, ...]

WRONG = [None, "text", 7, 2**40, 2**70, 1.5, True, [], {}, ["text"], {"name": "text"}]


def acceptor(schema: Schema) -> Callable[[Any], bool]:
    """Whether a schema accepts a document, as an API server reads it: keyed lists, sets and formats are checked too."""
    keywords = {"x-kubernetes-list-map-keys": distinct_keys, "x-kubernetes-list-type": distinct_items}
    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, keywords)
    checker = jsonschema.FormatChecker(formats=())
    for bits in (32, 64):
        checker.checks(f"int{bits}")(functools.partial(fits, bits))
    checker.checks("date-time")(is_time)
    return kind(schema, format_checker=checker).is_valid


def differences(
    schema: Schema, accepted: Callable[[Any], bool], ours: Callable[[Any], bool], title: Schema
) -> tuple[int, int, list[Any]]:
    """Right and wrong values at every place of a schema, put to both: how many, how many refused, where the two differ."""
    count, refused, differ = 0, 0, []
    for path, node in places(schema):
        for value in variants(node) if path else ():
            document = title | around(schema, path, value)
            expected = accepted(document)
            count += 1
            refused += not expected
            if ours(document) is not expected:
                differ.append((path, value, "accepted" if expected else "refused"))
    return count, refused, differ


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


def places(node: Schema, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Every place that a schema describes, as a path, with the schema of what stands there."""
    yield path, node
    for name, below in node.get("properties", {}).items():
        if path or name not in ("apiVersion", "kind", "metadata"):
            yield from places(below, (*path, name))
    if "items" in node:
        yield from places(node["items"], (*path, 0))
    if isinstance(node.get("additionalProperties"), dict):
        yield from places(node["additionalProperties"], (*path, "Worker"))


def around(schema: Schema, path: Path, value: Any) -> Any:
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


def nodes(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if path or key == "spec":
            yield from nodes(item, (*path, key))


def changed(document: Any, path: Path, how: str, value: Any) -> Any:
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
