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


@click.command(name="train", help="Train on the dataset, continue a run that was stopped, or find one that is done.")
@click.option("-c", "--config", "config_path", metavar="FILE", help="Config file (YAML).")
@click.option("--config-json", metavar="JSON", help="The config as one text, instead of a file; for jobs.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the config file.")
@root_option
@click.option("--dataset-uri", metavar="URI", help="The dataset. [default: the one that `hopline generate` made]")
@click.option("--dataset-hash", metavar="HASH", help="Its hash; belongs to --dataset-uri.")
@json_option
def train(
    config_path: str | None,
    config_json: str | None,
    overrides: tuple[str, ...],
    root: str | None,
    dataset_uri: str | None,
    dataset_hash: str | None,
    as_json: bool,
) -> None:
    from hopline.stages.alone import run_alone
    from hopline.stages.encoding import decode_config

    if (config_path is None) == (config_json is None):
        raise click.UsageError("give either --config or --config-json")
    if (dataset_uri is None) != (dataset_hash is None):
        raise click.UsageError("give --dataset-uri and --dataset-hash together")
    if config_json is not None and overrides:
        raise click.UsageError("--set belongs to --config: a config in JSON has its overrides in it")
    resolved = decode_config(config_json) if config_json is not None else resolve(str(config_path), overrides)
    place = resolve_root(root)
    dataset = (dataset_uri, dataset_hash) if dataset_uri and dataset_hash else None
    with terminal_sink() as sink:
        result = run_alone("train", resolved, root=place, sink=sink, dataset=dataset)
    print_result(result, as_json=as_json)


evaluate = _command("evaluate", "Choose the best checkpoint on valid and measure it on test.")
publish = _command("publish", "Publish the chosen checkpoint as a version and ask the champion gate.")
