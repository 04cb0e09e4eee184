"""``hopline model show``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from hopline.cli.options import config_options, json_option, resolve, root_option
from hopline.cli.tables import table
from hopline.stages.roots import resolve_root

if TYPE_CHECKING:
    from hopline.stages.model_view import MemoryView, ModelView

__all__ = ["model"]

_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20}
_LAYER = re.compile(r"^layers\.(\d+)\.")


def _worlds(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        worlds = tuple(int(part) for part in value.split(","))
    except ValueError:
        worlds = ()
    if not worlds or min(worlds) < 1:
        raise click.BadParameter(f"found {value!r}, expected numbers of GPUs such as 8,16,64")
    return worlds


@click.group()
def model() -> None:
    """Show a model's parts and what it needs."""


@model.command()
@config_options
@root_option
@click.option("--relations", type=click.IntRange(min=1), metavar="N", help="Relations of the vocabulary.")
@click.option("--entities", type=click.IntRange(min=0), metavar="N", help="Entities with an identity.")
@click.option(
    "--gpus",
    default="8,16,64",
    show_default=True,
    callback=_worlds,
    metavar="N,N",
    help="Ranks to tell the memory for.",
)
@json_option
def show(
    config_path: str,
    overrides: tuple[str, ...],
    root: str | None,
    relations: int | None,
    entities: int | None,
    gpus: tuple[int, ...],
    as_json: bool,
) -> None:
    """Print the parts of a config's model, its memory on each rank, and the work of an example.

    Nothing is allocated, so a model of any size can be shown on any machine. The sizes of the vocabulary come from the
    options, from the synthetic world of the config, or from the dataset in the root.
    """
    from hopline.stages.model_view import view_model

    view = view_model(
        resolve(config_path, overrides),
        root=resolve_root(root),
        num_relations=relations,
        num_entities=entities,
        gpus=gpus,
    )
    click.echo(view.model_dump_json() if as_json else _text(view))


def _text(view: ModelView) -> str:
    frozen = view.parameters - view.trained
    unit = "GiB" if max(memory.total for memory in view.memory) >= _UNITS["GiB"] else "MiB"
    lines = [
        f"{view.name}: {view.parameters:,} parameters" + (f", {frozen:,} of them frozen" if frozen else ""),
        f"vocabulary: {view.num_relations:,} relations, {view.num_entities:,} entities (from {view.vocabulary})",
        "",
        _parts(view),
        "",
        f"Memory of a rank in {unit}, {view.precision}, at the height of a step:",
        table(
            ["", "gpus", "weights", "gradients", "moments", "gathered", "half copies", "activations", "total"],
            [_memory_row(memory, _UNITS[unit]) for memory in view.memory],
            right=range(1, 9),
        ),
        "Rows in a chunk: " + ", ".join(f"{rows} on {gpus} gpus" for gpus, rows in _chunks(view).items()) + ".",
        "",
        _cost(view),
    ]
    return "\n".join(lines)


def _parts(view: ModelView) -> str:
    rows = []
    for part in view.parts:
        repeated = len({match[1] for match in map(_LAYER.match, part.tensors) if match})
        shapes = {_LAYER.sub("layers.*.", name): shape for name, shape in part.tensors.items()}
        largest = sorted(shapes, key=lambda name: -_size(shapes[name]))[:3]
        shown = ", ".join(f"{name} {'x'.join(map(str, shapes[name])) or 'scalar'}" for name in largest)
        more = f", {len(shapes) - len(largest)} more" if len(shapes) > len(largest) else ""
        times = f" (each {repeated} times)" if repeated else ""
        rows.append(
            [part.name, f"{part.parameters:,}", f"{part.parameters / view.parameters:.1%}", shown + more + times]
        )
    rows.append(["total", f"{view.parameters:,}", "100.0%", ""])
    return table(["part", "parameters", "share", "tensors"], rows, right=(1, 2))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _memory_row(memory: MemoryView, unit: int) -> list[str]:
    figures = [memory.weights, memory.gradients, memory.moments, memory.gathered, memory.copies]
    activations = "not known" if memory.activations is None else f"{memory.activations / unit:.2f}"
    cells = [f"{figure / unit:.2f}" for figure in figures]
    return [memory.parallelism, str(memory.gpus), *cells, activations, f"{memory.total / unit:.2f}"]


def _chunks(view: ModelView) -> dict[int, int]:
    return {memory.gpus: memory.chunk_rows for memory in view.memory}


def _cost(view: ModelView) -> str:
    cost = view.cost
    if cost is None:
        return "Work of an example: not known without rows; make the dataset first."
    return (
        f"Work of an example ({cost.nodes:.0f} nodes, {cost.messages:.0f} messages, {cost.paths:.0f} paths; mean of "
        f"{cost.rows} rows): {cost.forward_flops / 1e9:,.3g} GFLOP forward, {cost.training_flops / 1e9:,.3g} GFLOP in "
        f"training; messages move {cost.message_bytes / 1e6:,.3g} MB; {cost.activation_bytes / 1e6:,.3g} MB of activations."
    )
