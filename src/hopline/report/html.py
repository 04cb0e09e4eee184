"""The report as one HTML file that needs no script, no network and no other file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from hopline.evaluation import MAIN_METRIC, Slice
from hopline.report import pictures
from hopline.report.data import ReportData

__all__ = ["render_report"]

_LABELS: Final[Mapping[str, str]] = {
    "mrr": "MRR",
    "hits@1": "Hits@1",
    "hits@3": "Hits@3",
    "hits@10": "Hits@10",
    "set_f1": "set F1",
    "exact": "exact match",
    "multi_hop": "multi-hop",
    "balanced_accuracy": "balanced accuracy",
    "overall.score": "Overall score",
}
_Series = dict[str, tuple[Sequence[float], Sequence[float]]]
_GROUPS: Final = {"overall": "overall", "status": "Status", "path": "Evidence paths", "confidence": "Confidence"}


def render_report(data: ReportData) -> bytes:
    """The report as UTF-8 HTML; the same data give the same bytes. All text of the data is escaped."""
    main = [f"{kind}.{metric}" for kind, metric in MAIN_METRIC.items()]
    environment, css = _environment()
    page = environment.get_template("report.html.j2").render(
        data=data,
        css=css,
        tiles=_tiles(data.metrics, main),
        pictures=_pictures(data, main),
        sparks=_sparks(data),
        training_words=_training_words(data),
        hops=_hops(data.slices),
        kinds=_kinds(data.slices),
        statuses=[part for part in data.slices if part.kind == "status" and part.by == "status"],
        by_status=_by_status(data.slices),
        candidate_columns=[
            name
            for name in (*main, "status.balanced_accuracy")
            if any(name in candidate.metrics for candidate in data.choice.table)
        ],
        samples=_samples(data),
        metric_rows=sorted(data.metrics.items()),
        config=yaml.safe_dump(_plain(data.config), sort_keys=False, allow_unicode=True, width=100),
    )
    return page.encode()


@cache
def _environment() -> tuple[Environment, Markup]:
    folder = resources.files("hopline.report") / "templates"
    environment = Environment(
        loader=DictLoader({"report.html.j2": (folder / "report.html.j2").read_text(encoding="utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": _score,
        "whole": _whole,
        "percent": _percent,
        "chance": _chance,
        "label": _label,
        "metric": _metric_label,
        "counts": _counts,
    }
    return environment, Markup((folder / "report.css").read_text(encoding="utf-8"))  # noqa: S704 - our own file


def _score(value: float | None) -> str:
    """A figure for people: three decimals where they matter, and a dash for what is no number."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == round(value) and abs(value) >= 2:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3f}" if abs(value) < 1000 else f"{value:,.1f}"
    return text.replace("-", "−")


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{100 * min(max(value, 0.0), 1.0):.1f}" if math.isfinite(value) else "0"


def _chance(value: float) -> str:
    """A probability in percent that never rounds to certainty."""
    if 0 < value < 0.005:
        return "<1%"
    if 0.995 < value < 1:
        return ">99%"
    return f"{value:.0%}"


def _label(name: str) -> str:
    return _LABELS.get(name, name.replace("_", " "))


def _metric_label(name: str) -> str:
    """``link.mrr`` as ``Link MRR``."""
    if name in _LABELS:
        return _LABELS[name]
    group, _, metric = name.rpartition(".")
    words = f"{_GROUPS.get(group, _label(group))} {_label(metric)}"
    return words[0].upper() + words[1:]


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{_label(name)} {count:,}" for name, count in numbers.items() if count) or "none"


def _tiles(metrics: Mapping[str, float], main: Sequence[str]) -> list[dict[str, Any]]:
    shown = ["overall.score", *main, "status.balanced_accuracy", "path.f1", "confidence.ece"]
    labels = {"path.f1": "Evidence path F1", "confidence.ece": "Calibration error (ECE)"}
    tiles = []
    for name in shown:
        if name not in metrics:
            continue
        n = metrics.get(f"{name.rpartition('.')[0]}.n")
        unit = "answers ranked" if name.startswith("link.") else "rows"
        note = "mean of main figures" if name == "overall.score" else "" if n is None else f"{n:,.0f} {unit}"
        tiles.append({"label": labels.get(name) or _metric_label(name), "value": metrics[name], "note": note})
    return tiles


