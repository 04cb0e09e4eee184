"""The model card: README.md of a published model, with the YAML front matter that model hubs read."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import yaml

from hopline.evaluation import MAIN_METRIC
from hopline.report.data import ReportData

__all__ = ["model_card"]

_SHOWN: Final = (
    ("link.mrr", "Link queries: MRR, filtered"),
    ("link.hits@1", "Link queries: Hits@1"),
    ("link.hits@3", "Link queries: Hits@3"),
    ("link.hits@10", "Link queries: Hits@10"),
    ("multi_hop.set_f1", "Multi-hop queries: set F1"),
    ("multi_hop.exact", "Multi-hop queries: exact match"),
    ("count.accuracy", "Count queries: accuracy"),
    ("aggregate.accuracy", "Aggregate queries: accuracy"),
    ("boolean.accuracy", "Boolean queries: accuracy"),
    ("relation.accuracy", "Relation queries: accuracy"),
    ("status.balanced_accuracy", "Status: balanced accuracy"),
    ("path.f1", "Evidence paths: F1"),
    ("confidence.ece", "Confidence: calibration error"),
    ("overall.score", "Overall score"),
)


_EXAMPLE: Final = (
    '{"nodes": ["a", "b", "c"], "edges": [["a", "r1", "b"], ["b", "r2", "c"]], '
    '"query": {"anchors": ["a"], "relations": ["r1", "r2"], "answer_mode": "entities"}}'
)


def model_card(data: ReportData) -> str:
    """The model card as Markdown; the same data give the same text, and text of the data cannot break out of it."""
    return f"---\n{_front_matter(data)}---\n\n{_body(data)}"


def _front_matter(data: ReportData) -> str:
    figures = [
        {"type": name, "name": label, "value": round(data.metrics[name], 6)}
        for name, label in _SHOWN
        if math.isfinite(data.metrics.get(name, math.nan))
    ]
    document: dict[str, Any] = {
        "library_name": "hopline",
        "pipeline_tag": "graph-ml",
        "tags": ["graph-reasoning", "knowledge-graph", "multi-hop"],
        "model-index": [
            {
                "name": data.name,
                "results": [
                    {
                        "task": {"type": "graph-ml", "name": "Graph reasoning"},
                        "dataset": {
                            "type": "hopline",
                            "name": " ".join(data.dataset_source.split()),
                            "revision": data.dataset_hash,
                            "split": "test",
                        },
                        "metrics": figures,
                    }
                ],
            }
        ],
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _body(data: ReportData) -> str:
    config = data.config.get("dataset", {})
    named = config.get("entities") == "identity"
    parameters = "" if data.parameters is None else f" It has {data.parameters:,} parameters."
    world = (
        "Entities are known by name: it answers about the entities it was trained on."
        if named
        else "Entities are anonymous: only the structure of a query's graph counts, so it can answer about entities it "
        "never saw, as long as the relations are those of its vocabulary."
    )
    kinds = [kind.replace("_", "-") for kind in MAIN_METRIC if any(part.kind == kind for part in data.slices)]
    return f"""# {_text(data.name)}

A graph-reasoning model. Given a small graph of facts and a query about it, it gives the answer, whether the graph supports,
lacks or contradicts it, a calibrated confidence, and the path of facts it rests on.{parameters}

## Intended use

Queries over multi-relational graphs: {", ".join(kinds) or "none were measured"}. {world}

## Data

Source: {_text(data.dataset_source)}. Dataset hash: `{data.dataset_hash}`.

{_splits(data)}

## Results

On the test split, measured once, after step {data.choice.step} was chosen.

{_figures(data)}

Link queries are ranked against all candidates, with the other true answers left out; ties get the mean of their best and
worst place. {_text(data.calibration.note[:1].upper() + data.calibration.note[1:])}. `report.html` shows every slice, the
training curves, all candidates and sample answers.

How the checkpoint was chosen: {_text(data.choice.rule)}

## Limits

{_limits(data, named)}

## Verify

```
hopline verify . --key publisher.pub
```

checks every file of this folder against `manifest.json`, and the manifest against its signature, without a network.

## Predict

```
hopline predict . --input examples.jsonl
```

Each line of `examples.jsonl` is one query with its graph:

```json
{_EXAMPLE}
```
"""


def _splits(data: ReportData) -> str:
    lines = ["| split | examples | rows |", "|---|---:|---:|"]
    lines += [f"| {_text(split.name)} | {split.units:,} | {split.rows:,} |" for split in data.splits]
    return "\n".join(lines)


def _figures(data: ReportData) -> str:
    lines = ["| figure | value | n |", "|---|---:|---:|"]
    for name, label in _SHOWN:
        value = data.metrics.get(name)
        if value is not None:
            n = data.metrics.get(f"{name.rpartition('.')[0]}.n")
            lines.append(f"| {label} | {value:.4f} | {'' if n is None else f'{n:,.0f}'} |")
    return "\n".join(lines)


def _limits(data: ReportData, named: bool) -> str:
    config = data.config
    dataset, model = config.get("dataset", {}), config.get("model", {})
    longest = max(dataset.get("max_hops") or 0, dataset.get("test_max_hops") or 0)
    lines = ["- It reasons over the graph that a query brings; what the graph does not say it can at most guess."]
    if longest:
        lines.append(f"- Chains of more than {longest} hops were not measured.")
    if dataset.get("max_nodes"):
        lines.append(f"- It was trained on graphs of about {dataset['min_nodes']} to {dataset['max_nodes']} nodes.")
    if model.get("max_count"):
        lines.append(f"- Counts above {model['max_count']} are not told apart.")
    if named:
        lines.append("- Entities and relations that are not in `vocabulary.json` are unknown to it.")
    ece = data.metrics.get("confidence.ece")
    if ece is not None and math.isfinite(ece):
        lines.append(
            f"- Its confidence is off by {ece:.3f} on average on data like its test split, and may be further off elsewhere."
        )
    return "\n".join(lines)


def _text(value: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(value.split()))
