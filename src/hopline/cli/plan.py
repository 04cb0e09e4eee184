"""``hopline plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopline.cli.options import config_options, json_option, resolve, root_option
from hopline.stages.roots import resolve_root

if TYPE_CHECKING:
    from hopline.stages.plan import PlannedStage

__all__ = ["plan"]

_COLOURS = {"reuse": "green", "redo": "yellow", "stop": "red"}
_SHOWN = 12
"""Causes of one stage that are printed; ``--json`` has all."""


@click.command()
@config_options
@root_option
@json_option
def plan(config_path: str, overrides: tuple[str, ...], root: str | None, as_json: bool) -> None:
    """Say for each stage whether it finds its output in the root or is redone, and because of which key, file or code.

    Nothing is made, and nothing is written to the root.
    """
    from hopline.stages import plan as planning

    found = planning.plan(resolve(config_path, overrides), root=resolve_root(root))
    if as_json:
        click.echo(found.model_dump_json())
        return
    for stage in found.stages:
        first, *others = _lines(stage)
        action = click.style(f"{stage.action:<5}", fg=_COLOURS[stage.action])
        click.echo(f"{stage.stage:<8}  {action}  {first}")
        for line in others:
            click.echo(f"{'':<8}  {'':<5}  {line}")


def _lines(stage: PlannedStage) -> list[str]:
    causes = [str(cause) for cause in stage.because]
    if len(causes) > _SHOWN:
        causes[_SHOWN:] = [f"and {len(causes) - _SHOWN} more; --json lists them"]
    if stage.action == "reuse":
        causes = [stage.output or ""]
    return [*causes, *stage.notes]
