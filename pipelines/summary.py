"""What a person sees at the end of a run."""

from __future__ import annotations

import sys
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from hopline.lineage import VerifyReport
from hopline.stages.results import EvaluateResult, GenerateResult, PublishResult, StageResult, TrainResult
from pipelines.local_run import PipelineRun

__all__ = ["print_summary"]

_HEADLINES: Final = ("link.mrr", "multi_hop.set_f1", "status.accuracy", "confidence.ece", "overall.score")
"""Metrics on test that the table shows, where the dataset has them."""

_SPLITS: Final = ("train", "valid", "calibration", "test")

_WIDTH: Final = 160
"""Columns of the table where nothing says how wide the reader's page is."""


def print_summary(run: PipelineRun) -> None:
    """The stages with what each gave and how long it took, and where the manifest and the report are, on stdout."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(box=None, pad_edge=False)
    table.add_column("stage")
    table.add_column("result", overflow="fold")
    table.add_column("")
    table.add_column("seconds", justify="right")
    for stage, result in run.results.items():
        table.add_row(
            stage, _summary(result), "reused" if result.reused else "done", f"{run.seconds.get(stage, 0.0):.1f}"
        )
    table.add_row("verify", _verified(run.verification), "done", f"{run.seconds['verify']:.1f}")
    console.print(table)
    click.echo()
    for result in run.results.values():
        if isinstance(result, EvaluateResult):
            click.echo(f"report    {result.report_uri}")
        elif isinstance(result, PublishResult):
            click.echo(f"manifest  {result.manifest_uri}")


def _summary(result: StageResult) -> str:
    match result:
        case GenerateResult():
            counts = ", ".join(f"{result.examples[split]:,} {split}" for split in _SPLITS if split in result.examples)
            return f"dataset {result.dataset_hash[:12]}: {counts}"
        case TrainResult():
            kept = f"{len(result.candidates)} candidates"
            return f"run {result.run_hash[:12]}: {result.steps:,} steps ({result.stop_reason}), {kept}"
        case EvaluateResult():
            shown = [f"{name} {result.metrics[name]:.3f}" for name in _HEADLINES if name in result.metrics]
            return f"step {result.step:,} on test: " + ", ".join(shown)
        case PublishResult():
            place = "champion" if result.champion else "not the champion: " + "; ".join(result.reasons)
            return f"version {result.manifest_hash[:12]}: {place}"
        case _:
            raise AssertionError(result)


def _verified(report: VerifyReport) -> str:
    count = {status: sum(c.status == status for c in report.claims) for status in ("OK", "FAIL", "NOT CHECKED")}
    return f"{count['OK']} claims hold, {count['FAIL']} do not, {count['NOT CHECKED']} not checked"
