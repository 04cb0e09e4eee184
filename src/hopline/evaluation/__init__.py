"""Metrics, ranking, calibration, the choice of a checkpoint, and answers to single queries."""

from hopline.evaluation.calibration import Calibration, fit_temperature
from hopline.evaluation.evaluator import Reasoner, Rows, run_evaluation
from hopline.evaluation.metrics import ReliabilityBin
from hopline.evaluation.predictor import Answer, Predictor, RankedAnswer
from hopline.evaluation.selection import Candidate, Choice, choose, selection_score
from hopline.evaluation.summary import MAIN_METRIC, Evaluation, Slice, summarise
from hopline.evaluation.table import EvaluationTable
from hopline.evaluation.words import Hop

__all__ = [
    "MAIN_METRIC",
    "Answer",
    "Calibration",
    "Candidate",
    "Choice",
    "Evaluation",
    "EvaluationTable",
    "Hop",
    "Predictor",
    "RankedAnswer",
    "Reasoner",
    "ReliabilityBin",
    "Rows",
    "Slice",
    "choose",
    "fit_temperature",
    "run_evaluation",
    "selection_score",
    "summarise",
]
