"""Read a config file, apply overrides with their origin, and hash sections."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from hopline.config.sections import GraphConfig
from hopline.errors import ConfigError

__all__ = [
    "Override",
    "ResolvedConfig",
    "expanded_values",
    "load_config",
    "resolve_config",
    "section_hash",
]


@dataclass(frozen=True, slots=True)
class Override:
    """One ``--set`` and where it came from."""

    key: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A config with the file it came from and the overrides that changed it."""

    config: GraphConfig
    source: str
    overrides: tuple[Override, ...] = ()


def load_config(path: Path | str, overrides: Sequence[str] = (), *, origin: str = "--set") -> ResolvedConfig:
    """Read a YAML config file and apply ``key.path=value`` overrides; values are YAML.

    Raises:
        ConfigError: the file cannot be read, is no mapping, or a key or value is wrong. The message names the file, the key,
            what was found and what was expected, and the nearest valid key.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file; see configs/ for examples") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a config file: {error}") from None
    return resolve_config(text, source=str(path), overrides=overrides, origin=origin)


def resolve_config(text: str, *, source: str, overrides: Sequence[str] = (), origin: str = "--set") -> ResolvedConfig:
    """As :func:`load_config`, from the text of a YAML or JSON config; ``source`` is what errors call it."""
    data = _parse_yaml(text, source)
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: expected a mapping with the key 'name', found {type(data).__name__}")
    applied = tuple(_apply(data, override, origin) for override in overrides)
    try:
        return ResolvedConfig(GraphConfig.model_validate_json(json.dumps(data)), source, applied)
    except ValidationError as error:
        raise ConfigError(_explain(error, source)) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source}: {error}") from None


def section_hash(section: BaseModel, *, exclude: frozenset[str] = frozenset()) -> str:
    """sha256 of a section as canonical JSON: sorted keys, no space, every default filled in.

    ``exclude`` names fields of the section that change no result.
    """
    data = section.model_dump(mode="json", exclude=set(exclude))
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def expanded_values(value: Any, most: int) -> int:
    """How many values a document has once every alias is expanded; more than ``most`` if one contains itself."""
    known: dict[int, int] = {}

    def count(item: Any) -> int:
        if not isinstance(item, dict | list):
            return 1
        if id(item) not in known:
            known[id(item)] = most + 1
            inside = item.values() if isinstance(item, dict) else item
            known[id(item)] = 1 + sum(map(count, inside))
        return known[id(item)]

    return count(value)


_MOST_VALUES: Final = 100_000
_RENAMED: Final = {"training.use_fsdp": "training.parallelism: none|ddp|fsdp"}
"""Keys of the system before, and what they are called here."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice, and reads 2e-3 as a number (YAML 1.2)."""


def _unique_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = key_node.value
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"key '{key}' is given twice", problem_mark=key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_UniqueKeyLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def _float_or_text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    value = loader.construct_scalar(node)
    if node.style is not None:  # quoted: a string, whatever it looks like
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    return number if math.isfinite(number) and "e" in value.lower() and "_" not in value else value


_UniqueKeyLoader.add_constructor("tag:yaml.org,2002:str", _float_or_text)


def _parse_yaml(text: str, source: str) -> Any:
    try:
        value = yaml.load(text, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{place}: {error.problem}; expected YAML") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    if expanded_values(value, _MOST_VALUES) > _MOST_VALUES:
        raise ConfigError(f"{source}: its aliases expand to more than {_MOST_VALUES} values; write out what they mean")
    return value


def _apply(data: dict[str, Any], override: str, origin: str) -> Override:
    key, separator, text = override.partition("=")
    keys = key.strip().split(".")
    if not separator or not all(keys):
        raise ConfigError(f"{origin} {override}: expected key.path=value, for example training.max_steps=200")
    value = _parse_yaml(text, f"{origin} {override}")
    here = data
    for part in keys[:-1]:
        below = here.setdefault(part, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{origin} {override}: '{part}' is no section but {below!r}")
        here = below
    here[keys[-1]] = value
    return Override(".".join(keys), value, origin)


def _explain(error: ValidationError, source: str) -> str:
    """Every problem of a config in one line each would be long: the first, and how many more."""
    problems = error.errors(include_url=False)
    first = problems[0]
    key = ".".join(str(part) for part in first["loc"]) or "config"
    found = _shorten(first.get("input"))
    if first["type"] == "extra_forbidden" and key in _RENAMED:
        text = f"'{key}' is now '{_RENAMED[key]}'; write that"
    elif first["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(key, list(_all_keys(GraphConfig)), n=1, cutoff=0.0)
        text = f"unknown key '{key}'; did you mean '{nearest[0]}'?"
    elif first["type"] == "missing":
        text = f"key '{key}' is missing; add it"
    elif first["type"] == "value_error":
        text = f"{key}: {first['ctx']['error']}"
    else:
        expected = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
        text = f"{key}: found {found}, expected {expected}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{source}: {text}{more}"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield prefix + name
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _all_keys(info.annotation, f"{prefix}{name}.")
