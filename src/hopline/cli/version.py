"""``hopline version``."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import click

import hopline
from hopline.cli.options import json_option

__all__ = ["version"]

_LIBRARIES = ("torch", "numpy", "pyarrow", "kfp")


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version of Hopline, and of what it runs on."""
    found = {"hopline": hopline.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    click.echo(json.dumps(found) if as_json else "\n".join(f"{name} {number}" for name, number in found.items()))
