"""Reasoning examples, their flat columns, and the batches the model reads.

``GraphBatch`` and ``collate`` are tensors and load torch when they are first used, so that the processes that only make
datasets start quickly.
"""

from typing import TYPE_CHECKING, Any

from hopline.graph.columns import COLUMNS, GROUPS, ColumnSpec, ExampleColumns, Group
from hopline.graph.example import (
    ANSWER_MODES,
    KINDS,
    STATUS_INDEX,
    STATUSES,
    AnswerMode,
    ExampleGraph,
    Path,
    Query,
    QueryKind,
    ReasoningExample,
    Status,
    make_step,
    step_edge,
    step_reversed,
)
from hopline.graph.store import GraphStore

if TYPE_CHECKING:
    from hopline.graph.batch import GraphBatch, collate

__all__ = [
    "ANSWER_MODES",
    "COLUMNS",
    "GROUPS",
    "KINDS",
    "STATUSES",
    "STATUS_INDEX",
    "AnswerMode",
    "ColumnSpec",
    "ExampleColumns",
    "ExampleGraph",
    "GraphBatch",
    "GraphStore",
    "Group",
    "Path",
    "Query",
    "QueryKind",
    "ReasoningExample",
    "Status",
    "collate",
    "make_step",
    "step_edge",
    "step_reversed",
]


def __getattr__(name: str) -> Any:
    if name in {"GraphBatch", "collate"}:
        from hopline.graph import batch

        return getattr(batch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
