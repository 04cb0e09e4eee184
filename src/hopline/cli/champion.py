"""``hopline champion``: show, history, promote, rollback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hopline.cli.options import json_option, root_option
from hopline.cli.tables import table

if TYPE_CHECKING:
    from hopline.stages.champions import ChampionMoved

__all__ = ["champion"]

Function = TypeVar("Function", bound=Callable[..., Any])

_SHORT = 12
_SECONDS = 19


def _move_options(function: Function) -> Function:
    """``--reason``, ``--by`` and ``--key``."""
    function = click.option(
        "--key",
        "keys",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Public key of the publisher: the version has to be signed by it, or by another --key.",
    )(function)
    function = click.option("--by", metavar="NAME", help="Who does it. [default: this user on this machine]")(function)
    return click.option("--reason", required=True, metavar="TEXT", help="Why; kept in the pointer.")(function)


@click.group()
def champion() -> None:
    """Show the champion of a model, its history, or move it by hand.

    MODEL is a name in the root, or the URI of a model's folder, <root>/models/<name>.
    """


@champion.command()
@click.argument("model")
@root_option
@json_option
def show(model: str, root: str | None, as_json: bool) -> None:
    """Print which version is the champion, since when, and why."""
    from hopline.stages.champions import show_champion

    view = show_champion(model, root=root)
    if as_json:
        click.echo(view.model_dump_json())
        return
    now = view.champion
    rows = [
        ("model", view.name),
        ("champion", now.manifest_hash + ("" if view.state == "there" else f" ({view.state})")),
        ("manifest", now.manifest_uri),
        ("since", now.since),
        ("moved by", f"{now.by} ({now.action})"),
        *(("because", ground) for ground in now.grounds),
        ("before", now.previous_version or "none"),
        *(("withdrawn", version) for version in view.withdrawn),
        *(("on test", f"{name} {value:.4f}") for name, value in view.metrics.items() if value is not None),
    ]
    shown = ""
    for name, value in rows:
        click.echo(f"{name if name != shown else '':<9}  {value}")
        shown = name


@champion.command()
@click.argument("model")
@root_option
@json_option
def history(model: str, root: str | None, as_json: bool) -> None:
    """Print every move of the pointer, the newest first."""
    from hopline.stages.champions import champion_history

    found = champion_history(model, root=root)
    if as_json:
        click.echo(found.model_dump_json())
        return
    rows = [
        [move.since[:_SECONDS], move.manifest_hash[:_SHORT], move.action, move.by, "; ".join(move.grounds)]
        for move in found.moves
    ]
    click.echo(table(("since (UTC)", "version", "action", "by", "because"), rows))


@champion.command()
@click.argument("model")
@click.argument("version", required=False)
@_move_options
@root_option
@json_option
def promote(
    model: str,
    version: str | None,
    reason: str,
    by: str | None,
    keys: tuple[Path, ...],
    root: str | None,
    as_json: bool,
) -> None:
    """Make a version the champion that verifies, whatever the gate says.

    VERSION is its hash, or the first digits of it; or MODEL is the URI of the version's folder or manifest.json.
    """
    from hopline.stages.champions import promote_version

    _print(promote_version(model, version, root=root, reason=reason, by=by, keys=keys), as_json)


@champion.command()
@click.argument("model")
@click.option("--to", metavar="HASH", help="An earlier champion, or its first digits. [default: the one before]")
@_move_options
@root_option
@json_option
def rollback(
    model: str, to: str | None, reason: str, by: str | None, keys: tuple[Path, ...], root: str | None, as_json: bool
) -> None:
    """Make an earlier champion the champion again. The gate does not bring the version back that was left; promote does."""
    from hopline.stages.champions import roll_back_champion

    _print(roll_back_champion(model, root=root, to=to, reason=reason, by=by, keys=keys), as_json)


def _print(done: ChampionMoved, as_json: bool) -> None:
    if as_json:
        click.echo(done.model_dump_json())
        return
    now = done.champion
    if not done.moved:
        click.echo(f"{now.manifest_hash} is the champion of {done.name} already; nothing was moved")
        return
    before = "" if now.previous_version is None else f", after {now.previous_version[:_SHORT]}"
    click.echo(f"{now.manifest_hash} is the champion of {done.name} now{before}")
