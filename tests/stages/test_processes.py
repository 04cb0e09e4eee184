"""Two processes at one root, and signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stages.conftest import Finished
from tests.stages.workbench import Forks, content, options, stage

HOPLINE = str(Path(sys.executable).with_name("hopline"))


@pytest.fixture
def dataset_only(finished: Finished, tmp_path: Path) -> Path:
    """A root in which the dataset is made and nothing else."""
    root = tmp_path / "root"
    shutil.copytree(finished.root / "datasets", root / "datasets")
    shutil.copytree(finished.root / "requests" / "generate", root / "requests" / "generate")
    return root


def attempts(root: Path) -> list[dict]:
    """The attempts of the one run."""
    return [json.loads(path.read_text()) for path in sorted(root.glob("runs/*/attempts/*.json"))]


def test_two_at_once_train_once(finished: Finished, dataset_only: Path) -> None:
    with subprocess.Popen(
        [HOPLINE, "train", *options(dataset_only)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as other:
        try:
            assert other.stdout
            assert other.stderr
            assert '"kind": "start"' in other.stderr.readline()
            here = stage("train", dataset_only)  # the other one holds the lock while it trains
            there = json.loads(other.stdout.read())
            assert other.wait(100) == 0
        finally:
            other.kill()
    assert there["reused"] is False
    assert here.result["reused"] is True
    for result in (here.result, there):
        assert content(result, dataset_only) == content(finished.results["train"], finished.root)
    assert len(attempts(dataset_only)) == 1


def test_a_second_one_says_that_it_waits(finished: Finished, root: Path, forks: Forks) -> None:
    import fcntl
    import threading

    assert stage("train", root).result["reused"] is True
    forks("version")  # so that the server has started
    (lock,) = [path for path in (Path(os.environ["HOPLINE_CACHE"]) / "locks").iterdir() if path.is_file()]
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        timer = threading.Timer(0.5, fcntl.flock, (held, fcntl.LOCK_UN))
        timer.start()
        done = forks("train", *options(root))
        timer.join()
    assert done.result["reused"] is True
    assert "another process is doing the same work; waiting for it" in [event.get("message") for event in done.events]


def test_a_terminated_training_saves_its_state_and_the_next_one_continues(
    finished: Finished, dataset_only: Path, forks: Forks
) -> None:
    done = forks("train", *options(dataset_only, "training.log_every=1"), kill_after='"step": 3,', by=signal.SIGTERM)
    assert done.code == 143
    assert done.stdout == ""
    assert done.said == ["hopline: training stopped after step 3; its state was saved"]
    (first,) = attempts(dataset_only)
    assert (first["first_step"], first["last_step"]) == (0, 3)
    assert first["end_reason"] == "training stopped after step 3; its state was saved"
    assert not list(dataset_only.glob("requests/train/*.json"))
    assert "`hopline train " in stage("evaluate", dataset_only).error

    again = stage("train", dataset_only)
    assert "continues from step 3" in [event.get("message") for event in again.events]
    assert content(again.result, dataset_only) == content(finished.results["train"], finished.root)
    first, second = attempts(dataset_only)
    assert (second["first_step"], second["last_step"], second["end_reason"]) == (3, 6, "reached step 6")
    assert second["resumed_from"]


def test_training_that_is_terminated_in_an_evaluation_continues_too(
    finished: Finished, dataset_only: Path, forks: Forks
) -> None:
    """The signal comes with the log line of step 4; an evaluation of it is due, which is cut short."""
    done = forks("train", *options(dataset_only), kill_after='"step": 4, "total": 6, "loss"', by=signal.SIGTERM)
    assert done.code == 143
    assert done.said == ["hopline: training stopped after step 4; its state was saved"]
    assert content(stage("train", dataset_only).result, dataset_only) == content(
        finished.results["train"], finished.root
    )


def test_an_interrupted_training_says_so_and_the_next_one_continues(
    finished: Finished, dataset_only: Path, forks: Forks
) -> None:
    """The signal comes with the log line of step 4; an evaluation of it is due, which is cut short."""
    done = forks("train", *options(dataset_only), kill_after='"step": 4, "total": 6, "loss"', by=signal.SIGINT)
    assert done.code == 130
    assert done.stdout == ""
    assert [line for line in done.said if line] == ["hopline: interrupted"]
    again = stage("train", dataset_only)
    assert "continues from step 4" in [event.get("message") for event in again.events]
    assert content(again.result, dataset_only) == content(finished.results["train"], finished.root)


def test_training_that_diverges_ends_with_3_and_again_when_it_is_continued(dataset_only: Path) -> None:
    sets = ("training.learning_rate=1e30", "training.max_steps=20", "training.evaluation_every=0")
    for attempt in (1, 2):
        done = stage("train", dataset_only, *sets)
        assert done.code == 3
        assert done.stdout == ""
        assert len(done.said) == 1
        assert done.said[0].startswith("hopline: training diverged: ")
        assert len(attempts(dataset_only)) == attempt
    assert [one["end_reason"] == done.said[0].removeprefix("hopline: ") for one in attempts(dataset_only)] == [
        True,
        True,
    ]
    assert not list(dataset_only.glob("requests/train/*.json"))


def test_a_reader_that_goes_away_is_no_error(finished: Finished) -> None:
    command = f"{HOPLINE} config schema | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{", "")
