"""Metrics, ranking, calibration, the choice of a checkpoint, and answers to single queries."""

from hopline.evaluation.calibration import Calibration, fit_temperature
from hopline.evaluation.metrics import ReliabilityBin
from hopline.evaluation.selection import Candidate, Choice, choose, selection_score

__all__ = [
    "Calibration",
    "Candidate",
    "Choice",
    "ReliabilityBin",
    "choose",
    "fit_temperature",
    "selection_score",
]
