"""``hopline lineage``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from hopline.cli.options import json_option
from hopline.errors import StoreError

if TYPE_CHECKING:
    from hopline.report.lineage_data import LineageGraph, LineageNode

__all__ = ["lineage"]

_STYLES = {"there": "green", "recorded": "cyan", "missing": "red", "altered": "red", "unknown": "yellow"}
_HASH = 64
_UNFOLDED = 400
_SHORT = 12


@click.command()
@click.argument("target", metavar="VERSION")
@click.option("--root", metavar="URI", help="Where its dataset and run lie. [default: the root that it lies in]")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a page with a graph, too."
)
@json_option
def lineage(target: str, root: str | None, html: Path | None, as_json: bool) -> None:
    """Draw what a published version came from: source, dataset, attempts, candidates, choice, version, champion.

    VERSION is its folder or manifest.json: a path, file:// or s3:// URI. What is missing is said; nothing is changed.
    """
    from hopline.stages.lineage_view import view_lineage

    graph = view_lineage(target, root=root)
    if html is not None:
        _write_page(graph, html)
    if as_json:
        document = {**asdict(graph), "lost": [node.id for node in graph.lost]}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    # Where nobody looks, lines are not folded at 80 characters, which would hinder a search in them.
    Console(highlight=False, width=None if sys.stdout.isatty() else _UNFOLDED).print(_tree(graph))


def _tree(graph: LineageGraph) -> Tree:
    """Each kind hangs under the one that it came from."""
    from hopline.report.lineage_data import LINEAGE_KINDS

    tree = here = Tree(Text.assemble((graph.name, "bold"), f" {graph.version}"))
    for kind, heading in LINEAGE_KINDS.items():
        here = here.add(Text(heading, style="bold"))
        for node in graph.of(kind):
            here.add(_line(node))
    if graph.lost:
        lost = tree.add(Text("Missing or not known", style="bold yellow"))
        for node in graph.lost:
            lost.add(Text.assemble((node.title, _STYLES[node.state]), f": {node.note}"))
    return tree


def _line(node: LineageNode) -> Text:
    shown = {name: value[:_SHORT] if len(value) == _HASH else value for name, value in node.facts.items()}
    facts = (f"{name} {value}" for name, value in shown.items() if value != node.title)
    mark = ("* ", "green") if node.chosen else ""
    words = Text.assemble(mark, (node.title, _STYLES[node.state]))
    if node.state not in ("there", "recorded"):
        words.append(f" [{node.state}]", style=_STYLES[node.state])
    return words.append("  " + ", ".join(facts), style="dim")


def _write_page(graph: LineageGraph, path: Path) -> None:
    from hopline.report.lineage_page import render_lineage

    try:
        path.write_bytes(render_lineage(graph))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}; give another --html") from None
    click.echo(f"{path}: written", err=True)
