"""Examples as flat ragged columns: the form in which they are generated, hashed, stored and cut into batches.

A ragged column is one long array of values; the group it belongs to has one array of offsets, so that the values of row
``i`` are ``values[offsets[i]:offsets[i + 1]]``. All offsets start at 0. A missing example is followed at once by its
supported twin, a row of its own with ``is_twin`` set: a *unit* is one row, or two such rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLUMNS", "GROUPS", "ColumnSpec", "ExampleColumns", "Group"]

Group = Literal[
    "row", "node", "edge", "message", "anchor", "token", "path", "step", "answer", "answer_entity", "known_entity"
]


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column: its group (``row`` = one value for each row), little-endian dtype and meaning."""

    group: Group
    dtype: str
    meaning: str


COLUMNS: Final[Mapping[str, ColumnSpec]] = {
    "example_id": ColumnSpec("row", "<i8", "counter of the example within its split; a twin shares its example's"),
    "kind": ColumnSpec("row", "<i1", "index into KINDS"),
    "answer_mode": ColumnSpec("row", "<i1", "index into ANSWER_MODES"),
    "status": ColumnSpec("row", "<i1", "index into STATUSES"),
    "hops": ColumnSpec("row", "<i1", "hops of the query"),
    "is_twin": ColumnSpec("row", "<i1", "1: the supported twin of the row before"),
    "answer_count": ColumnSpec(
        "row", "<i4", "how many answers; the label of count and aggregate queries, before clipping"
    ),
    "answer_relation": ColumnSpec("row", "<i4", "relation id that answers a relation query, else -1"),
    "node_entity": ColumnSpec("node", "<i4", "vocabulary id, -1 = anonymous"),
    "edge_source": ColumnSpec("edge", "<i4", "node index within the row"),
    "edge_target": ColumnSpec("edge", "<i4", "node index within the row; edges are sorted by it"),
    "edge_relation": ColumnSpec("edge", "<i4", "relation id in [0, R)"),
    "message": ColumnSpec(
        "message", "<i4", "permutation of [0, 2E) sorted by destination; m < E is edge m, else edge m - E backwards"
    ),
    "anchor": ColumnSpec("anchor", "<i4", "node index within the row"),
    "token_relation": ColumnSpec("token", "<i4", "relation id in [0, 2R) of one hop of the query"),
    "token_branch": ColumnSpec("token", "<i1", "which chain of the query the hop belongs to"),
    "path_label": ColumnSpec("path", "<i1", "1 supporting, 0 competing; supporting first"),
    "step": ColumnSpec("step", "<i4", "2 * edge within the row + reversed; offsets count paths, not rows"),
    "answer": ColumnSpec("answer", "<i4", "node index within the row"),
    "answer_entity": ColumnSpec("answer_entity", "<i4", "vocabulary id"),
    "known_entity": ColumnSpec("known_entity", "<i4", "vocabulary id that filtered ranking leaves out"),
}
"""Every column in its canonical order."""

GROUPS: Final[tuple[Group, ...]] = (
    "node", "edge", "message", "anchor", "token", "path", "step", "answer", "answer_entity", "known_entity"
)  # fmt: skip
"""The ragged groups in canonical order. ``step`` offsets run over paths, all others over rows."""


@dataclass(frozen=True, slots=True, eq=False)
class ExampleColumns:
    """Some rows as columns.

    Attributes:
        values: every name of :data:`COLUMNS`, one-dimensional, of its dtype.
        offsets: every name of :data:`GROUPS`, int64; ``[rows + 1]``, for ``step`` ``[paths + 1]``.
    """

    values: Mapping[str, NDArray[np.signedinteger[Any]]]
    offsets: Mapping[str, NDArray[np.int64]]

    @property
    def num_rows(self) -> int:
        return len(self.values["example_id"])
