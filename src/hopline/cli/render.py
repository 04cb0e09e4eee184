"""``hopline render``: manifests for a cluster, for people who apply them themselves."""

from __future__ import annotations

from pathlib import Path

import click

from hopline.cli.options import config_options, resolve, root_option
from hopline.errors import UserError
from hopline.stages.roots import resolve_root

__all__ = ["render"]


@click.group()
def render() -> None:
    """Print manifests that `kubectl apply -f -` takes."""


@render.command()
@config_options
@root_option
@click.option("--dataset-uri", metavar="URI", help="Dataset to train on. [default: the one that the root has]")
@click.option("--dataset-hash", metavar="HASH", help="Its hash; goes with --dataset-uri.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write to a file, not to stdout.")
def pytorchjob(
    config_path: str,
    overrides: tuple[str, ...],
    root: str | None,
    dataset_uri: str | None,
    dataset_hash: str | None,
    output: Path | None,
) -> None:
    """Print the PyTorchJob that trains a config: its cluster section says how the job looks.

    Training starts from a dataset in the root: `hopline generate` with the same config and root makes it.
    """
    from hopline.cluster import job_spec, render_pytorchjob, to_yaml
    from hopline.stages import encode_config
    from hopline.stages.inputs import train_request

    resolved = resolve(config_path, overrides)
    spec = job_spec(
        resolved.config,
        config_json=encode_config(resolved),
        root=resolve_root(root),
        dataset_uri=dataset_uri,
        dataset_hash=dataset_hash,
        run_hash=train_request(resolved.config, dataset_hash).hash if dataset_hash else None,
    )
    text = to_yaml(render_pytorchjob(spec))
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}; choose another file with -o") from None
