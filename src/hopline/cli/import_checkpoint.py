"""``hopline import-checkpoint``."""

from __future__ import annotations

from pathlib import Path

import click

from hopline.cli.console import terminal_sink
from hopline.cli.options import json_option, print_result, root_option
from hopline.stages.roots import resolve_root

__all__ = ["import_checkpoint"]


@click.command("import-checkpoint")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@root_option
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A config key that the file does not tell."
)
@json_option
def import_checkpoint(file: Path, root: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Import a checkpoint of the system before: a torch file with model, optimizer, step and config.

    Nothing that the file may carry is run. Weights and optimizer state go into the root as a training state; the line
    init_from is what training.init_from of a config takes. The config of the file is translated, and the keys that have no
    place here are listed.
    """
    from hopline.stages.import_stage import import_checkpoint as run

    with terminal_sink() as sink:
        result = run(file, root=resolve_root(root), overrides=overrides, sink=sink)
    print_result(result, as_json=as_json)
