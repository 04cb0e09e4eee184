"""Examples to columns and back, and array work on columns: take rows, join pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hopline.graph import (
    ANSWER_MODES,
    COLUMNS,
    GROUPS,
    KINDS,
    STATUSES,
    AnswerMode,
    ExampleColumns,
    ExampleGraph,
    Query,
    ReasoningExample,
)

__all__ = ["columns_from_examples", "concat_columns", "examples_from_columns", "slice_rows", "take_rows"]

_STATUS: Final = {status: index for index, status in enumerate(STATUSES)}
_KIND: Final = {kind: index for index, kind in enumerate(KINDS)}
_MODE: Final = {mode: index for index, mode in enumerate(ANSWER_MODES)}

Ints = NDArray[np.signedinteger[Any]]


def columns_from_examples(examples: Sequence[ReasoningExample]) -> ExampleColumns:
    """The rows of some examples: each example, followed at once by its twin if it has one.

    Edges must be sorted by target already; the order of messages is derived here.
    """
    rows: list[ReasoningExample] = []
    twins: list[int] = []
    for example in examples:
        rows.append(example)
        twins.append(0)
        if example.pair is not None:
            rows.append(example.pair)
            twins.append(1)
    graphs = [row.graph for row in rows]
    paths = [path for row in rows for path in chain(row.supporting_paths, row.competing_paths)]
    lengths = {
        "node": [graph.num_nodes for graph in graphs],
        "edge": [graph.num_edges for graph in graphs],
        "anchor": [len(row.query.anchors) for row in rows],
        "token": [sum(map(len, row.query.chains)) for row in rows],
        "path": [len(row.supporting_paths) + len(row.competing_paths) for row in rows],
        "step": [len(path) for path in paths],
        "answer": [len(row.answers) for row in rows],
        "answer_entity": [len(row.answer_entities) for row in rows],
        "known_entity": [len(row.known_entities) for row in rows],
    }
    lengths["message"] = [2 * edges for edges in lengths["edge"]]
    offsets: dict[str, NDArray[np.int64]] = {group: _offsets(lengths[group]) for group in GROUPS}
    branches = [[branch] * len(hops) for row in rows for branch, hops in enumerate(row.query.chains)]
    labels = ([1] * len(row.supporting_paths) + [0] * len(row.competing_paths) for row in rows)
    values: dict[str, Any] = {
        "example_id": [row.example_id for row in rows],
        "kind": [_KIND[row.kind] for row in rows],
        "answer_mode": [_MODE[row.query.answer_mode] for row in rows],
        "status": [_STATUS[row.status] for row in rows],
        "hops": [row.hops for row in rows],
        "is_twin": twins,
        "answer_count": [_answer_count(row) for row in rows],
        "answer_relation": [-1 if row.answer_relation is None else row.answer_relation for row in rows],
        "node_entity": _joined([graph.node_entities for graph in graphs]),
        "edge_source": _joined([graph.edge_index[0] for graph in graphs]),
        "edge_target": _joined([graph.edge_index[1] for graph in graphs]),
        "edge_relation": _joined([graph.edge_type_ids for graph in graphs]),
        "message": _messages(graphs, offsets),
        "anchor": _flat(row.query.anchors for row in rows),
        "token_relation": _flat(hops for row in rows for hops in row.query.chains),
        "token_branch": _flat(branches),
        "path_label": _flat(labels),
        "step": _flat(paths),
        "answer": _flat(row.answers for row in rows),
        "answer_entity": _flat(row.answer_entities for row in rows),
        "known_entity": _flat(row.known_entities for row in rows),
    }
    return ExampleColumns({name: np.asarray(values[name], spec.dtype) for name, spec in COLUMNS.items()}, offsets)


def examples_from_columns(columns: ExampleColumns) -> list[ReasoningExample]:
    """The examples of some rows: the exact reverse of :func:`columns_from_examples`."""
    values = {name: array.tolist() for name, array in columns.values.items() if COLUMNS[name].group not in _ARRAYS}
    offsets = {group: array.tolist() for group, array in columns.offsets.items()}
    examples: list[ReasoningExample] = []
    following: ReasoningExample | None = None
    for row in range(columns.num_rows - 1, -1, -1):
        example = _example(columns, values, offsets, row, following)
        if values["is_twin"][row]:
            following = example
        else:
            examples.append(example)
            following = None
    examples.reverse()
    return examples


def take_rows(values: Mapping[str, Ints], offsets: Mapping[str, Ints], rows: NDArray[np.int64]) -> ExampleColumns:
    """Some rows, in the order given, as new columns. Array work only; offsets may be of any integer type."""
    taken_offsets: dict[str, NDArray[np.int64]] = {}
    gathers: dict[str, NDArray[np.int64]] = {"row": rows}
    for group in GROUPS:
        owners = gathers["path"] if group == "step" else rows
        gathers[group], taken_offsets[group] = _gather(offsets[group], owners)
    taken = {name: values[name][gathers[spec.group]] for name, spec in COLUMNS.items()}
    return ExampleColumns(taken, taken_offsets)


def slice_rows(columns: ExampleColumns, first: int, last: int) -> ExampleColumns:
    """Rows ``[first, last)``; their values are views, not copies."""
    bounds = dict.fromkeys(("row", *GROUPS), (first, last))
    offsets: dict[str, NDArray[np.int64]] = {}
    for group in GROUPS:
        start, end = bounds["path" if group == "step" else "row"]
        here = columns.offsets[group][start : end + 1]
        bounds[group] = int(here[0]), int(here[-1])
        offsets[group] = here - here[0]
    values = {name: columns.values[name][slice(*bounds[spec.group])] for name, spec in COLUMNS.items()}
    return ExampleColumns(values, offsets)


def concat_columns(pieces: Sequence[ExampleColumns]) -> ExampleColumns:
    """The rows of several pieces, one after the other; at least one piece."""
    if len(pieces) == 1:
        return pieces[0]
    values = {name: np.concatenate([piece.values[name] for piece in pieces]) for name in COLUMNS}
    offsets: dict[str, NDArray[np.int64]] = {}
    for group in GROUPS:
        starts = np.cumsum([0, *(int(piece.offsets[group][-1]) for piece in pieces)])
        parts = [piece.offsets[group][1:] + start for piece, start in zip(pieces, starts, strict=False)]
        offsets[group] = np.concatenate([np.zeros(1, np.int64), *parts])
    return ExampleColumns(values, offsets)


_ARRAYS: Final = frozenset({"node", "edge", "message"})


def _example(
    columns: ExampleColumns,
    values: Mapping[str, list[int]],
    offsets: Mapping[str, list[int]],
    row: int,
    pair: ReasoningExample | None,
) -> ReasoningExample:
    def span(group: str, index: int = row) -> slice:
        return slice(offsets[group][index], offsets[group][index + 1])

    def ragged(name: str, group: str) -> tuple[int, ...]:
        return tuple(values[name][span(group)])

    arrays = columns.values
    edges = span("edge")
    graph = ExampleGraph(
        node_entities=arrays["node_entity"][span("node")].astype(np.int64),
        edge_index=np.stack([arrays["edge_source"][edges], arrays["edge_target"][edges]]).astype(np.int64),
        edge_type_ids=arrays["edge_relation"][edges].astype(np.int64),
    )
    chains: list[list[int]] = []
    for relation, branch in zip(ragged("token_relation", "token"), ragged("token_branch", "token"), strict=True):
        if branch == len(chains):
            chains.append([])
        chains[branch].append(relation)
    paths = span("path")
    steps = [tuple(values["step"][span("step", path)]) for path in range(paths.start, paths.stop)]
    supporting = sum(values["path_label"][paths])
    relation = values["answer_relation"][row]
    return ReasoningExample(
        example_id=values["example_id"][row],
        graph=graph,
        query=Query(
            anchors=ragged("anchor", "anchor"),
            chains=tuple(tuple(hops) for hops in chains),
            answer_mode=AnswerMode(ANSWER_MODES[values["answer_mode"][row]]),
        ),
        kind=KINDS[values["kind"][row]],
        status=STATUSES[values["status"][row]],
        answers=ragged("answer", "answer"),
        answer_entities=ragged("answer_entity", "answer_entity"),
        known_entities=ragged("known_entity", "known_entity"),
        answer_relation=None if relation < 0 else relation,
        supporting_paths=tuple(steps[:supporting]),
        competing_paths=tuple(steps[supporting:]),
        pair=pair,
        hops=values["hops"][row],
    )


def _answer_count(row: ReasoningExample) -> int:
    if row.query.answer_mode is AnswerMode.RELATION:
        return int(row.answer_relation is not None)
    return len(row.answer_entities) or len(row.answers)


def _messages(graphs: Sequence[ExampleGraph], offsets: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Each row's 2E messages in the order of their destinations; those of one destination stay in order (stable)."""
    parts = [part for graph in graphs for part in (graph.edge_index[1], graph.edge_index[0])]
    destination = _joined(parts)
    counts = np.diff(offsets["message"])
    destination = destination + np.repeat(offsets["node"][:-1], counts)
    order = np.argsort(destination, kind="stable")
    return order - np.repeat(offsets["message"][:-1], counts)


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _gather(offsets: Ints, owners: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the values of some owners lie, and the offsets that they get."""
    starts = offsets[owners].astype(np.int64)
    lengths = offsets[owners + 1] - starts
    taken = np.zeros(len(owners) + 1, dtype=np.int64)
    np.cumsum(lengths, out=taken[1:])
    return np.arange(taken[-1]) + np.repeat(starts - taken[:-1], lengths), taken


def _flat(parts: Iterable[Sequence[int]]) -> list[int]:
    return list(chain.from_iterable(parts))


def _joined(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
