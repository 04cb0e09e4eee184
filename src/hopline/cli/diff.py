"""``hopline diff``."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Final

import click

from hopline.cli.options import json_option

if TYPE_CHECKING:
    from hopline.lineage.differences import Difference

__all__ = ["diff"]

_WIDTH: Final = 70
"""Characters of a value that people see; ``--json`` has all."""


@click.command()
@click.argument("before", metavar="MANIFEST_A")
@click.argument("after", metavar="MANIFEST_B")
@json_option
def diff(before: str, after: str, as_json: bool) -> int:
    """Say exactly in what the manifests of two versions differ, and which of it are facts of the run.

    MANIFEST_A and MANIFEST_B are a version's folder or manifest.json: a path, file:// or s3:// URI. Exit code 0: they are
    equal but for facts of the run, which differ whenever a config runs twice; 1: in more; 2: one cannot be read.
    """
    from hopline.lineage.differences import compare_manifests, read_manifest

    first, second = read_manifest(before), read_manifest(after)
    found = compare_manifests(first, second)
    differ = int(any(item.run_fact is None for item in found))
    if as_json:
        record = {
            "manifests": [first.manifest_hash, second.manifest_hash],
            "equal": not found,
            "equal_but_for_run_facts": not differ,
            "differences": [item.to_json() for item in found],
        }
        click.echo(json.dumps(record, ensure_ascii=False))
        return differ
    click.echo(f"A  {first.manifest_hash}  {first.name}")
    click.echo(f"B  {second.manifest_hash}  {second.name}")
    facts = [item for item in found if item.run_fact is not None]
    _section("They differ in", [item for item in found if item.run_fact is None])
    _section("Facts of the run, which differ whenever a config runs twice", facts)
    if not found:
        click.echo("They are equal.")
    elif not differ:
        click.echo("They are equal but for facts of the run.")
    return differ


def _section(title: str, items: list[Difference]) -> None:
    from hopline.lineage.values import printable

    if not items:
        return
    click.echo(f"\n{title}:")
    for item in items:
        click.echo(f"  {printable(item.path)}" + (f"  ({item.run_fact})" if item.run_fact else ""))
        before, after = (
            printable(json.dumps(value, ensure_ascii=False)) if there else "absent"
            for value, there in ((item.before, item.in_before), (item.after, item.in_after))
        )
        # Long values are cut to where they begin to differ.
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
        start = max(0, same - _WIDTH // 2)
        click.echo(f"    A  {_cut(before, start)}")
        click.echo(f"    B  {_cut(after, start)}")


def _cut(text: str, start: int) -> str:
    if len(text) <= _WIDTH:
        return text
    return f"{'...' * (start > 0)}{text[start : start + _WIDTH]}{'...' * (len(text) > start + _WIDTH)}"
