"""Data for a report, made up but of the size and shape of a real run."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hopline.evaluation import Answer, Calibration, Candidate, Hop, RankedAnswer, ReliabilityBin, Slice, choose
from hopline.report import EvaluationPoint, ReportData, Sample, SplitSummary, TrainingCurves

KIN = (Hop("anna", "parent", "bob"), Hop("bob", "brother", "carl"), Hop("dora", "works with", "carl", True))


def answer(**fields: object) -> Answer:
    base = Answer(
        example_id=3,
        answer_mode="entities",
        answers=(RankedAnswer("dora", 0.93), RankedAnswer("emil", 0.71)),
        others=(RankedAnswer("carl", 0.2),),
        count=None,
        relation=None,
        boolean=None,
        status="supported",
        status_probability=0.98,
        confidence=0.87,
        evidence=KIN,
    )
    return replace(base, **fields)


def sample(score: float, **fields: object) -> Sample:
    base = Sample(
        kind="multi_hop",
        question="anna —parent→ · —brother→ · ←works with— ?",
        expected="dora, emil",
        expected_status="supported",
        answer=answer(),
        score=score,
        facts=("anna —parent→ bob", "bob —brother→ carl", "dora —works with→ carl", "emil —works with→ carl"),
        facts_total=57,
        nodes=31,
    )
    return replace(base, **fields)


def slices() -> tuple[Slice, ...]:
    parts = []
    for kind, metrics, start in (
        ("link", ("mrr", "hits@1", "hits@3", "hits@10"), 0.81),
        ("multi_hop", ("set_f1", "exact"), 0.93),
        ("count", ("accuracy",), 0.88),
        ("aggregate", ("accuracy",), 0.84),
        ("boolean", ("accuracy",), 0.95),
        ("relation", ("accuracy",), 0.9),
    ):
        for place, metric in enumerate(metrics):
            parts.append(Slice(kind, "all", "", metric, start + 0.04 * place, 661))
            for hops in (1, 2, 3, 4) if kind != "aggregate" else (1, 3):
                score = start - 0.05 * (hops - 1) + 0.02 * place
                parts.append(Slice(kind, "hops", str(hops), metric, score, 661 // hops))
        parts.append(Slice(kind, "status", "supported", metrics[0], start, 500))
        if kind == "multi_hop":
            parts.append(Slice(kind, "status", "missing", metrics[0], start - 0.1, 100))
            parts.append(Slice(kind, "status", "contradicted", metrics[0], start - 0.07, 61))
    parts.append(Slice("status", "all", "", "accuracy", 0.94, 1322))
    parts.append(Slice("status", "all", "", "balanced_accuracy", 0.91, 1322))
    for status, recall in (("supported", 0.97), ("missing", 0.9), ("contradicted", 0.86)):
        parts.append(Slice("status", "status", status, "recall", recall, 300))
    return tuple(parts)


def metrics() -> dict[str, float]:
    figures = {}
    for part in slices():
        figures[part.name] = part.score
        figures[part.name.rpartition(".")[0] + ".n"] = float(part.n)
    more = {
        "path.f1": 0.88, "path.n": 1100.0, "confidence.ece": 0.021, "confidence.brier": 0.094, "confidence.nll": 0.31,
        "confidence.n": 1322.0, "overall.score": 0.887, "overall.n": 1322.0, "overall.non_finite": 0.0,
    }  # fmt: skip
    return figures | more


def curves() -> TrainingCurves:
    steps = tuple(range(10, 6001, 10))
    loss = tuple(3.2 * math.exp(-s / 1400) + 0.35 + 0.08 * math.sin(s * 0.7) for s in steps)
    rate = tuple(2e-3 * min(1, s / 300) * (0.1 + 0.45 * (1 + math.cos(math.pi * s / 6000))) for s in steps)
    names = ("node", "link", "next_hop", "relation", "path", "pat", "answer", "verification", "contradiction", "count")
    components = {n: tuple(v / (i + 1) for v in loss) for i, n in enumerate(names)}
    points = tuple(
        EvaluationPoint(
            s,
            0.9 - 0.5 * math.exp(-s / 1500) - max(0, s - 4500) / 40000,
            {"link.mrr": 0.82 - 0.4 * math.exp(-s / 1300), "multi_hop.set_f1": 0.94 - 0.6 * math.exp(-s / 1100)},
        )
        for s in range(500, 6001, 500)
    )
    return TrainingCurves(steps, loss, rate, components, points)


@pytest.fixture(scope="session")
def report_data() -> ReportData:
    table = [
        Candidate(step, 0.85 + step / 1e5 - max(0, step - 4500) / 2e4, f"{step:064x}", metrics())
        for step in (3000, 4500, 6000)
    ]
    return ReportData(
        name="umls-reasoner",
        run_hash="4f" * 32,
        dataset_hash="a7" * 32,
        dataset_source="pykeen://umls",
        config={
            "name": "umls-reasoner",
            "dataset": {"entities": "identity", "max_hops": 3, "test_max_hops": None, "min_nodes": 20, "max_nodes": 60},
            "model": {"hidden_dim": 64, "max_count": 10},
            "training": {"betas": (0.9, 0.95)},
        },
        splits=(
            SplitSummary(
                "train", 18432, 19200, {"link": 10432, "multi_hop": 8000}, {"supported": 18000, "missing": 768}
            ),
            SplitSummary("valid", 1000, 1100, {"link": 600, "multi_hop": 400}, {"supported": 900, "missing": 100}),
            SplitSummary("calibration", 800, 850, {"link": 500, "multi_hop": 300}, {"supported": 750, "missing": 50}),
            SplitSummary("test", 1322, 1400, {"link": 922, "multi_hop": 400}, {"supported": 1200, "missing": 100}),
        ),
        choice=choose(table, {"overall.score": 1.0}),
        metrics=metrics(),
        slices=slices(),
        reliability=tuple(
            ReliabilityBin(i / 15, (i + 1) / 15, (i + 0.5) / 15, min(1, (i + 0.5) / 15 + 0.03 * math.sin(i)), 88)
            for i in range(15)
        ),
        calibration=Calibration(1.73, -0.21, 800, 0.4, 0.35, "temperature 1.73 and bias -0.21, fitted on 800 rows"),
        curves=curves(),
        samples=(
            sample(0.5, expected="dora, emil, a name so long that it has to be broken somewhere " + "x" * 60),
            sample(
                0.0,
                kind="boolean",
                expected="yes",
                expected_status="missing",
                answer=answer(evidence=(), confidence=0.999),
            ),
            sample(1.0),
            sample(1.0, kind="count", expected="2", answer=answer(answers=(RankedAnswer("2", 0.6),), count=2)),
        ),
        parameters=123456,
        versions={"hopline": "0.1.0", "torch": "2.13.0"},
    )
