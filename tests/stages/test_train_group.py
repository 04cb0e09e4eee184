"""Training on several processes through the command: torchrun is started, listened to, and its end explained."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hopline.config import ClusterConfig
from hopline.errors import ConfigError
from hopline.stages.train_group import Group
from hopline.storage import open_store
from tests.stages.conftest import Finished
from tests.stages.workbench import content, options, stage

HOPLINE = str(Path(sys.executable).with_name("hopline"))
TWO = ("training.parallelism=ddp", "cluster.processes=2", "training.max_steps=40", "training.evaluation_every=10",
       "training.checkpoint_every=5", "training.log_every=1")  # fmt: skip


def dataset_only(finished: Finished, root: Path) -> Path:
    shutil.copytree(finished.root / "datasets", root / "datasets")
    shutil.copytree(finished.root / "requests" / "generate", root / "requests" / "generate")
    return root


def attempts(root: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(root.glob("runs/*/attempts/*.json"))]


@pytest.fixture(scope="module")
def together(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which two processes have trained without being disturbed."""
    root = dataset_only(finished, tmp_path_factory.mktemp("together") / "root")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPLINE_CACHE", str(root.parent / "cache"))
        assert stage("train", root, *TWO).result["steps"] == 40
    return root


def start(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [HOPLINE, "train", *options(root, *TWO)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(process: subprocess.Popen[str], step: int) -> None:
    """Until the processes have said that they finished a step."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith('{"time"') and json.loads(line).get("step", 0) >= step:
            return
    raise AssertionError("the run ended before")


def children(pid: int) -> list[int]:
    try:
        below = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return below + [deeper for each in below for deeper in children(each)]


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() and _runs(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def kept(root: Path) -> dict[str, Any]:
    """What a run leaves that has to be equal, however it was disturbed."""
    (run,) = root.glob("runs/*/run.json")
    record = json.loads(run.read_text())
    return {
        "log": record["step_log_sha256"],
        "weights": record["run_manifest"]["model_hash"],
        "candidates": [path.read_bytes() for path in sorted(root.glob("runs/*/candidates/*/index.json"))],
    }


def test_two_processes_train_one_run(finished: Finished, together: Path) -> None:
    """G7, G60, D47: the record says how many there were; how they shared the work is no part of what the run is."""
    (run,) = together.glob("runs/*/run.json")
    record = json.loads(run.read_text())
    assert record["run_manifest"]["world_size"] == 2
    assert record["run_manifest"]["topology"]["parallelism"] == "ddp"
    assert (record["attempts"][0]["ranks"], record["attempts"][0]["parallelism"]) == (2, "ddp")
    assert stage("train", together, *TWO[2:]).result["reused"] is True
    (health,) = together.glob("runs/*/health/*.jsonl")
    figures = json.loads(health.read_text().splitlines()[-1])
    assert {"straggler_spread", "messages_per_second", "bandwidth_share", "data_wait"} <= figures.keys()


def test_whatever_is_killed_the_run_ends_as_if_nothing_had_happened(
    finished: Finished, together: Path, tmp_path: Path
) -> None:
    """D26, D28, G55, G56: SIGTERM to the command, kill -9 of it, kill -9 of one rank, one after the other."""
    root = dataset_only(finished, tmp_path / "root")
    with start(root) as process:
        wait_for(process, 7)
        process.terminate()
        _, err = process.communicate(timeout=100)
    assert process.returncode == 143, err
    assert "its state was saved" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert attempts(root)[0]["end_reason"].endswith("its state was saved")

    with start(root) as process:
        wait_for(process, 17)
        below = children(process.pid)
        assert len(below) >= 3  # torchrun and two ranks
        process.kill()
    assert gone(below), "a training process outlived the command"

    with start(root) as process:
        wait_for(process, 27)
        os.kill(children(process.pid)[1], signal.SIGKILL)
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert json.loads(out)["steps"] == 40
    assert len(attempts(root)) == 4
    assert all(attempt["resumed_from"] for attempt in attempts(root)[1:])
    assert kept(root) == kept(together)


@pytest.mark.s3
def test_two_machines_share_no_disk(finished: Finished, tmp_path: Path, s3_root: str) -> None:
    """G7, G55, D26: each has its own folders; dataset, states and candidates go through the root, and so does the end."""
    local = dataset_only(finished, tmp_path / "root")
    store = open_store(s3_root)
    for path in (each for each in local.rglob("*") if each.is_file()):
        store.put_bytes(path.relative_to(local).as_posix(), path.read_bytes())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    machines = []
    for node in (0, 1):
        for name in ("tmp", "cache", "home"):
            (tmp_path / f"node-{node}" / name).mkdir(parents=True)
        environment = {
            **os.environ,
            "TMPDIR": str(tmp_path / f"node-{node}" / "tmp"),
            "HOPLINE_CACHE": str(tmp_path / f"node-{node}" / "cache"),
            "HOME": str(tmp_path / f"node-{node}" / "home"),
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": str(node),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(port),
        }
        command = [HOPLINE, "train", *options(s3_root, *TWO[:1], "training.log_every=1")]
        machines.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        )
    said = [machine.communicate(timeout=200) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], said
    one, other = (json.loads(out) for out, _ in said)
    assert one["run_hash"] == other["run_hash"]
    assert one["candidates"] == other["candidates"]
    run = f"runs/{one['run_hash']}"
    assert json.loads(store.get_bytes(f"{run}/run.json"))["run_manifest"]["topology"]["nodes"] == 2
    assert [json.loads(store.get_bytes(f"{run}/attempts/0001.json"))["ranks"]] == [2]
    assert len([info for info in store.list(f"{run}/checkpoints/") if info.key.endswith(".distcp")]) >= 4


def test_an_error_that_was_raised_on_purpose_is_not_tried_again(finished: Finished, tmp_path: Path) -> None:
    """D2, D28: the group is not started anew, and the command ends with the error and its code."""
    root = dataset_only(finished, tmp_path / "root")
    done = stage("train", root, *TWO, "training.learning_rate=1e30", "training.evaluation_every=0")
    assert done.code == 3
    assert [line for line in done.said if line.startswith("hopline: ")] == [
        f"hopline: {attempts(root)[0]['end_reason']}"
    ]
    assert len(attempts(root)) == 1


@pytest.mark.parametrize("variable", [None, "PET_NPROC_PER_NODE"])
def test_processes_that_were_not_told_how_to_share_are_refused_before_they_start(
    finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    """D28: in one line, whether the config or torchrun's variable asks for them."""
    root = dataset_only(finished, tmp_path / "root")
    if variable is None:
        error = stage("train", root, "cluster.processes=2").error
        assert "cluster.processes is 2, and training.parallelism says none; expected ddp" in error
        return
    monkeypatch.setenv(variable, "2")
    assert "training.parallelism: found none, and several processes train together" in stage("train", root).error


def test_a_termination_before_the_first_step_is_told_as_one(finished: Finished, tmp_path: Path) -> None:
    """D28: the processes are not up yet; nothing was lost, and nothing is said of lost ones."""
    root = dataset_only(finished, tmp_path / "root")
    with start(root) as process:
        deadline = time.monotonic() + 60
        while not children(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
        process.terminate()
        _, err = process.communicate(timeout=100)
    assert process.returncode == 143, err
    assert err.splitlines()[-1].startswith("hopline: run ")
    assert "was terminated before its first step" in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("environment", "config", "expected"),
    [
        ({}, {}, Group(1, ("--nproc-per-node=1",), True)),
        ({}, {"processes": 2}, Group(1, ("--nproc-per-node=2",), False)),
        ({"PET_NPROC_PER_NODE": "2"}, {}, Group(1, (), False)),
        ({"PET_NNODES": "2", "PET_NPROC_PER_NODE": "8", "PET_MASTER_ADDR": "a"}, {"processes": 4}, Group(2, (), False)),
        ({"PET_NNODES": "1:4", "PET_RDZV_ENDPOINT": "host:1"}, {}, Group(4, ("--nproc-per-node=1",), False)),
    ],
)
def test_the_group_is_as_torchruns_variables_say(
    environment: dict[str, str], config: dict[str, int], expected: Group
) -> None:
    found = Group.of(ClusterConfig(**config), environment)
    ignored = ("--max-restarts", "--rdzv-", "--local-addr")
    told = tuple(argument for argument in found.arguments if not argument.startswith(ignored))
    assert (found.nodes, told, found.is_single) == (expected.nodes, expected.arguments, expected.is_single)
    assert found.is_several is (
        environment.get("PET_NPROC_PER_NODE", "1") != "1" or "2" in str(config) or found.nodes > 1
    )
    assert any(argument.startswith("--rdzv-") for argument in found.arguments) is (
        found.nodes == 1 and "PET_RDZV_ENDPOINT" not in environment
    )


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PET_NNODES": "two"}, "PET_NNODES: found 'two', expected a number from 1 on"),
        ({"PET_NNODES": "0"}, "PET_NNODES: found '0', expected a number from 1 on"),
        ({"PET_NNODES": "4:2"}, "PET_NNODES: found '4:2', expected a number from 1 on, or min:max"),
        ({"PET_NPROC_PER_NODE": "-3"}, "PET_NPROC_PER_NODE: found '-3', expected a number from 1 on, or one of auto"),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "7"}, "PET_NODE_RANK: found '7', expected 0 to 1, as PET_NNODES is 2"),
        ({"PET_NNODES": "2"}, "nothing says where the others are; set PET_MASTER_ADDR or PET_RDZV_ENDPOINT"),
    ],
)
def test_variables_that_cannot_be_are_refused(environment: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        Group.of(ClusterConfig(), environment)


def test_the_result_is_that_of_a_stage(together: Path, finished: Finished) -> None:
    result = stage("train", together, *TWO).result
    assert result["reused"] is True
    assert content(result, together).keys() == content(finished.results["train"], finished.root).keys()
