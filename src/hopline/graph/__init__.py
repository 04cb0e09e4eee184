"""Reasoning examples, their flat columns, and the batches the model reads."""

from hopline.graph.batch import GraphBatch, collate
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
