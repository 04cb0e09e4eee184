"""``hopline predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hopline.cli.options import json_option

if TYPE_CHECKING:
    from hopline.evaluation import Answer

__all__ = ["predict"]

_SHOWN = 5
"""Answers shown of a ranking."""


@click.command()
@click.argument("model", metavar="MODEL_URI")
@click.option(
    "--input", "input_path", required=True, type=click.Path(path_type=Path), metavar="FILE", help="examples.jsonl"
)
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=1), help="Most answers of a ranking.")
@json_option
def predict(model: str, input_path: Path, top: int, as_json: bool) -> None:
    """Answer the queries of a JSONL file with a published model.

    MODEL_URI is a version's folder or manifest.json: a path, file:// or s3:// URI; every file is checked against the
    manifest. Each query gets its answers, a status, a calibrated confidence and the path of evidence. With --json: one
    object a line.
    """
    from hopline.datasets import read_examples
    from hopline.stages.published import load_published

    published = load_published(model)
    asked = read_examples(input_path, published.vocabulary, max_paths=published.config.dataset.max_paths).examples
    answers = published.predictor.answer([q.example for q in asked], names=[q.node_names for q in asked], top=top)
    for number, answer in enumerate(answers, start=1):
        click.echo(json.dumps(answer.to_dict(), ensure_ascii=False) if as_json else _lines(number, answer))


def _lines(number: int, answer: Answer) -> str:
    found = ", ".join(f"{a.name} ({a.probability:.2f})" for a in answer.answers[:_SHOWN]) or "nothing"
    if len(answer.answers) > _SHOWN:
        found += f", and {len(answer.answers) - _SHOWN} more"
    return "\n".join(
        [
            f"{number}. {answer.answer_mode}: {found}",
            f"   status      {answer.status} ({answer.status_probability:.2f})",
            f"   confidence  {answer.confidence:.2f}",
            f"   evidence    {answer.evidence_words or 'none'}",
        ]
    )
