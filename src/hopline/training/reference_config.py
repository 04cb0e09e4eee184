"""The config of the system before, as far as it has a place in ours; the sizes of the model are read off its weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from torch import Tensor

from hopline.config import GraphConfig, ResolvedConfig, resolve_config
from hopline.errors import ConfigError, DataError

__all__ = ["Architecture", "MappedConfig", "map_reference_config", "read_architecture"]

_SECTIONS: Final = {"pat": "model.pat", "loss": "loss", "training": "training", "model": "model"}
"""Sections of the config before, and what they are here."""
_TOP_LEVEL: Final = ("hidden_dim", "max_count", "model_version", "on_policy_selection")
_WITHOUT_KEY: Final = {
    "num_relations": "the vocabulary of the dataset decides",
    "training.batched_forward": "every forward pass is batched",
}
_LAYER: Final = re.compile(r"propagation\.layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of a model.

    Attributes:
        num_relations, num_entities: of its vocabulary.
        keys: config keys with their values.
    """

    num_relations: int
    num_entities: int
    keys: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MappedConfig:
    """A config in our terms.

    Attributes:
        resolved: the whole config, with what was asked for by ``--set``.
        dropped: keys of the config before that have no place here, each with the reason where there is one.
    """

    resolved: ResolvedConfig
    dropped: tuple[str, ...]


def read_architecture(weights: Mapping[str, Tensor], *, source: str) -> Architecture:
    """The sizes of the model that some weights belong to.

    Raises:
        DataError: a tensor that tells one is missing or has another number of dimensions.
    """

    def size(name: str, dimension: int, of: int) -> int:
        if name not in weights or weights[name].ndim != of:
            found = f"the shape {list(weights[name].shape)}" if name in weights else "no such tensor"
            raise DataError(
                f"{source}: model.{name}: found {found}, expected {of} dimensions; only weights with the parameter names of "
                "this version of Hopline can be imported"
            )
        return weights[name].shape[dimension]

    layers = 1 + max((int(match[1]) for match in map(_LAYER.match, weights) if match), default=-1)
    positions = size("query_encoder.position.weight", 0, 2)
    transductive = "transductive.entity.weight" in weights
    keys = {
        "model.hidden_dim": size("query_encoder.position.weight", 1, 2),
        "model.layers": layers,
        "model.max_hops": positions,
        "model.max_count": size("count.inner.2.weight", 0, 2) - 1,
        "model.transductive": transductive,
        "training.link_head": "mlp" if any(name.startswith("link_mlp.") for name in weights) else "cosine",
    }
    if transductive:
        keys["model.transductive_rank"] = size("transductive.entity.weight", 1, 2) // 2
        keys["dataset.entities"] = "identity"
    return Architecture(
        num_relations=(size("query_encoder.relation.weight", 0, 2) - 1) // 2,
        num_entities=size("transductive.entity.weight", 0, 2) if transductive else 0,
        keys=keys,
    )


def map_reference_config(
    config: Mapping[str, Any], architecture: Architecture, *, source: str, overrides: Sequence[str] = ()
) -> MappedConfig:
    """Bring a config of the system before into ours.

    Where the weights tell a size, they are believed. A key with a place here keeps its value; what ``overrides`` say wins.

    Args:
        config: as its ``to_dict()`` gave it.
        architecture: from the weights.
        source: what errors call it.
        overrides: ``key.path=value``.

    Raises:
        ConfigError: a value is not allowed here; the message names its key, and ``--set`` gives another.
    """
    taken: dict[str, Any] = {}
    dropped: list[str] = []
    known = set(_keys(GraphConfig))
    for name, value in _leaves(config, ""):
        place = _place(name)
        if name == "training.use_fsdp":
            taken["training.parallelism"] = "fsdp" if value else "none"
        elif name == "training.link_head":
            taken[name] = "mlp" if value == "mlp" else "cosine"  # whatever else it said meant that
        elif place in known:
            taken[place] = value
        else:
            dropped.append(f"{name} ({_WITHOUT_KEY[name]})" if name in _WITHOUT_KEY else name)
    hops = taken.get("model.max_hops")
    taken |= architecture.keys
    if isinstance(hops, int) and 1 <= hops <= taken["model.max_hops"] == taken["model.layers"]:
        taken["model.max_hops"] = hops  # layers alone made the encoder that long
    taken.setdefault("name", _name(taken.get("model.model_version")))
    longest = min(taken["model.max_hops"], GraphConfig.model_fields["dataset"].get_default().max_hops)
    taken.setdefault("dataset.max_hops", longest)
    document: dict[str, Any] = {}
    for key, value in taken.items():
        *sections, last = key.split(".")
        here = document
        for section in sections:
            here = here.setdefault(section, {})
        here[last] = value
    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{source}: holds what is no plain value ({error}); save the file again without its config"
        ) from None
    resolved = resolve_config(text, source=source, overrides=overrides)
    return MappedConfig(resolved, tuple(sorted(dropped)))


def _place(name: str) -> str:
    """Where a key of the config before is in ours, if it is there at all."""
    first, _, rest = name.partition(".")
    if not rest:
        return f"model.{name}" if name in _TOP_LEVEL else name
    return f"{_SECTIONS.get(first, first)}.{rest}"


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _leaves(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", item


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Keys that hold a value."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _name(version: Any) -> str:
    """A name for the model: its version, if that can be one."""
    name = str(version or "")
    allowed = 0 < len(name) <= 63 and all(c.isascii() and (c.isalnum() or c in "-_.") for c in name)
    return name if allowed and name[0].isalnum() else "imported"
