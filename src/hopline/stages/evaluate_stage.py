"""The evaluation stage: every candidate on valid, the choice, and the chosen one on test."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from hopline.config import GraphConfig, ResolvedConfig
from hopline.datasets import SPLITS, Dataset
from hopline.errors import DataError, NotFoundError
from hopline.evaluation import (
    Calibration,
    Candidate,
    Choice,
    Evaluation,
    Predictor,
    choose,
    fit_temperature,
    run_evaluation,
    selection_score,
)
from hopline.model import GraphModel
from hopline.progress import Event, EventSink, NullSink
from hopline.report import ReportData, SplitSummary, collect_samples, model_card, render_report
from hopline.stages.checkpoints import candidate_is_there, load_candidate
from hopline.stages.evaluation_record import (
    METRICS_FILE,
    CalibrationRecord,
    CandidateMetrics,
    EvaluationRecord,
    finite,
    slice_metrics,
)
from hopline.stages.generate_stage import open_dataset
from hopline.stages.identity import stage_code
from hopline.stages.inputs import evaluate_request
from hopline.stages.requests import read_record, read_record_by_hash, write_record
from hopline.stages.results import CandidateResult, EvaluateResult, TrainResult
from hopline.stages.roots import key_of, open_root, run_prefix
from hopline.stages.runs import read_run, training_curves
from hopline.stages.work import exclusive
from hopline.storage import Store, sha256_bytes
from hopline.storage.folders import FolderIndex, check_folder, put_folder
from hopline.training import resolve_device, settle_threads

__all__ = ["CARD_FILE", "REPORT_FILE", "evaluate"]

REPORT_FILE: Final = "report.html"
CARD_FILE: Final = "README.md"
_LIBRARIES: Final = ("torch", "numpy", "pyarrow", "safetensors")


@dataclass(frozen=True, slots=True)
class _Measured:
    """A candidate with its metrics on valid."""

    result: CandidateResult
    candidate: Candidate


def evaluate(
    config: ResolvedConfig,
    *,
    root: str,
    dataset_uri: str,
    dataset_hash: str,
    run_uri: str,
    run_hash: str,
    sink: EventSink | None = None,
) -> EvaluateResult:
    """Choose the best candidate of a run on valid, calibrate it, measure it on test, and write the report.

    Raises:
        NotFoundError: there is no such run; the message names the command that makes it.
        IntegrityError: a candidate or a shard was altered.
        TrainingDivergedError: no candidate has a selection score that is a number.
    """
    sink = sink or NullSink()
    store = open_root(root)
    run = _finished_run(store, run_uri, run_hash, dataset_hash)
    request = evaluate_request(config.config, run)
    with exclusive(store, request, sink):
        sink.emit(Event("evaluate", "start", f"{len(run.candidates)} candidates of run {run_hash[:12]}"))
        _check_candidates(store, run)
        found = read_record(store, request, EvaluateResult)
        if found is not None and check_folder(store, key_of(store, found.report_uri).rpartition("/")[0]):
            sink.emit(Event("evaluate", "done", f"reused the choice of step {found.step}"))
            return found
        settle_threads()
        dataset = open_dataset(root, dataset_hash, sink=sink, stage="evaluate")
        result = _evaluate(config, store, dataset, run, sink)
        write_record(store, request, result)
        sink.emit(Event("evaluate", "done", f"chose step {result.step}"))
        return result


def _finished_run(store: Store, run_uri: str, run_hash: str, dataset_hash: str) -> TrainResult:
    run = read_record_by_hash(store, "train", run_hash, TrainResult)
    if run is None or run.run_uri != run_uri:
        raise NotFoundError(f"{run_uri}: there is no finished run {run_hash} in {store.base_uri}; train it first")
    trained_on = read_run(store, run_hash).dataset_hash
    if trained_on != dataset_hash:
        raise DataError(f"{run_uri}: was trained on dataset {trained_on}, expected {dataset_hash}; give that dataset")
    return run


def _check_candidates(store: Store, run: TrainResult) -> None:
    for candidate in run.candidates:
        if not candidate_is_there(store, candidate):
            raise NotFoundError(f"{candidate.uri}: the candidate is gone, or a file of it; train again to get it back")


def _evaluate(
    config: ResolvedConfig, store: Store, dataset: Dataset, run: TrainResult, sink: EventSink
) -> EvaluateResult:
    measure = _Measurer(config.config, dataset, len(run.candidates) + 2, sink)
    measured = [_on_valid(store, candidate, config.config, measure) for candidate in run.candidates]
    choice = choose([m.candidate for m in measured], config.config.evaluation.selection)
    chosen = next(m.result for m in measured if m.result.step == choice.step)
    model = load_candidate(store, chosen).model
    raw = measure(model, "calibration")
    calibration = fit_temperature(raw.table.confidence_logit, raw.table.correct)
    test = measure(model, "test", calibration)
    record = EvaluationRecord(
        dataset_hash=dataset.dataset_hash,
        run_hash=run.run_hash,
        checkpoint_key=key_of(store, chosen.uri),
        checkpoint_sha256=chosen.sha256,
        step=chosen.step,
        rule=choice.rule,
        weights=config.config.evaluation.selection,
        candidates=tuple(_candidate_metrics(store, m) for m in measured),
        calibration=CalibrationRecord.of(calibration),
        metrics=finite(test.metrics),
        slices=slice_metrics(test),
        evaluator_digest=stage_code("evaluate"),
    )
    data = _report_data(config.config, store, dataset, run, choice, model, test, calibration)
    files = {
        METRICS_FILE: record.to_bytes(),
        REPORT_FILE: render_report(data),
        CARD_FILE: model_card(data).encode(),
    }
    return EvaluateResult(
        checkpoint_uri=chosen.uri,
        checkpoint_sha256=chosen.sha256,
        step=chosen.step,
        metrics=record.metrics,
        report_uri=f"{_store_files(store, run.run_hash, files)}/{REPORT_FILE}",
        reused=False,
    )


class _Measurer:
    """Runs a model over a split and tells how far it is: one bar over all the evaluations of the stage."""

    def __init__(self, config: GraphConfig, dataset: Dataset, passes: int, sink: EventSink) -> None:
        self._config = config
        self._dataset = dataset
        self._passes = passes
        self._sink = sink
        self._done = 0
        self._device = resolve_device("auto")

    def __call__(self, model: GraphModel, split: str, calibration: Calibration | None = None) -> Evaluation:
        vocabulary = self._dataset.vocabulary
        found = run_evaluation(
            model.to(self._device),
            self._dataset.split(split),
            batch_size=self._config.evaluation.batch_size,
            device=self._device,
            calibration=calibration,
            bins=self._config.evaluation.calibration_bins,
            num_entities=vocabulary.num_entities,
            progress=self._report(split),
        )
        self._done += 1
        return found

    def _report(self, split: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            share = self._done + done / total
            message = f"{split} {done}/{total}"
            self._sink.emit(Event("evaluate", "progress", message, round(100 * share), 100 * self._passes))

        return tell


def _on_valid(store: Store, result: CandidateResult, config: GraphConfig, measure: _Measurer) -> _Measured:
    model = load_candidate(store, result).model
    metrics = measure(model, "valid").metrics
    score = selection_score(metrics, config.evaluation.selection)
    return _Measured(result, Candidate(result.step, score, result.sha256, metrics))


def _candidate_metrics(store: Store, measured: _Measured) -> CandidateMetrics:
    score = measured.candidate.score
    return CandidateMetrics(
        step=measured.result.step,
        key=key_of(store, measured.result.uri),
        sha256=measured.result.sha256,
        score=score if math.isfinite(score) else None,
        metrics=finite(measured.candidate.metrics),
    )


def _report_data(
    config: GraphConfig,
    store: Store,
    dataset: Dataset,
    run: TrainResult,
    choice: Choice,
    model: GraphModel,
    test: Evaluation,
    calibration: Calibration,
) -> ReportData:
    predictor = Predictor(model.cpu(), dataset.vocabulary, calibration=calibration)
    return ReportData(
        name=config.name,
        run_hash=run.run_hash,
        dataset_hash=dataset.dataset_hash,
        dataset_source=config.dataset.source,
        config=config.to_dict(),
        splits=tuple(
            SplitSummary(name, split.units, split.rows, split.kinds, split.statuses)
            for name, split in ((name, dataset.index.splits[name]) for name in SPLITS)
        ),
        choice=choice,
        metrics=test.metrics,
        slices=test.slices,
        reliability=test.reliability,
        calibration=calibration,
        curves=training_curves(store, run.run_hash),
        samples=collect_samples(test, dataset.split("test"), predictor, dataset.vocabulary, config.evaluation.samples),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        versions={name: metadata.version(name) for name in ("hopline", *_LIBRARIES)},
    )


def _store_files(store: Store, run_hash: str, files: dict[str, bytes]) -> str:
    """Keep the files in a folder named by their digest, and return its URI."""
    index = FolderIndex.of(files).to_bytes()
    prefix = f"{run_prefix(run_hash)}/evaluations/{sha256_bytes(index)}"
    with tempfile.TemporaryDirectory(prefix="hopline-evaluation-") as temporary:
        folder = Path(temporary)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        (folder / FolderIndex.FILE).write_bytes(index)
        put_folder(store, prefix, folder, last=FolderIndex.FILE)
    return store.uri(prefix)
