"""``hopline run`` and ``hopline compile``: the commands that need the repository and its ``pipelines`` extra."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import click

from components.images import PREFIX_VARIABLE, TAG_VARIABLE, Images, parse_image_options
from hopline.cli.options import config_options, json_option, resolve, root_option
from hopline.config import load_config
from hopline.errors import ClaimError
from hopline.stages.roots import resolve_root

__all__ = ["compile", "run"]

for _module in ("kfp", "kfp.kubernetes"):
    if importlib.util.find_spec(_module) is None:
        raise ModuleNotFoundError(f"No module named '{_module}'", name=_module)


@click.command()
@config_options
@root_option
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Show what the steps and KFP print, on stderr.")
def run(config_path: str, overrides: tuple[str, ...], root: str | None, as_json: bool, verbose: bool) -> None:
    """Run the whole pipeline on this machine, from source data to a published model.

    It is the pipeline that `hopline compile` writes for Kubeflow. Stages whose output exists and verifies do nothing; a run
    that was stopped continues.
    """
    from pipelines.local_run import run_pipeline
    from pipelines.progress import run_sink
    from pipelines.summary import print_summary

    resolved = resolve(config_path, overrides)
    place = resolve_root(root)
    with run_sink(plain=verbose) as sink:
        done = run_pipeline(resolved, root=place, sink=sink, verbose=verbose)
    if as_json:
        record = {stage: result.model_dump(mode="json") for stage, result in done.results.items()}
        click.echo(json.dumps(record, ensure_ascii=False))
    else:
        print_summary(done)
    broken = [claim for claim in done.verification.claims if claim.status == "FAIL"]
    if broken:
        raise ClaimError(
            f"{done.verification.target}: {broken[0].name}: {broken[0].detail} (and {len(broken) - 1} more); "
            "what was published is not what its manifest says: `hopline verify` lists every claim"
        )


@click.command()
@click.option("-o", "--output", required=True, metavar="FILE", help="The .yaml file to write.")
@click.option(
    "-c", "--config", "config_path", metavar="FILE", help="Make this config the default of the run's parameter."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of that config.")
@click.option("--root", metavar="URI", help="Make this root the default of the run's parameter.")
@click.option(
    "--image-prefix", metavar="PREFIX", help=f"Registry and folder. [default: ${PREFIX_VARIABLE}, else hopline]"
)
@click.option("--image-tag", metavar="TAG", help=f"[default: ${TAG_VARIABLE}, else the version of Hopline]")
@click.option(
    "--image", "images", multiple=True, metavar="STAGE=IMAGE", help="Whole image of one stage, e.g. by digest."
)
@json_option
def compile(  # noqa: A001 - the command's name
    output: str,
    config_path: str | None,
    overrides: tuple[str, ...],
    root: str | None,
    image_prefix: str | None,
    image_tag: str | None,
    images: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile the pipeline to a yaml file for Kubeflow.

    One file serves every config and root: they are parameters of a run. The same arguments give the same bytes.
    """
    from pipelines.compile import compile_pipeline

    if overrides and not config_path:
        raise click.UsageError("--set changes a config; name it with -c")
    chosen = Images.choose(prefix=image_prefix, tag=image_tag, overrides=parse_image_options(images))
    config = load_config(config_path, overrides) if config_path else None
    done = compile_pipeline(Path(output), chosen, config=config, root=root)
    if as_json:
        record = {"path": str(done.path), "sha256": done.sha256, "images": done.images.as_dict()}
        click.echo(json.dumps(record, ensure_ascii=False))
        return
    lines = {"pipeline": str(done.path), "sha256": done.sha256}
    lines |= {f"image of {stage}": image for stage, image in done.images.as_dict().items()}
    for name, value in lines.items():
        click.echo(f"{name:<18} {value}")  # whole, however narrow the terminal: people copy it
