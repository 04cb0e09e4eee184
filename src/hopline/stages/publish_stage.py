"""The publishing stage: files, manifest and immutable version, then the champion gate."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import hopline
from hopline.config import ResolvedConfig
from hopline.datasets import DatasetIndex
from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.lineage import (
    ChampionPointer,
    GateDecision,
    Manifest,
    Measured,
    SigningKey,
    candidate,
    code_part,
    config_part,
    dataset_part,
    decide,
    describe_files,
    environment_part,
    gate_record,
    measured_at_publishing,
    metrics_table,
    move_champion,
    pipeline_part,
    publish_version,
    read_champion,
    read_signing_keys,
    sign_published,
    split_digest,
    tensors_digest,
    verify,
    write_weight_shards,
)
from hopline.lineage.champion import champion_key
from hopline.lineage.keys import KEY_FILE_VARIABLE, KEY_VARIABLE
from hopline.lineage.record import RunManifest
from hopline.lineage.schema import (
    SELECTION_RULE,
    Attempt,
    Calibration,
    ChampionReference,
    CheckpointReference,
    EvaluationPart,
    ParentsPart,
    SelectionRule,
    SliceRow,
    Subjects,
    TrainingPart,
)
from hopline.progress import Event, EventSink, NullSink
from hopline.stages.checkpoints import load_candidate
from hopline.stages.evaluate_stage import CARD_FILE, REPORT_FILE
from hopline.stages.evaluation_record import METRICS_FILE, EvaluationRecord
from hopline.stages.generate_stage import read_index, split_rule_of
from hopline.stages.identity import STAGE_PACKAGES, stage_code
from hopline.stages.inputs import publish_request
from hopline.stages.requests import Request, read_record, write_record
from hopline.stages.results import CandidateResult, PublishResult
from hopline.stages.roots import key_of, open_root
from hopline.stages.runs import AttemptRecord, RunRecord, read_run
from hopline.stages.work import exclusive
from hopline.storage import Store, canonical_json
from hopline.storage.folders import read_file

__all__ = ["publish"]

_STEP: Final = re.compile(r"/step-(\d+)$")


def publish(
    config: ResolvedConfig,
    *,
    root: str,
    dataset_uri: str,
    dataset_hash: str,
    run_uri: str,
    run_hash: str,
    checkpoint_uri: str,
    checkpoint_sha256: str,
    report_uri: str,
    sink: EventSink | None = None,
) -> PublishResult:
    """Publish the chosen checkpoint as an immutable version, then let the gate decide about the champion pointer.

    The version is made once; the decision is taken each time, against the champion of that moment, and a version that lacks
    the signature of one of the publisher's keys gets it.

    Raises:
        NotFoundError: an input is not in the root.
        ConfigError: a signing key that is configured is not there, or is none.
        IntegrityError: an input or the version that was published before has been altered.
        DataError: the inputs do not belong together.
    """
    sink = sink or NullSink()
    store = open_root(root)
    evaluation = key_of(store, report_uri).rsplit("/", 1)[0]
    keys = read_signing_keys(config.config.publish.signing_keys)
    request = publish_request(config.config, run_hash, checkpoint_sha256, evaluation)
    with exclusive(store, request, sink):
        sink.emit(Event("publish", "start", f"checkpoint {checkpoint_sha256[:12]}"))
        sink.emit(_who_signs(keys))
        index = read_index(store, dataset_hash)
        found = read_record(store, request, PublishResult)
        if found is None or not _verified(found):
            record = EvaluationRecord.parse(
                read_file(store, evaluation, METRICS_FILE), source=store.uri(f"{evaluation}/{METRICS_FILE}")
            )
            _check_inputs(record, run_uri, run_hash, checkpoint_sha256)
            found = _publish(config, store, request, index, evaluation, record, keys, sink)
            write_record(store, request, found)
        else:
            sign_published(store, config.config.name, found.manifest_hash, keys)
        result = _decide(config, store, index, found)
        verdict = "is the champion" if result.champion else "is not the champion"
        sink.emit(Event("publish", "done", f"version {result.manifest_hash[:12]} {verdict}"))
        return result


def _who_signs(keys: Sequence[SigningKey]) -> Event:
    """A version without a signature is allowed, and said."""
    if keys:
        return Event("publish", "note", f"signed by {', '.join(key.key_id[:12] for key in keys)}")
    text = (
        "NOT SIGNED: there is no signing key, so nobody can check who publishes this now; make one with `hopline keygen` "
        f"and give it by publish.signing_keys, {KEY_FILE_VARIABLE} or {KEY_VARIABLE}"
    )
    return Event("publish", "warning", text)


def _publish(
    config: ResolvedConfig,
    store: Store,
    request: Request,
    index: DatasetIndex,
    evaluation: str,
    record: EvaluationRecord,
    keys: Sequence[SigningKey],
    sink: EventSink,
) -> PublishResult:
    run = read_run(store, record.run_hash)
    chosen = CandidateResult(
        step=record.step, uri=store.uri(record.checkpoint_key), sha256=record.checkpoint_sha256, score=None
    )
    loaded = load_candidate(store, chosen)
    with tempfile.TemporaryDirectory(prefix="hopline-publish-") as temporary:
        staged = Path(temporary)
        weights = write_weight_shards(loaded.model.state_dict(), staged, config.config.publish.shard_bytes)
        (staged / "config.json").write_bytes(canonical_json(config.config.to_dict()))
        (staged / "vocabulary.json").write_bytes(canonical_json(index.vocabulary.model_dump(mode="json")))
        for file in (METRICS_FILE, REPORT_FILE, CARD_FILE):
            (staged / file).write_bytes(read_file(store, evaluation, file))
        subjects = describe_files(staged)
        manifest = _started(store, request, subjects) or _build(
            config, store, index, run, record, subjects, tensors_digest(weights)
        )
        # A retry has to publish the same manifest, whatever happened to the champion meanwhile.
        store.put_bytes(_draft_key(request), manifest.to_bytes())
        version = publish_version(store, manifest.name, staged, manifest, keys=keys, sink=sink)
    store.delete(_draft_key(request))
    return PublishResult(
        manifest_uri=version.manifest_uri,
        manifest_hash=version.manifest_hash,
        champion=False,
        reasons=manifest.parents.gate.because,
        reused=False,
    )


def _build(
    config: ResolvedConfig,
    store: Store,
    index: DatasetIndex,
    run: RunRecord,
    record: EvaluationRecord,
    subjects: Subjects,
    weights_digest: str,
) -> Manifest:
    name, gate = config.config.name, config.config.publish.gate
    champion = read_champion(store, name)
    before = None if champion is None else _measured(store, champion)
    decision = decide(gate, Measured("", split_digest(index, record.split), record.metrics), before)
    return Manifest.build(
        name=name,
        subjects=subjects,
        dataset=dataset_part(index, split_rule=split_rule_of(index)),
        code=code_part({stage: stage_code(stage) for stage in STAGE_PACKAGES}, work_tree=_work_tree()),
        config=config_part(config),
        environment=environment_part(run.run_manifest),
        training=_training_part(run),
        evaluation=_evaluation_part(store, record, index, weights_digest),
        parents=_parents(config, run, decision, before),
        pipeline=pipeline_part(),
    )


def _draft_key(request: Request) -> str:
    return f"{request.work_prefix}/manifest.json"


def _started(store: Store, request: Request, subjects: Subjects) -> Manifest | None:
    """The manifest of an earlier attempt that was stopped before its version was whole, if it is of the same files."""
    key = _draft_key(request)
    found = store.get_bytes_with_etag(key)
    if found is None:
        return None
    manifest = Manifest.parse(found[0], source=store.uri(key))
    return manifest if manifest.subjects == subjects else None


def _decide(config: ResolvedConfig, store: Store, index: DatasetIndex, version: PublishResult) -> PublishResult:
    name = config.config.name
    challenger = measured_at_publishing(store, name, version.manifest_hash)
    gate = config.config.publish.gate
    move = move_champion(store, name, challenger, gate, measure=lambda champion: _measured(store, champion))
    return version.model_copy(update={"champion": move.champion, "reasons": move.decision.reasons})


def _measured(store: Store, champion: ChampionPointer) -> Measured:
    """The champion's metrics. Raises NotFoundError, saying what to do, if its version is gone."""
    try:
        return measured_at_publishing(store, champion.name, champion.manifest_hash)
    except NotFoundError:
        pointer = store.uri(champion_key(champion.name))
        raise NotFoundError(
            f"{pointer}: the champion is version {champion.manifest_hash}, which is gone or has lost its manifest; restore "
            "it, or remove the pointer to publish without a champion to compare with"
        ) from None


