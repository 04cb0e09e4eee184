"""What is known of runs, while they go on and afterwards."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hopline.errors import NotFoundError
from hopline.stages.run_listing import RunSummary, list_runs, view_run
from hopline.stages.runs import training_curves
from hopline.storage import open_store, sha256_bytes
from tests.stages.conftest import Finished
from tests.stages.workbench import Forks, flip, options, stage

STARTED = datetime(2030, 5, 1, 12, tzinfo=UTC)


def only(root: Path | str, now: datetime | None = None) -> RunSummary:
    (run,) = list_runs(str(root), now=now)
    return run


def folder(root: Path) -> Path:
    (found,) = (root / "runs").iterdir()
    return found


def unfinished(root: Path, **attempt: Any) -> Path:
    """Take back what the end of a run wrote, and say how its one attempt stands."""
    run = folder(root)
    for name in ("run.json", "steps.jsonl"):
        (run / name).unlink()
    (path,) = (run / "attempts").iterdir()
    told = {"started": STARTED.isoformat(), "ended": None, "end_reason": None, "last_step": None, **attempt}
    path.write_text(json.dumps({**json.loads(path.read_text()), **told}))
    shutil.rmtree(run / "health", ignore_errors=True)
    return run


def health(run: Path, *records: dict[str, Any], attempt: int = 1) -> None:
    (run / "health").mkdir(exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    (run / "health" / f"{attempt:04d}.jsonl").write_text(text)


def lock_of(root: Path, run: Path, tmp_path: Path) -> Path:
    """The file that whoever trains this run on this machine holds."""
    locks = tmp_path / "cache" / "locks"
    locks.mkdir(parents=True)
    return locks / (sha256_bytes(f"{root.as_uri()}\n{run.name}".encode()) + ".lock")


def test_a_finished_run(finished: Finished) -> None:
    run, trained = only(finished.root), finished.results["train"]
    best = max(trained["candidates"], key=lambda candidate: (candidate["score"], -candidate["step"]))
    assert (run.run_hash, run.run_uri, run.name) == (trained["run_hash"], trained["run_uri"], "tiny")
    assert (run.state, run.step, run.max_steps, run.reason) == ("finished", 6, 6, trained["stop_reason"])
    assert (run.best_score, run.best_step, run.attempts) == (best["score"], best["step"], 1)
    assert run.started is not None
    assert run.last_seen is not None
    assert run.started[:19] <= run.last_seen[:19]


@pytest.mark.parametrize("which", ["uri", "hash", "beginning"])
def test_a_run_is_shown_by_its_uri_or_the_beginning_of_its_hash(finished: Finished, which: str) -> None:
    trained = finished.results["train"]
    names = {"uri": trained["run_uri"], "hash": trained["run_hash"], "beginning": trained["run_hash"][:8]}
    view = view_run(names[which], root=str(finished.root))
    assert view.summary == only(finished.root)
    assert view.curves == training_curves(open_store(str(finished.root)), trained["run_hash"])
    assert {c.step: (c.uri, c.score) for c in view.candidates} == {
        c["step"]: (c["uri"], c["score"]) for c in trained["candidates"]
    }
    assert [c.score for c in view.candidates] == sorted((c["score"] for c in trained["candidates"]), reverse=True)
    assert view.counts == {"applied": 6, "skipped": 0, "not finite": 0}
    assert [record["step"] for record in view.health] == [2, 4, 6]
    assert all(record["examples_per_second"] > 0 for record in view.health)
    assert not any(name.startswith("loss.") for record in view.health for name in record)


def test_a_run_that_goes_on_has_the_curves_so_far(root: Path) -> None:
    """From the log of the newest training state, and from the health figures of the steps after it."""
    whole = view_run(only(root).run_uri, root=str(root)).curves
    run = unfinished(root)
    newest = sorted((run / "checkpoints").iterdir())[-1]
    shutil.rmtree(newest)
    health(
        run,
        {"step": 4, "time": 1.0, "loss": 99.0, "examples_per_second": 5.0},
        {"step": 6, "time": 2.0, "loss": 7.5, "loss.answer": 2.5, "learning_rate": 0.1, "examples_per_second": 5.0},
    )
    curves = view_run(only(root).run_uri, root=str(root)).curves
    assert curves.steps == whole.steps == (2, 4, 6)
    assert curves.loss == (*whole.loss[:2], 7.5)
    assert curves.components["answer"] == (*whole.components["answer"][:2], 2.5)
    assert curves.evaluations == whole.evaluations[:2]
    assert only(root).step == 6


def test_silence_of_another_machine_counts_as_killed(root: Path) -> None:
    """There is no lock of this machine: what it said last decides."""
    run = unfinished(root)
    assert only(root, STARTED + timedelta(seconds=200)).state == "running"
    assert only(root, STARTED + timedelta(seconds=400)).state == "killed"
    health(run, {"step": 2, "time": STARTED.timestamp() + 350, "total": 6})
    summary = only(root, STARTED + timedelta(seconds=400))
    assert (summary.state, summary.max_steps, summary.reason) == ("running", 6, None)
    assert summary.last_seen == "2030-05-01T12:05:50Z"


def test_the_lock_of_this_machine_knows_better(root: Path, tmp_path: Path) -> None:
    run = unfinished(root, started="2020-01-01T00:00:00Z")
    with lock_of(root, run, tmp_path).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert only(root).state == "running"
    assert only(root, datetime(2020, 1, 1, tzinfo=UTC)).state == "killed"


def test_a_lock_of_an_earlier_attempt_says_nothing(root: Path, tmp_path: Path) -> None:
    """It was tried here once, and goes on elsewhere since."""
    run = unfinished(root)
    (first,) = (run / "attempts").iterdir()
    later = json.loads(first.read_text()) | {"started": (STARTED + timedelta(days=1)).isoformat()}
    (run / "attempts" / "0002.json").write_text(json.dumps(later))
    lock_of(root, run, tmp_path).touch()  # before 2030
    summary = only(root, STARTED + timedelta(days=1, seconds=60))
    assert (summary.state, summary.attempts) == ("running", 2)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("training diverged: the last 5 updates up to step 4 were not finite; lower", "diverged"),
        ("no evaluation of run 0123 gave a score that is a number; lower training.learning_rate", "diverged"),
        ("training stopped after step 4; its state was saved", "stopped"),
        ("s3://bucket/root: the disk is full", "failed"),
    ],
)
def test_how_an_attempt_ended(root: Path, reason: str, state: str) -> None:
    unfinished(root, ended=STARTED.isoformat(), end_reason=reason)
    run = only(root)
    assert (run.state, run.reason) == (state, reason)


def test_a_run_killed_before_its_record_was_written(root: Path) -> None:
    """It trained to its end; another attempt has only the record to write."""
    reason = only(root).reason
    unfinished(root, ended=STARTED.isoformat(), end_reason=reason, last_step=6)
    shutil.rmtree(root / "requests" / "train")
    assert (only(root).state, only(root).step) == ("killed", 6)
    stage("train", root)
    assert only(root).state == "finished"


def test_a_real_kill_and_a_real_stop(finished: Finished, forks: Forks, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(finished.root / "datasets", root / "datasets")
    shutil.copytree(finished.root / "requests" / "generate", root / "requests" / "generate")
    killed = forks("train", *options(root), kill_after='"step": 4', by=signal.SIGKILL)
    assert killed.code == -signal.SIGKILL
    assert only(root).state == "killed"
    stopped = forks("train", *options(root), kill_after='"step": 4', by=signal.SIGTERM)
    assert stopped.code == 143
    run = only(root)
    assert (run.state, run.attempts) == ("stopped", 2)
    stage("train", root)
    assert (only(root).state, only(root).attempts) == ("finished", 3)


def test_a_run_that_diverges(finished: Finished, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(finished.root / "datasets", root / "datasets")
    shutil.copytree(finished.root / "requests" / "generate", root / "requests" / "generate")
    assert stage("train", root, "training.learning_rate=1e38", "training.max_non_finite=1").code == 3
    assert only(root).state == "diverged"


def test_what_is_damaged_is_left_out(root: Path) -> None:
    run = unfinished(root)
    (run / "attempts" / "0002.json").write_text("{half")
    (run / "attempts" / "0003.json").write_text(json.dumps({"started": 1}))
    (run / "attempts" / "0004.json").write_text(json.dumps({"started": "yesterday", "examples_per_step": 1}))
    health(run, {"step": 2, "loss": 1.0})
    with (run / "health" / "0001.jsonl").open("a") as file:
        file.write('[1]\n"text"\n{"step": "x"}\n{"step": 4, "loss"')
    newest = sorted((run / "checkpoints").iterdir())[-1]
    flip(next(newest.rglob("state.json")))
    summary = only(root, STARTED)
    assert (summary.state, summary.attempts, summary.step) == ("running", 1, 4)
    view = view_run(summary.run_uri, root=str(root), now=STARTED)
    assert [record["step"] for record in view.health] == [2]
    assert view.counts["applied"] == 4
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "candidates")
    bare = view_run(summary.run_uri, root=str(root), now=STARTED)
    assert (bare.summary.name, bare.summary.best_score, bare.candidates) == (None, None, ())
    assert bare.curves.steps == (2,)


def test_without_training_states_the_candidates_tell_the_best(root: Path) -> None:
    before = only(root)
    shutil.rmtree(folder(root) / "checkpoints")
    after = only(root)
    assert (after.best_score, after.best_step, after.state) == (before.best_score, before.best_step, "finished")


def test_no_runs_and_no_such_run(tmp_path: Path, root: Path) -> None:
    assert list_runs(str(tmp_path / "empty")) == ()
    for name in ("ffffffff", (root / "runs" / ("0" * 64)).as_uri()):
        with pytest.raises(NotFoundError, match=r"no such run; `hopline runs list"):
            view_run(name, root=str(root))


def test_a_beginning_of_two_runs_is_refused(root: Path) -> None:
    shutil.copytree(folder(root), root / "runs" / ("0" * 64))
    assert len(list_runs(str(root))) == 2
    with pytest.raises(NotFoundError, match="2 runs begin like that"):
        view_run("", root=str(root))


@pytest.mark.s3
def test_runs_in_a_bucket(finished: Finished, s3_root: str) -> None:
    store = open_store(s3_root)
    for path in sorted((finished.root / "runs").rglob("*")):
        if path.is_file():
            store.put_bytes(path.relative_to(finished.root).as_posix(), path.read_bytes())
    here, there = only(finished.root), only(s3_root)
    assert there == here.model_copy(update={"run_uri": f"{s3_root}/runs/{here.run_hash}"})
    shown = view_run(there.run_uri, root="/nowhere")
    assert shown.curves == view_run(here.run_uri, root="/nowhere").curves
    assert shown.summary == there
