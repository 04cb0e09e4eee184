"""``hopline validate``: check manifests without a cluster."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from hopline.cli.options import json_option
from hopline.errors import DataError, NotFoundError

__all__ = ["validate"]

_COLOURS = {"OK": "green", "FAIL": "red", "NOT CHECKED": "yellow"}


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@json_option
def validate(files: tuple[str, ...], as_json: bool) -> int:
    """Check every document of manifests: types, what the API server and the Training Operator refuse, Pod Security.

    FILE is a YAML or JSON file; - is standard input. Exit code 0: nothing is wrong; 1: something is; 2: a file cannot be
    read. A kind that is not known here is NOT CHECKED.
    """
    from hopline.cluster import validate_manifest

    results = [(file, validate_manifest(_read(file), source=_name(file))) for file in files]
    wrong = any(checked.findings for _, documents in results for checked in documents)
    if as_json:
        records = [
            asdict(checked) | {"file": file, "status": checked.status}
            for file, documents in results
            for checked in documents
        ]
        click.echo(json.dumps({"valid": not wrong, "documents": records}, ensure_ascii=False))
        return int(wrong)
    for file, documents in results:
        for checked in documents:
            title = f"{checked.kind or 'document'} {checked.name or checked.index}"
            click.echo(f"{click.style(f'{checked.status:<11}', fg=_COLOURS[checked.status])}  {_name(file)}: {title}")
            for finding in checked.findings:
                click.echo(f"{'':<13}{finding}")
    return int(wrong)


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFoundError(f"{file}: no such file; name a YAML file, or - for standard input") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{_name(file)}: cannot be read as a manifest: {error}") from None
