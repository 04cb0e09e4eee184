"""Checks of finished rows by array work: what has to hold for every row of a dataset, whatever it was made from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hopline.datasets.convert import examples_from_columns, slice_rows
from hopline.datasets.ragged import Bools, Ints, first_of_run, within
from hopline.datasets.validation import check_structure
from hopline.errors import DataError
from hopline.graph import KINDS, STATUSES, ExampleColumns, QueryKind, Status

__all__ = ["check_rows"]

Numbers = NDArray[np.signedinteger[Any]]

_MISSING, _SUPPORTED = STATUSES.index(Status.MISSING), STATUSES.index(Status.SUPPORTED)
_RELATION = KINDS.index(QueryKind.RELATION)


def check_rows(columns: ExampleColumns, num_relations: int, *, paths_end_in_answers: bool = False) -> None:
    """Check ids, order, paths, statuses and twins of whole units.

    Args:
        columns: the rows of whole units.
        num_relations: R.
        paths_end_in_answers: whether every supporting path, but of relation queries, has to.

    Raises:
        DataError: an index points outside the graph, a relation id is outside the vocabulary, edges are not in order, a path
            is no walk from an anchor or ends beside the answers, an unsupported row has answers, or a twin differs by more
            than removed edges.
    """
    rows = _Rows(columns, num_relations)
    wrong = rows.out_of_range()
    if not wrong.any():
        # Only numbers that point somewhere can be followed.
        wrong = rows.wrong_paths(ends=paths_end_in_answers) | rows.wrong_status() | rows.wrong_twins()
    if wrong.any():
        _explain(columns, int(np.flatnonzero(wrong)[0]), num_relations)


def _explain(columns: ExampleColumns, row: int, num_relations: int) -> None:
    """Raise the error of a row that is known to be wrong."""
    twin = columns.values["is_twin"]
    first = row - int(twin[row])
    last = first + 1 + int(first + 1 < columns.num_rows and twin[first + 1])
    if twin[first] or (first + 2 < last and twin[first + 2]):
        raise DataError(f"example {columns.values['example_id'][row]}: more than one twin")
    (example,) = examples_from_columns(slice_rows(columns, first, last))
    check_structure(example, num_relations)
    raise DataError(
        f"example {example.example_id} ({example.kind.value}): a supporting path does not end in an answer, or stands "
        "behind a competing one"
    )


class _Rows:
    """The columns of some rows, and the row that each value belongs to."""

    def __init__(self, columns: ExampleColumns, num_relations: int) -> None:
        self.values, self.offsets = columns.values, columns.offsets
        self.num_rows, self.num_relations = columns.num_rows, num_relations
        self.counts = {group: np.diff(offsets) for group, offsets in columns.offsets.items()}
        self.row = {
            group: np.repeat(np.arange(self.num_rows), self.counts[group])
            for group in ("edge", "anchor", "token", "path", "answer")
        }
        self.path_of_step = np.repeat(np.arange(int(self.offsets["path"][-1])), self.counts["step"])

    def marked(self, wrong: Bools, rows: Ints) -> Bools:
        """Which rows own one of some wrong values."""
        found = np.zeros(self.num_rows, dtype=np.bool_)
        found[rows[wrong]] = True
        return found

    def out_of_range(self) -> Bools:
        """Numbers that point to no node, no edge or no relation, and edges that are not sorted by target."""
        wrong = np.zeros(self.num_rows, dtype=np.bool_)
        nodes, edges = self.counts["node"], self.counts["edge"]
        for name, group, bounds in (
            ("edge_source", "edge", nodes),
            ("edge_target", "edge", nodes),
            ("anchor", "anchor", nodes),
            ("answer", "answer", nodes),
        ):
            value, rows = self.values[name], self.row[group]
            wrong |= self.marked((value < 0) | (value >= bounds[rows]), rows)
        for name, group, bound in (
            ("edge_relation", "edge", self.num_relations),
            ("token_relation", "token", 2 * self.num_relations),
        ):
            wrong |= self.marked((self.values[name] < 0) | (self.values[name] >= bound), self.row[group])
        target, row = self.values["edge_target"], self.row["edge"]
        wrong[row[1:][(target[1:] < target[:-1]) & (row[1:] == row[:-1])]] = True
        step, owner = self.values["step"], self.row["path"][self.path_of_step]
        return wrong | self.marked((step < 0) | (step >= 2 * edges[owner]), owner)

    def wrong_paths(self, *, ends: bool) -> Bools:
        """Paths that are no walks from an anchor, or of nothing; supporting ones behind others, or beside the answers."""
        path_row, label = self.row["path"], self.values["path_label"]
        owner, step = self.path_of_step, self.values["step"].astype(np.int64)
        edge = (step >> 1) + self.offsets["edge"][path_row[owner]]
        ways = self.values["edge_source"][edge], self.values["edge_target"][edge]
        backwards = step & 1 == 1
        start, end = np.where(backwards, ways[1], ways[0]), np.where(backwards, ways[0], ways[1])
        first = first_of_run(owner)
        wrong = self.marked((start[1:] != end[:-1]) & ~first[1:], path_row[owner[1:]])
        begins = path_row[owner[first]]
        wrong |= self.marked(~self._among("anchor", begins, start[first]), begins)
        wrong |= self.marked(self.counts["step"] == 0, path_row)
        wrong |= self.marked((label[1:] > label[:-1]) & (path_row[1:] == path_row[:-1]), path_row[1:])
        if ends:
            last = np.append(first[1:], np.ones(min(1, len(first)), dtype=np.bool_))
            rows = path_row[owner[last]]
            asked = (label[owner[last]] == 1) & (self.values["kind"][rows] != _RELATION)
            wrong |= self.marked(asked & ~self._among("answer", rows, end[last]), rows)
        return wrong

    def _among(self, group: str, rows: Ints, nodes: Numbers) -> Bools:
        """Whether each node is among the values of a group in its row."""
        width = int(self.counts["node"].max(initial=1))
        known = np.sort(self.row[group] * width + self.values[group])
        if not len(known):
            return np.zeros(len(rows), dtype=np.bool_)
        wanted = rows * width + nodes
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.asarray(known[places] == wanted, dtype=np.bool_)

    def wrong_status(self) -> Bools:
        """Rows that are not supported and still have an answer or a supporting path."""
        answered = (self.counts["answer"] > 0) | (self.values["answer_relation"] >= 0)
        answered |= self.marked(self.values["path_label"] == 1, self.row["path"])
        return np.asarray((self.values["status"] != _SUPPORTED) & answered, dtype=np.bool_)

    def wrong_twins(self) -> Bools:
        """Twins that are no supported version of a missing row, or differ by more than removed edges."""
        values, offsets = self.values, self.offsets
        is_twin = values["is_twin"] == 1
        twins = np.flatnonzero(is_twin)
        wrong = np.zeros(self.num_rows, dtype=np.bool_)
        if not len(twins):
            return wrong
        rows = twins - 1
        bad = (
            (twins == 0)
            | is_twin[rows]
            | (values["status"][rows] != _MISSING)
            | (values["status"][twins] != _SUPPORTED)
        )
        for name in ("example_id", "kind", "answer_mode"):
            bad |= values[name][rows] != values[name][twins]
        bad |= self.counts["edge"][rows] >= self.counts["edge"][twins]
        for group, names in (
            ("node", ("node_entity",)),
            ("anchor", ("anchor",)),
            ("token", ("token_relation", "token_branch")),
        ):
            bad |= self.counts[group][rows] != self.counts[group][twins]
            same = np.flatnonzero(~bad)
            lengths = self.counts[group][rows[same]]
            place = within(lengths)
            left, right = (np.repeat(offsets[group][which[same]], lengths) + place for which in (rows, twins))
            for name in names:
                differs = values[name][left] != values[name][right]
                bad[np.repeat(same, lengths)[differs]] = True
        wrong[twins] = bad
        same = np.flatnonzero(~bad)
        wrong[twins[same]] |= self._has_other_edges(rows[same], twins[same])
        return wrong

    def _has_other_edges(self, rows: Ints, twins: Ints) -> Bools:
        """Whether a row has an edge that its twin lacks; of equal facts each counts."""
        facts = [self._facts(which) for which in (twins, rows)]
        keys = np.concatenate([np.stack([owner, *fact]) for owner, fact in facts], axis=1)
        signs = np.repeat([1, -1], [len(owner) for owner, _ in facts])
        order = np.lexsort(keys)
        keys, signs = keys[:, order], signs[order]
        run = np.cumsum(np.any(keys[:, 1:] != keys[:, :-1], axis=0)) if keys.shape[1] else np.zeros(0, np.int64)
        run = np.concatenate([np.zeros(min(1, keys.shape[1]), np.int64), run])
        left = np.bincount(run, weights=signs)
        found = np.zeros(len(rows), dtype=np.bool_)
        found[keys[0][left[run] < 0]] = True
        return found

    def _facts(self, rows: Ints) -> tuple[Ints, tuple[Ints, ...]]:
        lengths = self.counts["edge"][rows]
        index = np.repeat(self.offsets["edge"][rows], lengths) + within(lengths)
        owner = np.repeat(np.arange(len(rows)), lengths)
        names = ("edge_source", "edge_relation", "edge_target")
        return owner, tuple(self.values[name][index].astype(np.int64) for name in names)
