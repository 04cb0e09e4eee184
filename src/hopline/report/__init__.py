"""The HTML report and the model card of an evaluated checkpoint."""

from hopline.report.card import model_card
from hopline.report.data import EvaluationPoint, ReportData, Sample, SplitSummary, TrainingCurves
from hopline.report.html import render_report
from hopline.report.samples import collect_samples

__all__ = [
    "EvaluationPoint",
    "ReportData",
    "Sample",
    "SplitSummary",
    "TrainingCurves",
    "collect_samples",
    "model_card",
    "render_report",
]
