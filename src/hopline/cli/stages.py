"""``hopline generate | train | evaluate | publish``: one stage each, from the same config and root.

A stage finds the outputs of the stages before it by their request records; if there are none it says which command makes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hopline.cli.console import terminal_sink
from hopline.cli.options import config_options, json_option, print_result, resolve, root_option
from hopline.config import ResolvedConfig
from hopline.progress import EventSink
from hopline.stages.results import StageResult
from hopline.stages.roots import resolve_root

__all__ = ["evaluate", "generate", "publish", "train"]

Function = TypeVar("Function", bound=Callable[..., Any])


def _stage_options(function: Function) -> Function:
    return config_options(root_option(json_option(function)))


def _call(
    stage: Callable[[ResolvedConfig, str, EventSink], StageResult],
    config_path: str,
    overrides: tuple[str, ...],
    root: str | None,
    as_json: bool,
) -> None:
    resolved = resolve(config_path, overrides)
    with terminal_sink() as sink:
        result = stage(resolved, resolve_root(root), sink)
    print_result(result, as_json=as_json)


@click.command()
@_stage_options
def generate(config_path: str, overrides: tuple[str, ...], root: str | None, as_json: bool) -> None:
    """Make the dataset that the config describes, or find it."""

    def stage(resolved: ResolvedConfig, root: str, sink: EventSink) -> StageResult:
        from hopline import stages

        return stages.generate(resolved, root=root, sink=sink)

    _call(stage, config_path, overrides, root, as_json)


@click.command()
@_stage_options
def train(config_path: str, overrides: tuple[str, ...], root: str | None, as_json: bool) -> None:
    """Train on the dataset, continue a run that was stopped, or find one that is done."""

    def stage(resolved: ResolvedConfig, root: str, sink: EventSink) -> StageResult:
        from hopline import stages

        data = stages.find_generate(resolved, root=root)
        return stages.train(
            resolved, root=root, dataset_uri=data.dataset_uri, dataset_hash=data.dataset_hash, sink=sink
        )

    _call(stage, config_path, overrides, root, as_json)


@click.command()
@_stage_options
def evaluate(config_path: str, overrides: tuple[str, ...], root: str | None, as_json: bool) -> None:
    """Choose the best checkpoint on valid and measure it on test."""

    def stage(resolved: ResolvedConfig, root: str, sink: EventSink) -> StageResult:
        from hopline import stages

        data = stages.find_generate(resolved, root=root)
        run = stages.find_train(resolved, root=root, dataset_hash=data.dataset_hash)
        return stages.evaluate(
            resolved,
            root=root,
            dataset_uri=data.dataset_uri,
            dataset_hash=data.dataset_hash,
            run_uri=run.run_uri,
            run_hash=run.run_hash,
            sink=sink,
        )

    _call(stage, config_path, overrides, root, as_json)


@click.command()
@_stage_options
def publish(config_path: str, overrides: tuple[str, ...], root: str | None, as_json: bool) -> None:
    """Publish the chosen checkpoint as a version and ask the champion gate."""

    def stage(resolved: ResolvedConfig, root: str, sink: EventSink) -> StageResult:
        from hopline import stages

        data = stages.find_generate(resolved, root=root)
        run = stages.find_train(resolved, root=root, dataset_hash=data.dataset_hash)
        chosen = stages.find_evaluate(resolved, root=root, run=run)
        return stages.publish(
            resolved,
            root=root,
            dataset_uri=data.dataset_uri,
            dataset_hash=data.dataset_hash,
            run_uri=run.run_uri,
            run_hash=run.run_hash,
            checkpoint_uri=chosen.checkpoint_uri,
            checkpoint_sha256=chosen.checkpoint_sha256,
            report_uri=chosen.report_uri,
            sink=sink,
        )

    _call(stage, config_path, overrides, root, as_json)
