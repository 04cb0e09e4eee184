"""``hopline verify``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hopline.cli.options import json_option

__all__ = ["verify"]

_COLOURS = {"OK": "green", "FAIL": "red", "NOT CHECKED": "yellow"}


@click.command()
@click.argument("target", metavar="MODEL")
@click.option("--dataset", type=click.Path(path_type=Path), metavar="DIR", help="Check the dataset in this folder too.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Public key of the publisher; given several times, one that signed is enough.",
)
@click.option("--deep", is_flag=True, help="Recompute what takes another pass over the bytes.")
@json_option
@click.pass_context
def verify(
    ctx: click.Context, target: str, dataset: Path | None, keys: tuple[Path, ...], deep: bool, as_json: bool
) -> int:
    """Check every claim of a published model: one line each, OK, FAIL or NOT CHECKED.

    MODEL is a version's folder or manifest.json: a path, file:// or s3:// URI. Exit code 0: no claim fails; 1: one fails;
    2: it cannot be read.
    """
    from hopline import lineage

    report = lineage.verify(target, keys=keys, dataset=dataset, deep=deep)
    if as_json:
        click.echo(json.dumps(report.to_json(), ensure_ascii=False))
        return report.exit_code
    for claim in report.claims:
        click.echo(f"{click.style(f'{claim.status:<11}', fg=_COLOURS[claim.status])}  {claim.name}: {claim.detail}")
    return report.exit_code
