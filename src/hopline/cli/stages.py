"""``hopline generate | train | evaluate | publish``: one stage each, from the same config and root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hopline.cli.console import terminal_sink
from hopline.cli.options import config_options, json_option, print_result, resolve, root_option
from hopline.stages.roots import resolve_root

if TYPE_CHECKING:
    from hopline.stages.alone import StageName

__all__ = ["evaluate", "generate", "publish", "train"]


def _command(stage: StageName, text: str) -> click.Command:
    @click.command(name=stage, help=text)
    @config_options
    @root_option
    @json_option
    def command(config_path: str, overrides: tuple[str, ...], root: str | None, as_json: bool) -> None:
        from hopline.stages.alone import run_alone

        resolved, place = resolve(config_path, overrides), resolve_root(root)
        with terminal_sink() as sink:
            result = run_alone(stage, resolved, root=place, sink=sink)
        print_result(result, as_json=as_json)

    return command


generate = _command("generate", "Make the dataset that the config describes, or find it.")
train = _command("train", "Train on the dataset, continue a run that was stopped, or find one that is done.")
evaluate = _command("evaluate", "Choose the best checkpoint on valid and measure it on test.")
publish = _command("publish", "Publish the chosen checkpoint as a version and ask the champion gate.")
