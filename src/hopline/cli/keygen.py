"""``hopline keygen``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hopline.cli.options import json_option

__all__ = ["keygen"]


@click.command()
@click.argument("name", type=click.Path(path_type=Path), metavar="NAME")
@json_option
def keygen(name: Path, as_json: bool) -> None:
    """Make an Ed25519 key: NAME.key, to sign with and to keep secret, and NAME.pub, to give to everybody.

    NAME is a path without an ending, such as keys/publisher. A file that is there is never overwritten.
    """
    from hopline.lineage.keys import KEY_FILE_VARIABLE, make_key_pair

    pair = make_key_pair(name)
    if as_json:
        record = {"key_id": pair.key_id, "private_key": str(pair.private), "public_key": str(pair.public)}
        click.echo(json.dumps(record, ensure_ascii=False))
        return
    click.echo(f"key id       {pair.key_id}")
    click.echo(f"private key  {pair.private}  keep it secret; sign with {KEY_FILE_VARIABLE}={pair.private}")
    click.echo(f"public key   {pair.public}  give it to everybody; check with hopline verify DIR --key {pair.public}")
