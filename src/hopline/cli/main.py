"""The command group, which loads a command's module only when it is called, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

import click

from hopline.errors import HoplineError

__all__ = ["cli", "main"]

INTERRUPTED: Final = 130

_COMMANDS: Final = {
    "run": ("pipelines.cli", "run", "Run the whole pipeline here, from source to published model."),
    "generate": ("hopline.cli.stages", "generate", "Make the dataset."),
    "train": ("hopline.cli.stages", "train", "Train on the dataset."),
    "evaluate": ("hopline.cli.stages", "evaluate", "Choose the best checkpoint and measure it on test."),
    "publish": ("hopline.cli.stages", "publish", "Publish the chosen checkpoint as a version."),
    "plan": ("hopline.cli.plan", "plan", "Say what a run would reuse and redo, and why."),
    "verify": ("hopline.cli.verify", "verify", "Check every claim of a published model."),
    "lineage": ("hopline.cli.lineage", "lineage", "Draw what a published model came from."),
    "champion": ("hopline.cli.champion", "champion", "Show or move the champion of a model."),
    "keygen": ("hopline.cli.keygen", "keygen", "Make a key that versions are signed with."),
    "diff": ("hopline.cli.diff", "diff", "Say in what the manifests of two versions differ."),
    "predict": ("hopline.cli.predict", "predict", "Answer queries with a published model."),
    "runs": ("hopline.cli.runs", "runs", "List the runs of a root, or show one."),
    "model": ("hopline.cli.model", "model", "Show a model's parts and what it needs."),
    "import-checkpoint": (
        "hopline.cli.import_checkpoint",
        "import_checkpoint",
        "Import a checkpoint of the system before.",
    ),
    "compile": ("pipelines.cli", "compile", "Compile the Kubeflow pipeline to a yaml file."),
    "render": ("hopline.cli.render", "render", "Print the manifest of a training job for a cluster."),
    "validate": ("hopline.cli.validate", "validate", "Check manifests without a cluster."),
    "config": ("hopline.cli.config", "config", "Show, validate or document a config."),
    "dataset": ("hopline.cli.dataset", "dataset", "Check, describe or print a dataset."),
    "version": ("hopline.cli.version", "version", "Print the version of Hopline."),
}
"""Command name -> module, attribute, help. The help stands here so that ``--help`` imports nothing heavy."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in {
                "pipelines",
                "components",
                "kfp",
                "kubernetes",
            }:
                raise
            raise click.ClickException(
                f"'hopline {cmd_name}' needs the Hopline repository and its pipelines extra (missing: {error.name}); "
                "clone the repository and run `pip install -e '.[pipelines]'` in it"
            ) from None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Retrain a graph-reasoning model, on a laptop or on Kubeflow, and prove what was published."""
    ctx.obj = {"debug": debug}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``hopline`` command; exits with the codes of :mod:`hopline.errors`."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    try:
        result: Any = cli.main(args=arguments, prog_name="hopline", standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code if error.exit_code != 1 else HoplineError.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("hopline: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone; nothing is left to flush
        return 0
    except HoplineError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"hopline: {error}", err=True)
        return error.exit_code
    return result if isinstance(result, int) else 0
