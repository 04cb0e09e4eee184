"""Solved problems as rows of a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

from hopline.datasets.ragged import Ints, offsets_of, width_in_bits
from hopline.datasets.synthetic.findings import Findings
from hopline.datasets.synthetic.graphs import Graphs
from hopline.datasets.synthetic.problems import Problems
from hopline.datasets.synthetic.walks import kept_places
from hopline.datasets.synthetic.wishlist import LINK, RELATION, SUPPORTED
from hopline.graph import ANSWER_MODES, COLUMNS, KINDS, AnswerMode, ExampleColumns, QueryKind

__all__ = ["rows_of"]

_MODE_OF_KIND = {
    QueryKind.LINK: AnswerMode.ENTITIES,
    QueryKind.MULTI_HOP: AnswerMode.ENTITIES,
    QueryKind.COUNT: AnswerMode.COUNT,
    QueryKind.AGGREGATE: AnswerMode.AGGREGATE,
    QueryKind.BOOLEAN: AnswerMode.BOOLEAN,
    QueryKind.RELATION: AnswerMode.RELATION,
}
_MODES: Ints = np.array([ANSWER_MODES.index(_MODE_OF_KIND[kind]) for kind in KINDS], dtype=np.int64)


def rows_of(problems: Problems, findings: Findings, status: Ints, ids: Ints, is_twin: Ints) -> ExampleColumns:
    """One row for each problem.

    Args:
        problems, findings: B of them.
        status: ``[B]``, index into STATUSES; only supported rows get answers and supporting paths.
        ids, is_twin: ``[B]``, columns of the rows.
    """
    graphs, walks = problems.graphs, findings.walks
    rows = len(problems)
    supported = status == SUPPORTED
    proves = findings.proves & supported[walks.graph]
    order = np.empty(len(walks), dtype=np.int64)
    paths = np.bincount(walks.graph, minlength=rows)
    order[offsets_of(paths)[walks.graph] + kept_places(walks.graph, proves)] = np.arange(len(walks))
    steps = walks.steps - 2 * graphs.edge_offsets[walks.graph][:, None]
    taken = np.arange(walks.steps.shape[1]) < walks.length[order][:, None]
    answers = np.flatnonzero(findings.answers & supported[graphs.node_graph])
    answer_row = graphs.node_graph[answers]
    answer_counts = np.bincount(answer_row, minlength=rows)
    edges = np.diff(graphs.edge_offsets)
    anchor_counts = np.where(problems.anchors[:, 1] >= 0, 2, 1)
    asked = problems.chains >= 0
    branch = np.broadcast_to(np.arange(2)[:, None], asked.shape[1:])
    relation = np.where(supported, findings.relation, -1)
    by_relation = problems.kind == RELATION
    values: dict[str, Any] = {
        "example_id": ids,
        "kind": problems.kind,
        "answer_mode": _MODES[problems.kind],
        "status": status,
        "hops": _hops(problems, findings, proves),
        "is_twin": is_twin,
        "answer_count": np.where(by_relation, relation >= 0, answer_counts),
        "answer_relation": relation,
        "node_entity": np.full(int(graphs.node_offsets[-1]), -1),
        "edge_source": graphs.head - graphs.base[graphs.edge_graph],
        "edge_target": graphs.tail - graphs.base[graphs.edge_graph],
        "edge_relation": graphs.relation,
        "message": _messages(graphs),
        "anchor": problems.anchors[problems.anchors >= 0],
        "token_relation": problems.chains[asked],
        "token_branch": np.broadcast_to(branch, asked.shape)[asked],
        "path_label": proves[order],
        "step": steps[order][taken],
        "answer": answers - graphs.base[answer_row],
        "answer_entity": np.zeros(0),
        "known_entity": np.zeros(0),
    }
    nothing = np.zeros(rows + 1, dtype=np.int64)
    offsets = {
        "node": graphs.node_offsets,
        "edge": offsets_of(edges),
        "message": offsets_of(2 * edges),
        "anchor": offsets_of(anchor_counts),
        "token": offsets_of(problems.lengths.sum(axis=1)),
        "path": offsets_of(paths),
        "step": offsets_of(walks.length[order]),
        "answer": offsets_of(answer_counts),
        "answer_entity": nothing,
        "known_entity": nothing,
    }
    return ExampleColumns({name: values[name].astype(spec.dtype) for name, spec in COLUMNS.items()}, offsets)


def _hops(problems: Problems, findings: Findings, proves: np.ndarray[Any, np.dtype[np.bool_]]) -> Ints:
    """Hops of the longest chain; of link and relation queries those of the shortest supporting path, else 0."""
    shortest = np.full(len(problems), np.iinfo(np.int64).max)
    proving = np.flatnonzero(proves)
    np.minimum.at(shortest, findings.walks.graph[proving], findings.walks.length[proving])
    shortest[shortest == np.iinfo(np.int64).max] = 0
    by_path = (problems.kind == LINK) | (problems.kind == RELATION)
    return np.where(by_path, shortest, problems.lengths.max(axis=1))


def _messages(graphs: Graphs) -> Ints:
    """Each graph's 2E messages in the order of their destinations; those of one destination stay in order."""
    edges = np.diff(graphs.edge_offsets)
    graph = graphs.edge_graph
    message = np.arange(len(graph)) - graphs.edge_offsets[graph]
    bits = width_in_bits(2 * int(edges.max(initial=1)))
    backwards = message + edges[graph]
    keys = np.concatenate([(graphs.tail << bits) | message, (graphs.head << bits) | backwards])
    keys.sort()
    return keys & ((1 << bits) - 1)
