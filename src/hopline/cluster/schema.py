"""The types of documents, and a check against them.

A type has fields; each field has a type in this notation, and ``!`` after its name where it has to be given::

    string  bool  int32  int64  quantity  int-or-string  date-time
    string of A|B             a string; another one than these is refused by the API server, not by the schema
    object                    a mapping of anything
    Container                 a mapping with the fields of that type, and no others
    map TYPE                  a mapping of names to TYPE
    list TYPE                 a list
    set TYPE                  a list without equal items
    list TYPE by a,b=X        a list without items that agree in a and b, where a missing b counts as X

The types lie in ``kinds/*.yaml``, in the form in which an API server checks documents with unknown fields refused.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml

from hopline.cluster.findings import Finding, below, show
from hopline.config.kubernetes import parse_quantity

__all__ = ["check_type", "known_types"]


@dataclass(frozen=True, slots=True)
class _Field:
    type: str
    required: bool


@dataclass(frozen=True, slots=True)
class _List:
    item: str
    keys: tuple[tuple[str, str | None], ...]
    distinct: bool


def check_type(value: Any, type_name: str, path: str = "") -> Iterator[Finding]:
    """Everything in which a value is not of a type.

    Args:
        value: what YAML or JSON gave.
        type_name: a type in the notation of this module.
        path: where the value stands, for the findings.
    """
    if type_name in _SCALARS:
        accepts, expected = _SCALARS[type_name]
        if not accepts(value):
            yield _finding(path, value, expected)
    elif type_name.startswith("string of "):
        yield from _check_choice(value, type_name.removeprefix("string of ").split("|"), path)
    elif type_name == "object":
        if not isinstance(value, dict):
            yield _finding(path, value, "a mapping")
    elif type_name.startswith("map "):
        yield from _check_map(value, type_name.removeprefix("map "), path)
    elif type_name.startswith(("list ", "set ")):
        yield from _check_list(value, _parse_list(type_name), path)
    else:
        yield from _check_fields(value, type_name, path)


@cache
def known_types() -> Mapping[str, Mapping[str, _Field]]:
    """Every type by name, with its fields."""
    types: dict[str, dict[str, _Field]] = {}
    for file in sorted((resources.files("hopline.cluster") / "kinds").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".yaml"):
            for name, fields in yaml.safe_load(file.read_text(encoding="utf-8")).items():
                assert name not in types, name
                types[name] = {key.rstrip("!"): _Field(text, key.endswith("!")) for key, text in fields.items()}
    return types


def _check_choice(value: Any, choices: list[str], path: str) -> Iterator[Finding]:
    expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
    if not isinstance(value, str):
        yield _finding(path, value, expected)
    elif value not in choices:
        yield Finding(path, show(value), expected, "kubernetes")


def _check_fields(value: Any, type_name: str, path: str) -> Iterator[Finding]:
    if not isinstance(value, dict):
        yield _finding(path, value, f"a mapping ({type_name})")
        return
    fields = known_types()[type_name]
    for key, item in value.items():
        if key in fields:
            yield from check_type(item, fields[key].type, below(path, key))
        else:
            yield Finding(below(path, key), "this field", _known(key, fields, type_name), "schema")
    for key, field in fields.items():
        if field.required and key not in value:
            yield Finding(below(path, key), "nothing", f"{_word(field.type)}; it has to be given", "schema")


def _check_map(value: Any, item_type: str, path: str) -> Iterator[Finding]:
    if not isinstance(value, dict):
        yield _finding(path, value, f"a mapping of names to {_word(item_type)}")
        return
    for key, item in value.items():
        yield from check_type(item, item_type, below(path, key))


def _check_list(value: Any, kind: _List, path: str) -> Iterator[Finding]:
    if not isinstance(value, list):
        yield _finding(path, value, f"a list of {_word(kind.item)}")
        return
    seen: dict[str, int] = {}
    for index, item in enumerate(value):
        here = below(path, index)
        yield from check_type(item, kind.item, here)
        if kind.keys and isinstance(item, dict):
            identity = json.dumps([item.get(key, default) for key, default in kind.keys])
        elif kind.distinct:
            identity = json.dumps(item, sort_keys=True)
        else:
            continue
        if identity in seen:
            what = " and ".join(key for key, _ in kind.keys)
            yield Finding(here, f"the same {what or 'item'} as in [{seen[identity]}]", "each only once", "schema")
        seen.setdefault(identity, index)


@cache
def _parse_list(type_name: str) -> _List:
    word, _, rest = type_name.partition(" ")
    item, _, keys = rest.partition(" by ")
    parts = [key.partition("=") for key in keys.split(",") if key]
    return _List(item, tuple((name, default if equals else None) for name, equals, default in parts), word == "set")


def _known(key: str, fields: Mapping[str, _Field], type_name: str) -> str:
    nearest = difflib.get_close_matches(key, list(fields), n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"a field of {type_name}{hint}"


def _word(type_name: str) -> str:
    """A type in words."""
    if type_name.partition(" ")[0] in _SCALARS:
        return _SCALARS[type_name.partition(" ")[0]][1]
    if type_name.startswith("map ") or type_name == "object":
        return "a mapping"
    if type_name.startswith(("list ", "set ")):
        return "a list"
    return type_name


def _finding(path: str, value: Any, expected: str) -> Finding:
    return Finding(path, show(value), f"{expected}; leave the field out" if value is None else expected, "schema")


def _is_whole(value: Any) -> bool:
    # JSON knows no integers: a whole number is one, however it is written.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return int(value) == value


def _is_int(value: Any, bits: int) -> bool:
    return _is_whole(value) and -(2 ** (bits - 1)) <= int(value) < 2 ** (bits - 1)


def _is_quantity(value: Any) -> bool:
    if isinstance(value, str):
        return parse_quantity(value) is not None
    return _is_whole(value)


def _is_time(value: Any) -> bool:
    if not isinstance(value, str) or "T" not in value.upper():
        return False
    try:
        return datetime.fromisoformat(value.upper()).tzinfo is not None
    except ValueError:
        return False


_SCALARS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "string": (lambda value: isinstance(value, str), "a string"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int32": (lambda value: _is_int(value, 32), "a whole number of 32 bits"),
    "int64": (lambda value: _is_int(value, 64), "a whole number"),
    "int-or-string": (lambda value: isinstance(value, str) or _is_whole(value), "a whole number or a string"),
    "quantity": (_is_quantity, "a quantity such as 4, 500m or 16Gi"),
    "date-time": (_is_time, "a time such as 2026-01-31T12:00:00Z"),
}
