"""A small version of a model, staged as the publish stage stages one, and its manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hopline.config import resolve_config
from hopline.evaluation import Candidate, choose
from hopline.lineage import (
    GateDecision,
    Manifest,
    Measured,
    candidate,
    code_part,
    config_part,
    decide,
    describe_files,
    environment_part,
    gate_record,
    measured_at_publishing,
    metrics_table,
    pipeline_part,
    publish_version,
    vocabulary_digest,
    write_weight_shards,
)
from hopline.lineage.record import RunManifest
from hopline.lineage.schema import (
    Attempt,
    ChampionReference,
    CheckpointReference,
    DatasetPart,
    EvaluationPart,
    GeneratorRecord,
    ParentsPart,
    SelectionRule,
    ShardRecord,
    SplitRecord,
    TrainingPart,
)
from hopline.progress import NullSink
from hopline.storage import Store

DATASET = "d" * 64
CONFIG = {
    "name": "tiny",
    "evaluation": {"selection": {"link.mrr": 1.0}},
    "publish": {"gate": {"minimum": {"link.mrr": 0.5}, "allowed_regression": {"link.mrr": 0.01}}},
}
VOCABULARY = {"relations": ["likes", "knows"], "entities": None, "identity": False, "rules": []}


@pytest.fixture
def stage(tmp_path: Path) -> Callable[..., Path]:
    """Make a staged folder; another ``seed`` gives other weights."""

    def make(seed: int = 0, *, folder: Path | None = None, max_bytes: int = 1 << 30) -> Path:
        folder = folder or tmp_path / f"staged-{seed}"
        generator = torch.Generator().manual_seed(seed)
        tensors = {
            "layer.weight": torch.randn(16, 8, generator=generator),
            "layer.bias": torch.zeros(16, dtype=torch.bfloat16),
            "steps": torch.tensor(7),
        }
        write_weight_shards(tensors, folder, max_bytes)
        config = resolve_config(json.dumps(CONFIG), source="tiny.yaml").config
        (folder / "config.json").write_text(json.dumps(config.to_dict(), indent=1))
        (folder / "vocabulary.json").write_text(json.dumps(VOCABULARY))
        (folder / "metrics.json").write_text('{"link.mrr": 0.8}')
        (folder / "README.md").write_text(f"# tiny {seed}\n")
        (folder / "report.html").write_text("<!doctype html><title>tiny</title>")
        return folder

    return make


@pytest.fixture
def build() -> Callable[..., Manifest]:
    """Build the manifest of a staged folder."""

    def make(
        folder: Path,
        *,
        mrr: float = 0.8,
        champion: Measured | None = None,
        split: str = "a" * 64,
        scores: tuple[float | None, ...] = (0.6, 0.7, 0.7),
        **changes: object,
    ) -> Manifest:
        resolved = resolve_config(
            json.dumps(CONFIG), source="/home/somebody/configs/tiny.yaml", overrides=["training.patience=null"]
        )
        subjects = describe_files(folder)
        weights = resolved.config.evaluation.selection
        table = [
            candidate(
                step=100 * (i + 1),
                uri=f"file:///root/runs/r/candidates/step-{i}",
                sha256=f"{i}" * 64,
                score=score,
                metrics={"link.mrr": score, "link.n": 10.0},
                weights=weights,
                tensors_digest=subjects.tensors_digest if i == 1 else "9" * 64,
            )
            for i, score in enumerate(scores)
        ]
        choice = choose(
            [Candidate(c.step, float("-inf") if c.score is None else c.score, c.sha256) for c in table], weights
        )
        metrics = {"link.mrr": mrr, "link.n": 600.0, "confidence.ece": 0.04}
        gate = resolved.config.publish.gate
        decision: GateDecision = decide(gate, Measured("", split, metrics), champion)
        shard = ShardRecord(file="test-00000.arrow", units=600, rows=700, bytes=12, sha256="e" * 64)
        run_manifest = {
            "model_version": "hopline-reasoner",
            "dataset_hash": DATASET,
            "seed": 1 << 60,
            "step": choice.step,
            "python": "3.11.2",
            "platform": "Linux",
            "torch": "2.13.0",
            "cuda": None,
            "device": "cpu",
            "parameter_count": 145,
            "git_commit": "unknown",
        }
        reference = None
        if champion is not None:
            reference = ChampionReference(
                manifest_hash=champion.manifest_hash,
                split_digest=champion.split_digest,
                metrics={k: v for k, v in champion.metrics.items() if v is not None},
            )
        parts = {
            "name": "tiny",
            "subjects": subjects,
            "dataset": DatasetPart.known(
                {
                    "dataset_hash": DATASET,
                    "splits": {"test": SplitRecord(units=600, rows=700, digest=split, shards=(shard,))},
                    "generator": GeneratorRecord(name="synthetic", version="1", code_digest="c" * 64),
                    "config": {"source": "synthetic"},
                    "seed": 0,
                    "vocabulary_digest": vocabulary_digest(VOCABULARY),
                },
                otherwise="the dataset is synthetic",
            ),
            "code": code_part({"train": "5" * 64}, environ={}),
            "config": config_part(resolved),
            "environment": environment_part(run_manifest),
            "training": TrainingPart.known(
                {
                    "run_hash": "f" * 64,
                    "steps": 300,
                    "attempts": (Attempt.known({"ranks": 1}, otherwise="not recorded"),),
                    "run_manifest": RunManifest.from_record(run_manifest),
                },
                otherwise="not recorded",
            ),
            "evaluation": EvaluationPart.known(
                {
                    "split": "test",
                    "split_digest": split,
                    "metrics": metrics_table(metrics, intervals={"link.mrr": (mrr - 0.02, mrr + 0.02)}),
                    "evaluator_digest": "7" * 64,
                    "candidates": tuple(table),
                    "rule": SelectionRule(text=choice.rule, weights=dict(weights)),
                    "chosen": CheckpointReference.known(
                        {"step": choice.step, "sha256": choice.sha256}, otherwise="it is in the table"
                    ),
                },
                otherwise="not measured",
            ),
            "parents": ParentsPart.known(
                {"champion": reference, "gate": gate_record(gate, decision)},
                otherwise="there was none",
            ),
            "pipeline": pipeline_part({}),
        }
        return Manifest.build(**{**parts, **changes})

    return make


@pytest.fixture
def publish(stage: Callable[..., Path], build: Callable[..., Manifest]) -> Callable[..., Measured]:
    """Publish a version with an MRR, and return what was measured."""
    folder = stage()

    def make(store: Store, mrr: float, **changes: object) -> Measured:
        manifest = build(folder, mrr=mrr, **changes)
        publish_version(store, "tiny", folder, manifest, sink=NullSink())
        return measured_at_publishing(store, "tiny", manifest.manifest_hash)

    return make


@pytest.fixture
def damage() -> SimpleNamespace:
    """Ways to change a file."""

    def flip(path: Path, offset: int = -1) -> None:
        data = bytearray(path.read_bytes())
        data[offset] ^= 1
        path.write_bytes(data)

    def cut(path: Path, count: int = 1) -> None:
        path.write_bytes(path.read_bytes()[:-count])

    return SimpleNamespace(flip=flip, cut=cut)


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of an empty root, in a folder and in a real S3 bucket."""
    return (tmp_path / "root").as_uri() if request.param == "file" else str(request.getfixturevalue("s3_root"))