def _pictures(data: ReportData, main: Sequence[str]) -> dict[str, Markup | None]:
    curves = data.curves
    drawn: dict[str, str | None] = {"loss": None, "valid": None, "rate": None, "hops": None}
    if len(curves.steps) > 1:
        drawn["loss"] = pictures.lines(
            {"loss": (curves.steps, curves.loss)},
            key="loss",
            alt=f"Training loss from step {curves.steps[0]} to {curves.steps[-1]}: "
            f"from {_score(curves.loss[0])} to {_score(curves.loss[-1])}.",
            x="step",
            y="loss",
            log_y=True,
        )
    if curves.evaluations:
        steps = [point.step for point in curves.evaluations]
        series: _Series = {"selection score": (steps, [point.score for point in curves.evaluations])}
        for name in main:
            if any(name in point.metrics for point in curves.evaluations):
                values = [point.metrics.get(name, math.nan) for point in curves.evaluations]
                series[_metric_label(name)] = (steps, values)
        drawn["valid"] = pictures.lines(
            series,
            key="valid",
            alt=f"Selection score on valid over {len(steps)} evaluations; step {data.choice.step} was chosen "
            f"with {_score(data.choice.score)}.",
            x="step",
            y="",
            unit_range=True,
            marked=data.choice.step,
        )
    table = _hops(data.slices)
    if len(table["columns"]) > 1:
        series = {}
        for row in table["rows"]:
            cells = [(float(hop), cell.score) for hop, cell in zip(table["columns"], row["cells"], strict=True) if cell]
            series[_label(row["kind"])] = ([hop for hop, _ in cells], [score for _, score in cells])
        drawn["hops"] = pictures.lines(
            series,
            key="hops",
            alt="The main figure of each kind by number of hops; the table beside it holds the same figures.",
            x="hops",
            y="",
            unit_range=True,
        )
    error = _score(data.metrics.get("confidence.ece"))
    drawn["reliability"] = pictures.reliability(
        data.reliability,
        key="reliability",
        alt=f"Share of right answers against confidence; calibration error {error}.",
    )
    return {name: None if svg is None else Markup(svg) for name, svg in drawn.items()}  # noqa: S704 - drawn here


def _sparks(data: ReportData) -> list[dict[str, Any]]:
    curves = data.curves
    if len(curves.steps) < 2:
        return []
    series = {"learning rate": curves.learning_rate, **curves.components}
    sparks = []
    for place, (name, values) in enumerate(series.items()):
        finite = [value for value in values if math.isfinite(value)]
        if len(values) != len(curves.steps) or not finite or not any(finite):
            continue  # a component that is switched off, or was not logged
        alt = f"{_label(name)} over training, {finite[0]:.3g} at first, {finite[-1]:.3g} at last."
        svg = pictures.spark(curves.steps, values, key=f"spark{place}", alt=alt)
        sparks.append({"name": _label(name), "picture": Markup(svg), "last": f"{finite[-1]:.3g}"})  # noqa: S704
    return sparks


def _training_words(data: ReportData) -> str:
    curves = data.curves
    last = max([*curves.steps[-1:], *(point.step for point in curves.evaluations)], default=0)
    evaluations = len(curves.evaluations)
    return f"{last} optimizer steps, {evaluations} evaluation{'s' * (evaluations != 1)} on the valid split."


def _hops(slices: Sequence[Slice]) -> dict[str, Any]:
    parts = [part for part in slices if part.by == "hops" and part.metric == MAIN_METRIC.get(part.kind)]
    columns = sorted({part.value for part in parts}, key=int)
    rows = []
    for kind, metric in MAIN_METRIC.items():
        cells = {part.value: part for part in parts if part.kind == kind}
        if cells:
            rows.append({"kind": kind, "metric": metric, "cells": [cells.get(column) for column in columns]})
    return {"columns": columns, "rows": rows}


def _kinds(slices: Sequence[Slice]) -> list[dict[str, Any]]:
    groups: dict[str, list[Slice]] = {}
    for part in slices:
        if part.by == "all":
            groups.setdefault(part.kind, []).append(part)
    return [{"kind": kind, "slices": parts} for kind, parts in groups.items()]


def _by_status(slices: Sequence[Slice]) -> list[Slice]:
    return [part for part in slices if part.by == "status" and part.metric == MAIN_METRIC.get(part.kind)]


def _samples(data: ReportData) -> list[dict[str, Any]]:
    groups = [
        {"title": "Wrong", "samples": [sample for sample in data.samples if not sample.right]},
        {"title": "Right", "samples": [sample for sample in data.samples if sample.right]},
    ]
    return [group for group in groups if group["samples"]]


def _plain(value: Any) -> Any:
    """Only dicts, lists and scalars, for YAML."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
