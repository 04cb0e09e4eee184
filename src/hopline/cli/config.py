"""``hopline config``: show, validate, schema."""

from __future__ import annotations

import json

import click
import yaml

from hopline.cli.options import config_options, json_option, resolve
from hopline.config import GraphConfig, section_hash

__all__ = ["config"]


@click.group()
def config() -> None:
    """Show, validate or document a config."""


@config.command()
@config_options
@json_option
def show(config_path: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print the whole config, every default filled in."""
    data = resolve(config_path, overrides).config.to_dict()
    click.echo(json.dumps(data) if as_json else yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip())


@config.command()
@config_options
@json_option
def validate(config_path: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check a config and print the hash of each section."""
    resolved = resolve(config_path, overrides)
    names = [name for name in GraphConfig.model_fields if name != "name"]
    hashes = {name: section_hash(getattr(resolved.config, name)) for name in names}
    if as_json:
        click.echo(json.dumps({"valid": True, "name": resolved.config.name, "sections": hashes}))
        return
    click.echo(f"{config_path}: valid, model {resolved.config.name}")
    for name, digest in hashes.items():
        click.echo(f"  {name:<11}{digest}")


@config.command()
def schema() -> None:
    """Print the JSON Schema of a config: every key with its meaning, type, range and default."""
    click.echo(json.dumps(GraphConfig.model_json_schema(), indent=2, ensure_ascii=False))
