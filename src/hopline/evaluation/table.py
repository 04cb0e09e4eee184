"""One table of results: a row for each row of a split, as arrays, so that any slice of any metric can be cut from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hopline.evaluation.metrics import exact_match, set_scores
from hopline.evaluation.outcomes import Judged
from hopline.graph import KINDS, STATUS_INDEX, GraphBatch, QueryKind

__all__ = ["EvaluationTable", "TablePiece", "build_table", "table_piece"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_KIND: Final = {kind: index for index, kind in enumerate(KINDS)}
_OF_BATCH: Final = ("example_id", "is_twin", "kind", "hops", "status", "answer_count", "answer_relation")
_JUDGED: Final = (
    "finite", "predicted_status", "set_hits", "set_predicted", "set_gold", "predicted_count", "predicted_relation",
    "boolean", "predicted_boolean", "path_hits", "path_predicted", "path_gold", "path_candidates", "confidence_logit",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationTable:
    """What happened to each of ``n`` rows.

    Attributes:
        unit: int64 ``[n]``, the unit of the split the row belongs to; twins share it.
        example_id: int64 ``[n]``; is_twin: bool ``[n]``.
        kind, status, predicted_status: int64 ``[n]``, indices into KINDS and STATUSES; -1 = no status was given.
        hops: int64 ``[n]``.
        finite: bool ``[n]``; False where the model gave something that is not a number, which makes the row wrong.
        set_f1: float64 ``[n]``, NaN unless the row is a multi-hop query; exact: bool ``[n]``, the sets are equal.
        rank: float64 ``[n]``, mean rank of the row's answers, NaN unless it is a link query that has some.
        count, predicted_count: int64 ``[n]``, clipped to the model's classes; -1 unless the row is a count or aggregate.
        relation, predicted_relation: int64 ``[n]``, -1 unless the row is a relation query (with an answer).
        boolean, predicted_boolean: int64 ``[n]``, 0 or 1; -1 unless the row is a boolean query.
        path_f1: float64 ``[n]``, evidence F1, NaN where the row has no candidate path.
        confidence_logit: float64 ``[n]``, before calibration.
        correct: float64 ``[n]`` in [0, 1], what the confidence should foretell: the set F1 of a multi-hop query, else
            whether the answer is right; a link query's is right if the top of its filtered ranking is; a link or
            relation query without an answer is right if the status says so.
        ranked_row, ranked: int64 and float64 ``[K]``, row and rank of every answer of every link query.
    """

    unit: Ints
    example_id: Ints
    is_twin: NDArray[np.bool_]
    kind: Ints
    hops: Ints
    status: Ints
    predicted_status: Ints
    finite: NDArray[np.bool_]
    set_f1: Floats
    exact: NDArray[np.bool_]
    rank: Floats
    count: Ints
    predicted_count: Ints
    relation: Ints
    predicted_relation: Ints
    boolean: Ints
    predicted_boolean: Ints
    path_f1: Floats
    confidence_logit: Floats
    correct: Floats
    ranked_row: Ints
    ranked: Floats

    def __len__(self) -> int:
        return len(self.example_id)


@dataclass(frozen=True, slots=True, eq=False)
class TablePiece:
    """The rows of one judged batch, before they are joined with others.

    Attributes:
        columns: tensors on the model's device, by name.
        units: int64, the units of the split that the rows were made from.
        count_classes: count classes of the model.
    """

    columns: Mapping[str, Tensor]
    units: Ints
    count_classes: int

    def to_host(self) -> TablePiece:
        """The same piece on the CPU, ready to be sent to another process."""
        return TablePiece({name: value.cpu() for name, value in self.columns.items()}, self.units, self.count_classes)


def table_piece(batch: GraphBatch, judged: Judged, units: Ints) -> TablePiece:
    """The rows of one batch, made from ``units`` of the split; they keep their order. Nothing is read back from a device."""
    columns: dict[str, Tensor] = {name: getattr(batch, name) for name in _OF_BATCH}
    columns |= {name: getattr(judged, name) for name in _JUDGED}
    columns |= {"ranked_row": judged.rank_row, "ranked": judged.rank}
    return TablePiece(columns, units, judged.count_classes)


def build_table(pieces: Sequence[TablePiece]) -> EvaluationTable:
    """The table of pieces that are on the CPU, of which there must be one at least, in their order."""
    raw = {
        name: torch.cat([piece.columns[name] for piece in pieces]).numpy()
        for name in pieces[0].columns
        if name != "ranked_row"
    }
    rows = [len(piece.columns["kind"]) for piece in pieces]
    starts = np.cumsum([0, *rows[:-1]])
    raw["ranked_row"] = np.concatenate(
        [piece.columns["ranked_row"].numpy() + start for piece, start in zip(pieces, starts, strict=True)]
    )
    unit = np.concatenate([piece.units for piece in pieces])[np.cumsum(~raw["is_twin"]) - 1]
    return _table(raw, unit, pieces[0].count_classes)


def _table(raw: Mapping[str, NDArray[Any]], unit: Ints, count_classes: int) -> EvaluationTable:
    kind, finite = raw["kind"], raw["finite"]
    of = {name: kind == index for name, index in _KIND.items()}
    counting = of[QueryKind.COUNT] | of[QueryKind.AGGREGATE]
    asks = of[QueryKind.RELATION] & (raw["answer_relation"] >= 0)
    columns = {
        "count": np.where(counting, np.minimum(raw["answer_count"], count_classes - 1), -1),
        "predicted_count": np.where(counting, raw["predicted_count"], -1),
        "relation": np.where(asks, raw["answer_relation"], -1),
        "predicted_relation": np.where(of[QueryKind.RELATION], raw["predicted_relation"], -1),
        "boolean": np.where(of[QueryKind.BOOLEAN], raw["boolean"], -1),
        "predicted_boolean": np.where(of[QueryKind.BOOLEAN], raw["predicted_boolean"], -1),
    }
    sizes = (raw["set_hits"], raw["set_predicted"], raw["set_gold"])
    f1 = np.where(finite, set_scores(*sizes)[2], 0.0)
    paths = set_scores(raw["path_hits"], raw["path_predicted"], raw["path_gold"])[2]
    rank, best = _row_ranks(raw["ranked_row"], raw["ranked"], len(kind))
    abstained = raw["predicted_status"] != STATUS_INDEX["supported"]
    correct = np.select(
        [
            of[QueryKind.MULTI_HOP],
            of[QueryKind.LINK] & np.isfinite(best),
            counting,
            of[QueryKind.BOOLEAN],
            asks,
        ],
        [
            f1,
            best <= 1,
            columns["count"] == columns["predicted_count"],
            columns["boolean"] == columns["predicted_boolean"],
            columns["relation"] == columns["predicted_relation"],
        ],
        default=abstained,
    ).astype(np.float64)
    return EvaluationTable(
        unit=unit,
        **{
            name: raw[name]
            for name in ("example_id", "is_twin", "kind", "hops", "status", "predicted_status", "finite")
        },
        set_f1=np.where(of[QueryKind.MULTI_HOP], f1, np.nan),
        exact=exact_match(*sizes) & finite,
        rank=rank,
        **columns,
        path_f1=np.where(raw["path_candidates"] > 0, np.where(finite, paths, 0.0), np.nan),
        confidence_logit=raw["confidence_logit"].astype(np.float64),
        correct=np.where(finite, correct, 0.0),
        ranked_row=raw["ranked_row"],
        ranked=raw["ranked"],
    )


def _row_ranks(row: Ints, rank: Floats, rows: int) -> tuple[Floats, Floats]:
    """Mean and best rank of each row's answers; NaN where it has none."""
    n = np.bincount(row, minlength=rows)
    best = np.full(rows, np.inf)
    np.minimum.at(best, row, rank)
    mean = np.where(n > 0, np.bincount(row, weights=rank, minlength=rows) / np.maximum(n, 1), np.nan)
    return mean, np.where(n > 0, best, np.nan)