def _verified(found: PublishResult) -> bool:
    """Whether a recorded version still holds every claim. One that is gone is made again; an altered one is an error."""
    try:
        report = verify(found.manifest_uri)
    except NotFoundError:
        return False
    failed = [claim for claim in report.claims if claim.status == "FAIL"]
    if failed:
        raise IntegrityError(
            f"{found.manifest_uri}: {failed[0].name}: {failed[0].detail}; the published version was altered: restore it, or "
            "remove its folder to publish it again"
        )
    return True


def _check_inputs(record: EvaluationRecord, run_uri: str, run_hash: str, checkpoint_sha256: str) -> None:
    for what, found, expected in (
        ("run", record.run_hash, run_hash),
        ("checkpoint", record.checkpoint_sha256, checkpoint_sha256),
    ):
        if found != expected:
            raise DataError(f"{run_uri}: the evaluation is of {what} {found}, expected {expected}; evaluate again")


def _training_part(run: RunRecord) -> TrainingPart:
    return TrainingPart.known(
        {
            "run_hash": run.run_hash,
            "attempts": tuple(_attempt(attempt) for attempt in run.attempts),
            "steps": run.steps,
            "stop_reason": run.stop_reason,
            "samples_seen": run.samples_seen,
            "skipped_updates": run.skipped_updates,
            "non_finite_updates": run.non_finite_updates,
            "step_log_digest": run.step_log_sha256,
            "run_manifest": RunManifest.from_record(run.run_manifest),
        },
        otherwise="the training stage did not record it",
    )


