"""Each stage command prints one JSON object with the promised keys; the second time it does nothing and says the same."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hopline.evaluation import fit_temperature, run_evaluation
from hopline.stages import GenerateResult, TrainResult, run_alone
from hopline.stages.generate_stage import open_dataset
from hopline.training import read_candidate
from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG, KEYS, STAGES, chain, content, hopline, reused, stage, tree


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


@pytest.mark.parametrize("name", STAGES)
def test_a_result_has_exactly_its_keys(finished: Finished, name: str) -> None:
    assert list(finished.results[name]) == KEYS[name]
    assert finished.results[name]["reused"] is False


def test_the_results_lead_to_one_another(finished: Finished) -> None:
    made, run, chosen, published = (finished.results[name] for name in STAGES)
    base = finished.root.as_uri()
    assert made["examples"] == {"train": 120, "valid": 30, "calibration": 30, "test": 30}
    assert made["dataset_uri"] == f"{base}/datasets/{made['dataset_hash']}"
    assert run["run_uri"] == f"{base}/runs/{run['run_hash']}"
    assert run["steps"] == 6
    assert run["stop_reason"] == "reached step 6"
    assert [list(candidate) for candidate in run["candidates"]] == [["step", "uri", "sha256", "score"]] * 3
    assert [candidate["step"] for candidate in run["candidates"]] == [2, 4, 6]
    assert {"step": chosen["step"], "uri": chosen["checkpoint_uri"], "sha256": chosen["checkpoint_sha256"]} in [
        {key: candidate[key] for key in ("step", "uri", "sha256")} for candidate in run["candidates"]
    ]
    assert all(isinstance(value, float) for value in chosen["metrics"].values())
    assert {"link.mrr", "overall.score", "confidence.ece", "status.accuracy"} <= set(chosen["metrics"])
    assert Path(chosen["report_uri"].removeprefix("file://")).read_bytes().startswith(b"<!doctype html>")
    assert published["manifest_uri"] == f"{base}/models/tiny/{published['manifest_hash']}/manifest.json"
    assert published["champion"] is True
    assert published["reasons"]


def test_the_best_valid_score_is_chosen(finished: Finished) -> None:
    candidates = finished.results["train"]["candidates"]
    best = max(candidates, key=lambda candidate: (candidate["score"], -candidate["step"]))
    assert finished.results["evaluate"]["step"] == best["step"]


def test_confidence_is_calibrated_on_rows_that_training_never_saw(finished: Finished) -> None:
    """D13: the temperature is that of the calibration split; how far it carries on test, as calibration error and Brier
    score, is in the manifest."""
    made, _, chosen, published = (finished.results[name] for name in STAGES)
    dataset = open_dataset(finished.root.as_uri(), made["dataset_hash"])
    model = read_candidate(local(chosen["checkpoint_uri"]), chosen["checkpoint_sha256"]).model
    raw = run_evaluation(model, dataset.split("calibration"), batch_size=64).table
    fitted = fit_temperature(raw.confidence_logit, raw.correct)
    assert fitted.n == len(raw.correct) >= 30
    assert fitted.temperature != 1
    record = json.loads(local(chosen["report_uri"]).with_name("metrics.json").read_text())
    assert record["calibration"]["temperature"] == pytest.approx(fitted.temperature)
    assert (record["calibration"]["n"], record["split"]) == (fitted.n, "test")
    test = run_evaluation(model, dataset.split("test"), batch_size=64, calibration=fitted).metrics
    told = json.loads(local(published["manifest_uri"]).read_text())["evaluation"]
    assert (told["split"], told["calibration"]["split"]) == ("test", "calibration")
    for name in ("confidence.ece", "confidence.brier"):
        assert told["metrics"][name]["value"] == pytest.approx(test[name])


def test_the_run_tells_when_where_and_how_it_was_trained(finished: Finished) -> None:
    """D40, D47: the wall time of every attempt, the processes, and the best score beside every candidate."""
    run, published = finished.results["train"], finished.results["publish"]
    record = json.loads((local(run["run_uri"]) / "run.json").read_text())
    (attempt,) = record["attempts"]
    started, ended = (datetime.fromisoformat(attempt[name]) for name in ("started", "ended"))
    assert timedelta(0) < ended - started < timedelta(minutes=10)
    assert (attempt["ranks"], attempt["examples_per_step"], attempt["end_reason"]) == (1, 16, "reached step 6")
    facts = record["run_manifest"]
    assert (facts["world_size"], facts["precision_used"], facts["deterministic_achieved"]) == (1, "fp32", True)
    told = json.loads(local(published["manifest_uri"]).read_text())
    for record in (facts, told["training"]["run_manifest"]):
        assert record["parent"] is None
        assert record["reasons"]["parent"] == "training began with random weights"
    assert [one["started"] for one in told["training"]["attempts"]] == [attempt["started"]]
    scores = {candidate["step"]: candidate["score"] for candidate in run["candidates"]}
    assert {one["step"]: one["score"] for one in told["evaluation"]["candidates"]} == scores


def test_the_second_time_everything_is_reused_and_nothing_written(finished: Finished) -> None:
    before = tree(finished.root)
    again = chain(finished.root)
    assert reused(again) == [True] * 4
    assert {name: content(again[name], finished.root) for name in STAGES} == {
        name: content(finished.results[name], finished.root) for name in STAGES
    }
    assert [list(again[name]) for name in STAGES] == [KEYS[name] for name in STAGES]
    assert tree(finished.root) == before


def test_another_root_gets_the_same_data_weights_and_metrics(finished: Finished, tmp_path: Path) -> None:
    again = chain(tmp_path / "other")
    for name in STAGES[:3]:
        assert content(again[name], tmp_path / "other") == content(finished.results[name], finished.root)


def test_without_json_there_is_a_table_for_people(finished: Finished) -> None:
    shown = [hopline(name, "-c", CONFIG, "--root", finished.root) for name in STAGES]
    assert [done.code for done in shown] == [0] * 4
    made, run, chosen, published = (done.stdout.splitlines() for done in shown)
    assert f"dataset_hash  {finished.results['generate']['dataset_hash']}" in made
    assert [line.split()[0] for line in made if line.startswith(" ")] == ["valid", "calibration", "test"]
    assert "stop_reason  reached step 6" in run
    assert sum("step 4 uri" in line for line in run) == 1
    assert any(line.split()[-2:-1] == ["link.n"] and float(line.split()[-1]) >= 1 for line in chosen), chosen
    assert "champion       True" in published


def test_progress_is_on_stderr_one_json_line_an_event(root: Path) -> None:
    shutil.rmtree(root / "requests" / "train")
    shutil.rmtree(root / "runs")
    done = stage("train", root)
    assert done.said == []
    events = done.events
    assert events[0]["kind"] == "start"
    assert events[-1]["kind"] == "done"
    assert {event["stage"] for event in events} == {"train"}
    steps = [event["step"] for event in events if event["kind"] == "progress" and "loss" in event]
    assert steps == [2, 4, 6]


def test_the_root_is_the_variable_where_no_option_is_given(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPLINE_ROOT", str(finished.root))
    assert hopline("generate", "-c", CONFIG, "--json").result["reused"] is True


def test_the_root_is_a_folder_here_where_nothing_is_given(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished.root, tmp_path / ".hopline")
    monkeypatch.chdir(tmp_path)
    result = hopline("train", "-c", CONFIG, "--json").result
    assert result["reused"] is True
    assert result["run_uri"].startswith((tmp_path / ".hopline").as_uri())


def test_a_moved_root_is_still_whole(finished: Finished, root: Path, tmp_path: Path) -> None:
    moved = root.rename(tmp_path / "moved")
    again = chain(moved)
    assert reused(again) == [True] * 4
    assert {name: content(again[name], moved) for name in STAGES} == {
        name: content(finished.results[name], finished.root) for name in STAGES
    }


def test_a_moved_root_can_be_worked_in_from_any_stage(finished: Finished, root: Path, tmp_path: Path) -> None:
    """Its records, training states and evaluations were written where it lay before."""
    moved = root.rename(tmp_path / "moved")
    for name in ("train", "publish"):
        shutil.rmtree(moved / "requests" / name)
    shutil.rmtree(moved / "models")
    again = chain(moved)
    assert reused(again) == [True, False, True, False]
    assert content(again["train"], moved) == content(finished.results["train"], finished.root)
    assert hopline("verify", again["publish"]["manifest_uri"]).code == 0


def test_a_stage_can_be_called_as_a_function(finished: Finished) -> None:
    from hopline.config import load_config
    from hopline.progress import NullSink

    config, root = load_config(CONFIG), finished.root.as_uri()
    made = run_alone("generate", config, root=root, sink=NullSink())
    run = run_alone("train", config, root=root, sink=NullSink())
    assert isinstance(made, GenerateResult)
    assert isinstance(run, TrainResult)
    assert made.model_dump(mode="json") == {**finished.results["generate"], "reused": True}
    assert run.model_dump(mode="json") == {**finished.results["train"], "reused": True}
