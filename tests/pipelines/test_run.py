"""``hopline run`` as a person uses it: real steps, in real processes, on a tiny config."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).with_name("tiny.yaml")
HOPLINE = Path(sys.executable).with_name("hopline")
FOREVER = ("--set", "training.max_steps=10000000", "--set", "training.evaluation_every=0")


def command(root: Path, *arguments: str) -> list[str]:
    return [str(HOPLINE), "run", "-c", str(CONFIG), "--root", str(root), *arguments]


def environment(root: Path) -> dict[str, str]:
    temporary = root.with_name(f"{root.name}-tmp")
    temporary.mkdir(exist_ok=True)
    return {
        **os.environ,
        "TMPDIR": str(temporary),
        "HOPLINE_CACHE": str(root.with_name(f"{root.name}-cache")),
        "OMP_NUM_THREADS": "1",
    }


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(root, *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env=environment(root),
    )


def results(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run") / "root"


@pytest.fixture(scope="module")
def first(root: Path) -> subprocess.CompletedProcess[str]:
    return run(root, "--json")


def test_it_prints_one_json_object_with_the_four_stages(first: subprocess.CompletedProcess[str]) -> None:
    record = results(first)
    assert list(record) == ["generate", "train", "evaluate", "publish"]
    assert [stage["reused"] for stage in record.values()] == [False] * 4
    assert record["generate"]["examples"] == {"train": 60, "valid": 20, "calibration": 20, "test": 20}
    assert record["train"]["steps"] == 8
    assert record["publish"]["champion"] is True


def test_progress_goes_to_stderr_as_plain_lines(first: subprocess.CompletedProcess[str]) -> None:
    lines = first.stderr.splitlines()
    assert any(line.startswith("train: 8/8 ") and " loss " in line for line in lines), first.stderr
    assert {line.partition(":")[0] for line in lines} == {"generate", "train", "evaluate", "publish", "verify"}


def test_nothing_is_left_in_the_temporary_folder(first: subprocess.CompletedProcess[str], root: Path) -> None:
    assert first.returncode == 0
    assert list(root.with_name(f"{root.name}-tmp").iterdir()) == []


def test_the_same_again_reuses_every_stage(first: subprocess.CompletedProcess[str], root: Path) -> None:
    before, again = results(first), run(root)
    assert again.returncode == 0, again.stderr
    table = again.stdout.splitlines()
    for stage in ("generate", "train", "evaluate", "publish"):
        assert any(line.startswith(stage) and "reused" in line for line in table), again.stdout
    assert any(line.startswith("verify") and " 0 do not" in line for line in table), again.stdout
    assert before["publish"]["manifest_uri"] in again.stdout
    assert before["evaluate"]["report_uri"] in again.stdout
    assert before["publish"]["manifest_hash"][:12] in again.stdout


def test_another_learning_rate_reuses_the_dataset_alone(first: subprocess.CompletedProcess[str], root: Path) -> None:
    before = results(first)
    done = run(root, "--json", "--verbose", "--set", "training.learning_rate=0.01")
    assert "Running pipeline" in done.stderr, "--verbose shows what KFP prints, and not on stdout"
    after = results(done)
    assert [stage["reused"] for stage in after.values()] == [True, False, False, False]
    assert after["generate"]["dataset_hash"] == before["generate"]["dataset_hash"]
    assert after["train"]["run_hash"] != before["train"]["run_hash"]


def test_the_error_of_a_step_is_one_line_with_its_exit_code(root: Path, tmp_path: Path) -> None:
    done = run(root, "--json", "--set", f"dataset.source={tmp_path / 'missing'}")
    assert done.returncode == 2
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith("generate: ")]
    assert len(said) == 1, done.stderr
    assert said[0].startswith("hopline: ")
    assert "missing" in said[0]


def test_a_wrong_config_is_told_before_anything_starts(root: Path) -> None:
    done = run(root, "--set", "training.max_stepz=3")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "did you mean 'training.max_steps'?" in done.stderr


class Training:
    """A run that is in the middle of training, its dataset made before."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process = subprocess.Popen(
            command(root, *FOREVER),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(root),
        )
        assert self.process.stderr
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("train: ") and " loss " in line:
                return
        self.process.communicate()
        raise AssertionError("".join(said))

    def end(self) -> tuple[int, str]:
        """Wait for the end; the exit status and the last line of the error output."""
        _, rest = self.process.communicate(timeout=100)
        return self.process.returncode, rest.splitlines()[-1] if rest else ""

    def processes(self) -> dict[int, str]:
        """Everything that works on this root, by its command line."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if f"{self.root}" in line and line.strip():
                    found[int(entry.name)] = line
        return found

    def gone(self, within: float) -> bool:
        deadline = time.monotonic() + within
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.processes() == {}


@pytest.fixture
def training(first: subprocess.CompletedProcess[str], root: Path) -> Iterator[Training]:
    assert first.returncode == 0
    running = Training(root)
    yield running
    for process in running.processes():
        os.kill(process, signal.SIGKILL)
    running.process.communicate()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_step_and_then_the_command(training: Training, number: int, status: int) -> None:
    assert len(training.processes()) >= 2, "the command and its step"
    training.process.send_signal(number)
    found, last = training.end()
    assert found == status
    assert last.startswith("hopline: ")
    assert training.processes() == {}
    assert list(training.root.with_name(f"{training.root.name}-tmp").iterdir()) == []


def test_a_step_that_is_killed_is_one_line_that_names_its_output(training: Training) -> None:
    step = next(pid for pid, line in training.processes().items() if "executor_main --component_module_path" in line)
    os.kill(step, signal.SIGKILL)
    status, last = training.end()
    assert status == 1
    assert last.startswith("hopline: train: it ended without saying why")
    log = Path(last.rpartition(" ")[2])
    assert "train" in log.read_text()
    assert training.gone(5)


def test_the_steps_end_with_the_command_even_if_it_is_killed(training: Training) -> None:
    training.process.kill()
    training.process.wait()
    assert training.gone(30), training.processes()
