"""``hopline dataset``: verify, show, head."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hopline.cli.options import json_option, root_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hopline.datasets import DatasetIndex, GraphSizes, SizeSummary, SplitIndex, Vocabulary
    from hopline.graph import ReasoningExample

__all__ = ["dataset"]

_COLOURS = {"OK": "green", "FAIL": "red", "NOT CHECKED": "yellow"}
_BAR = 40
"""Columns of the longest bar of a histogram."""


@click.group()
def dataset() -> None:
    """Check, describe or print a dataset.

    TARGET is its folder (a path, file:// or s3:// URI), or its hash, or the first digits of it, under the root.
    """


@dataset.command()
@click.argument("target")
@click.option("--deep", is_flag=True, help="Compute the dataset hash again from every row.")
@root_option
@json_option
def verify(target: str, deep: bool, root: str | None, as_json: bool) -> int:
    """Check every claim of a dataset: one line each, OK, FAIL or NOT CHECKED.

    A remote dataset is read where it lies, not from the cache. Exit code 0: no claim fails; 1: one fails; 2: it cannot be
    read.
    """
    from hopline.stages.check_dataset import check_dataset
    from hopline.stages.find_dataset import find_dataset

    claims = []
    for claim in check_dataset(find_dataset(target, root=root), deep=deep):
        claims.append(claim)
        if not as_json:
            status = click.style(f"{claim.status:<11}", fg=_COLOURS[claim.status])
            click.echo(f"{status}  {claim.name}: {claim.detail}")
    failed = any(claim.status == "FAIL" for claim in claims)
    if as_json:
        click.echo(json.dumps({"ok": not failed, "claims": [asdict(claim) for claim in claims]}, ensure_ascii=False))
    return int(failed)


@dataset.command()
@click.argument("target")
@root_option
@json_option
def show(target: str, root: str | None, as_json: bool) -> None:
    """Describe a dataset: splits, kinds, statuses, hops, and the sizes of its graphs."""
    from hopline.datasets import graph_sizes
    from hopline.stages.find_dataset import find_dataset

    place = find_dataset(target, root=root)
    opened = place.open()
    sizes = graph_sizes(opened)
    if as_json:
        click.echo(json.dumps(_summary(place.uri, opened.index, sizes), ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for part in _description(place.uri, opened.index, sizes):
        console.print(part, soft_wrap=isinstance(part, str))


@dataset.command()
@click.argument("target")
@click.option("-n", "--number", default=3, show_default=True, type=click.IntRange(min=1), help="How many examples.")
@click.option("--split", "split_name", default="train", show_default=True, metavar="NAME", help="Which split.")
@click.option(
    "--facts", default=8, show_default=True, type=click.IntRange(min=0), help="Facts of a graph that are shown."
)
@root_option
@click.option("--json", "as_json", is_flag=True, help="Print the exchange format, one object a line.")
def head(target: str, number: int, split_name: str, facts: int, root: str | None, as_json: bool) -> None:
    """Print the first examples of a split: question, answers, evidence and graph."""
    from hopline.datasets import example_to_json
    from hopline.stages.find_dataset import find_dataset

    opened = find_dataset(target, root=root).open()
    for place, example in enumerate(opened.head(split_name, number)):
        if as_json:
            record = {**example_to_json(example, opened.vocabulary), "split": split_name}
            click.echo(json.dumps(record, ensure_ascii=False))
        else:
            click.echo("\n".join([*([""] if place else []), *_example(example, opened.vocabulary, facts)]))


def _summary(uri: str, index: DatasetIndex, sizes: GraphSizes | None) -> dict[str, Any]:
    return {
        "dataset_uri": uri,
        "dataset_hash": index.dataset_hash,
        "generator": index.generator.model_dump(mode="json"),
        "source": index.source.uri,
        "seed": index.seed,
        "relations": index.vocabulary.num_relations,
        "entities": index.vocabulary.num_entities,
        "splits": {
            name: {
                "examples": split.units,
                "rows": split.rows,
                "shards": len(split.shards),
                "bytes": sum(shard.bytes for shard in split.shards),
                "kinds": split.kinds,
                "statuses": split.statuses,
                "hops": split.hops,
            }
            for name, split in _ordered(index).items()
        },
        "graphs": None if sizes is None else asdict(sizes),
    }


def _description(uri: str, index: DatasetIndex, sizes: GraphSizes | None) -> Iterable[RenderableType]:
    from rich.markup import escape

    vocabulary = index.vocabulary
    yield f"[bold]{escape(uri)}[/]"
    yield f"hash       {index.dataset_hash}"
    yield f"source     {escape(index.source.uri)}, seed {index.seed}"
    yield f"generator  {index.generator.name} {index.generator.version}, code {index.generator.code_digest[:12]}"
    yield f"vocabulary {vocabulary.num_relations} relations, {vocabulary.num_entities or 'anonymous'} entities"
    yield ""
    splits = _ordered(index)
    yield _table(
        "splits",
        {
            "examples": {name: split.units for name, split in splits.items()},
            "rows, twins too": {name: split.rows for name, split in splits.items()},
            "shards": {name: len(split.shards) for name, split in splits.items()},
            "megabytes": {name: round(sum(s.bytes for s in split.shards) / 1e6, 1) for name, split in splits.items()},
        },
        list(splits),
    )
    for title, counts in (
        ("kinds", {name: split.kinds for name, split in splits.items()}),
        ("statuses, twins too", {name: split.statuses for name, split in splits.items()}),
        ("hops", {name: split.hops for name, split in splits.items()}),
    ):
        names = sorted({key for split in counts.values() for key in split}, key=lambda key: (len(key), key))
        if title != "hops":
            names = list(dict.fromkeys(key for split in counts.values() for key in split))
        yield _table(title, {key: {n: c.get(key, 0) for n, c in counts.items()} for key in names}, list(splits))
    if sizes is not None:
        of = "" if sizes.examples == sizes.of else f" (of {sizes.examples:,} of {sizes.of:,} examples)"
        yield _histogram(f"nodes of a graph{of}", sizes.nodes)
        yield _histogram(f"edges of a graph{of}", sizes.edges)


def _ordered(index: DatasetIndex) -> dict[str, SplitIndex]:
    from hopline.datasets import SPLITS

    return {name: index.splits[name] for name in [*(n for n in SPLITS if n in index.splits), *index.splits]}


def _table(title: str, rows: Mapping[str, Mapping[str, float]], columns: list[str]) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    for name, values in rows.items():
        table.add_row(name, *(f"{values[column]:,}" for column in columns))
    return table


def _histogram(title: str, sizes: SizeSummary) -> RenderableType:
    from rich.table import Table

    about = f"median {sizes.median:g}, mean {sizes.mean:.1f}"
    table = Table(title=f"{title}: {about}", title_justify="left", title_style="bold", box=None, padding=(0, 1))
    most = max(count for _, _, count in sizes.bins)
    for start, end, count in sizes.bins:
        bar = "█" * round(_BAR * count / most) or ("▏" if count else "")
        table.add_row(f"{start}-{end}" if end > start else f"{start}", bar, f"{count:,}")
    table.columns[0].justify = "right"
    return table


def _example(example: ReasoningExample, vocabulary: Vocabulary, facts: int) -> list[str]:
    """An example for people, line by line."""
    from hopline.evaluation.words import facts_in_words, hops_in_words, node_names, path_hops, query_in_words

    names = node_names(example.graph, vocabulary)
    shown = facts_in_words(example.graph, vocabulary, names, facts)
    rest = example.graph.num_edges - len(shown)
    lines = [
        ("question", query_in_words(example.query, vocabulary, names)),
        ("status", example.status.value),
        ("answer", _answer(example, vocabulary, names)),
    ]
    paths = [hops_in_words(path_hops(path, example.graph, vocabulary, names)) for path in example.supporting_paths]
    lines += [("evidence" if place == 0 else "", path) for place, path in enumerate(paths)]
    lines.append(("graph", f"{example.graph.num_nodes} nodes, {example.graph.num_edges} facts"))
    lines += [("", fact) for fact in shown]
    if shown and rest:
        lines.append(("", f"... and {rest} more"))
    if example.pair is not None:
        cut = example.pair.graph.num_edges - example.graph.num_edges
        twin_names = node_names(example.pair.graph, vocabulary)
        told = _answer(example.pair, vocabulary, twin_names)
        lines.append(("twin", f"with {cut} more fact{'s' * (cut != 1)} it is {example.pair.status.value}: {told}"))
        lines += [
            ("", hops_in_words(path_hops(path, example.pair.graph, vocabulary, twin_names)))
            for path in example.pair.supporting_paths
        ]
    title = f"example {example.example_id}: {example.kind.value}, {example.hops} hop{'s' * (example.hops != 1)}"
    return [click.style(title, bold=True), *(f"  {name:<9} {text}".rstrip() for name, text in lines)]


def _answer(example: ReasoningExample, vocabulary: Vocabulary, names: tuple[str, ...]) -> str:
    from hopline.graph import AnswerMode, Status

    if example.status is not Status.SUPPORTED:
        return "none"
    if example.answer_relation is not None:
        return vocabulary.relation_name(example.answer_relation)
    mode = example.query.answer_mode
    if mode is AnswerMode.BOOLEAN:
        return "yes" if example.answers else "no"
    entities = vocabulary.entities or ()
    outside = [entities[e] for e in example.answer_entities if e < len(entities) and entities[e] not in names]
    found = ", ".join([*(names[answer] for answer in example.answers), *outside])
    if mode in (AnswerMode.COUNT, AnswerMode.AGGREGATE):
        return f"{len(example.answers)}: {found}" if found else "0"
    return found or "none"