def _attempt(attempt: AttemptRecord) -> Attempt:
    batch = attempt.examples_per_step
    return Attempt.known(
        {
            "started": attempt.started,
            "ended": attempt.ended,
            "end_reason": attempt.end_reason,
            "ranks": attempt.ranks,
            "resumed_from": attempt.resumed_from,
            "first_sample": attempt.first_step * batch,
            "last_sample": None if attempt.last_step is None else attempt.last_step * batch,
        },
        otherwise="the attempt was killed before it could say",
        reasons={"resumed_from": "it began with the initial weights"},
    )


def _evaluation_part(
    store: Store, record: EvaluationRecord, index: DatasetIndex, weights_digest: str
) -> EvaluationPart:
    return EvaluationPart.known(
        {
            "split": record.split,
            "split_digest": split_digest(index, record.split),
            "metrics": metrics_table(record.metrics),
            "evaluator_digest": record.evaluator_digest,
            "candidates": tuple(
                candidate(
                    step=c.step,
                    uri=store.uri(c.key),
                    sha256=c.sha256,
                    score=c.score,
                    metrics=c.metrics,
                    weights=record.weights,
                    tensors_digest=weights_digest if c.step == record.step else None,
                )
                for c in record.candidates
            ),
            "rule": SelectionRule(id=SELECTION_RULE, text=record.rule, weights=record.weights),
            "chosen": CheckpointReference(
                uri=store.uri(record.checkpoint_key), step=record.step, sha256=record.checkpoint_sha256
            ),
            "calibration": Calibration.known(
                {
                    "method": record.calibration.note,
                    "temperature": record.calibration.temperature,
                    "split": "calibration",
                    "n": record.calibration.n,
                },
                otherwise="not known",
            ),
            "slices": tuple(
                SliceRow(name=s.name, n=s.n, metrics={} if s.value is None else {s.name: s.value})
                for s in record.slices
            ),
        },
        otherwise="not measured",
    )


def _parents(config: ResolvedConfig, run: RunRecord, decision: GateDecision, champion: Measured | None) -> ParentsPart:
    reference = None
    if champion is not None:
        reference = ChampionReference(
            manifest_hash=champion.manifest_hash,
            split_digest=champion.split_digest,
            metrics={name: value for name, value in champion.metrics.items() if value is not None},
        )
    return ParentsPart.known(
        {
            "initial_checkpoint": _initial_checkpoint(run),
            "champion": reference,
            "gate": gate_record(config.config.publish.gate, decision),
        },
        otherwise="there was none",
        reasons={"initial_checkpoint": "training began with random weights", "champion": "this is the first version"},
    )


def _initial_checkpoint(run: RunRecord) -> CheckpointReference | None:
    """The candidate or training state that the run continued."""
    parent = run.run_manifest.get("parent")
    if parent is None:
        return None
    step = _STEP.search(parent["uri"])
    return CheckpointReference(uri=parent["uri"], step=int(step[1]) if step else None, sha256=parent["sha256"])


def _work_tree() -> Path | None:
    """The work tree that this code runs from, if it is one."""
    tree = Path(hopline.__file__).parents[2]
    return tree if (tree / ".git").exists() else None
