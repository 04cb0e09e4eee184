"""Options that several commands share, and how a result is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from hopline.config import ResolvedConfig, load_config
from hopline.stages.results import StageResult

__all__ = ["config_options", "json_option", "print_result", "resolve", "root_option"]

Function = TypeVar("Function", bound=Callable[..., Any])


def config_options(function: Function) -> Function:
    """``-c/--config`` and ``--set``."""
    function = click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. training.max_steps=200."
    )(function)
    return click.option("-c", "--config", "config_path", required=True, metavar="FILE", help="Config file (YAML).")(
        function
    )


def root_option(function: Function) -> Function:
    """``--root``."""
    return click.option(
        "--root", metavar="URI", help="Folder, file:// or s3:// URI. [default: $HOPLINE_ROOT, else .hopline]"
    )(function)


def json_option(function: Function) -> Function:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")(function)


def resolve(config_path: str, overrides: tuple[str, ...]) -> ResolvedConfig:
    """The config that the options name."""
    return load_config(config_path, overrides)


def print_result(result: StageResult, *, as_json: bool) -> None:
    """A stage's result: one JSON object, or a table for people."""
    record = result.model_dump(mode="json")
    if as_json:
        click.echo(json.dumps(record, ensure_ascii=False))
        return
    width = max(map(len, record))
    for name, value in record.items():
        first, *others = _lines(value)
        click.echo(f"{name:<{width}}  {first}")
        for line in others:
            click.echo(f"{'':<{width}}  {line}")


def _lines(value: Any) -> list[str]:
    """A value of a result for people; a dict, a list or a candidate has several lines."""
    if isinstance(value, dict):
        return [f"{name} {_text(item)}" for name, item in value.items()] or ["none"]
    if isinstance(value, list):
        return [" ".join(_lines(item)) for item in value] or ["none"]
    return [_text(value)]


def _text(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
