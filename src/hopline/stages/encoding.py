"""The config as one text: the parameter in which it travels through the pipeline."""

from __future__ import annotations

import json

from hopline.config import Override, ResolvedConfig, resolve_config
from hopline.errors import ConfigError

__all__ = ["decode_config", "encode_config"]


def encode_config(resolved: ResolvedConfig) -> str:
    """A config with its source and overrides as one JSON text, the config parameter of the pipeline."""
    overrides = [{"key": o.key, "value": o.value, "origin": o.origin} for o in resolved.overrides]
    return json.dumps(
        {"config": resolved.config.to_dict(), "source": resolved.source, "overrides": overrides},
        sort_keys=True,
        ensure_ascii=False,
    )


def decode_config(text: str) -> ResolvedConfig:
    """Read what :func:`encode_config` wrote; a bare config as JSON or YAML is taken too, for people who submit by hand.

    Raises:
        ConfigError: the text is neither.
    """
    source = "config parameter"
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return resolve_config(text, source=source)
    if not isinstance(document, dict) or "config" not in document:
        return resolve_config(text, source=source)
    try:
        overrides = tuple(Override(o["key"], o["value"], o["origin"]) for o in document["overrides"])
        name = str(document["source"])
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{source}: expected the keys config, source and overrides, missing or wrong: {error}"
        ) from None
    resolved = resolve_config(json.dumps(document["config"]), source=name)
    return ResolvedConfig(resolved.config, name, overrides)
