"""Run the whole pipeline on this machine, with no cluster and no containers.

It is the same graph as on Kubeflow, under kfp.local's SubprocessRunner.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from hopline.config import ResolvedConfig
from hopline.errors import HoplineError, TerminatedError
from hopline.lineage import VerifyReport, verify
from hopline.progress import EVENTS_VARIABLE, Event, EventSink
from hopline.stages import encode_config
from hopline.stages.results import EvaluateResult, GenerateResult, PublishResult, StageResult, TrainResult
from hopline.stages.roots import dataset_prefix, open_root
from pipelines.progress import GRACE, EventTail

__all__ = ["PipelineRun", "StepCrashedError", "StepFailedError", "run_pipeline"]

_LOOK: Final = 0.1  # seconds between looks at the side file
_RESULT_OF: Final[Mapping[str, type[StageResult]]] = {
    "generate": GenerateResult,
    "train": TrainResult,
    "evaluate": EvaluateResult,
    "publish": PublishResult,
}
_STAGES: Final = tuple(_RESULT_OF)
_NEXT: Final = dict(itertools.pairwise(_STAGES))
_EXCEPTION: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?:: .*)?)$", re.MULTILINE)


class StepFailedError(HoplineError):
    """The typed error of a step, with the exit code that goes with it there."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # a class variable of every other error


class StepCrashedError(HoplineError):
    """A step ended without a typed error: a defect, or the machine killed it."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """What a run of the pipeline gave.

    Attributes:
        results: stage -> its result.
        verification: every claim of the published version, checked again from its files.
        seconds: stage, or ``verify`` -> how long it took, the start of its process included.
    """

    results: Mapping[str, StageResult]
    verification: VerifyReport
    seconds: Mapping[str, float]


class _Terminated(BaseException):
    """SIGTERM, as an exception of the main thread."""


def run_pipeline(resolved: ResolvedConfig, *, root: str, sink: EventSink, verbose: bool = False) -> PipelineRun:
    """Run dataset, training, evaluation and publishing, each in a process of its own, and verify what was published.

    Args:
        resolved: the config.
        root: absolute URI of the root store.
        sink: takes the events of every step.
        verbose: what kfp and the steps print goes to stderr; else to a file that is kept only if a step crashes.

    Raises:
        StepFailedError: a step ended with a typed error; the message and the exit code are its own.
        StepCrashedError: a step ended without one; the message names the file with its output.
        KeyboardInterrupt, TerminatedError: Ctrl-C, SIGTERM; the steps have been stopped, and had time to save their state.
    """
    folder = Path(tempfile.mkdtemp(prefix="hopline-run-"))
    keep = False
    try:
        with _sigterm_as_exception():
            return _run(resolved, root, sink, folder, verbose)
    except StepCrashedError:
        keep = True
        raise
    except _Terminated:
        raise TerminatedError("terminated by SIGTERM; the same command continues from what was saved") from None
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _run(resolved: ResolvedConfig, root: str, sink: EventSink, folder: Path, verbose: bool) -> PipelineRun:
    job, results, log, events = (folder / name for name in ("job.json", "results.json", "steps.log", "events.jsonl"))
    job.write_text(json.dumps({"config_json": encode_config(resolved), "root": root}), encoding="utf-8")
    (folder / "tmp").mkdir()
    watch = _Watch(EventTail(events), sink)
    with log.open("wb") as output:
        worker = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "pipelines.local_worker", str(job), str(results), str(folder / "pipeline")],
            stdin=subprocess.PIPE,  # never written to: it ends when this process does, and the worker with it
            stdout=sys.stderr.fileno() if verbose else output,
            stderr=subprocess.STDOUT,
            env={
                # Threads that spin long while they wait make training several times slower when something else runs here.
                "GOMP_SPINCOUNT": "1000",
                **os.environ,
                EVENTS_VARIABLE: str(events),
                "KFP_RUN_ID": "",  # no run of a cluster
                "TMPDIR": str(folder / "tmp"),
                "PYTHONSAFEPATH": "1",  # no module is taken from the current folder
            },
            start_new_session=True,
        )
        try:
            while worker.poll() is None:
                watch.look()
                time.sleep(_LOOK)
        except BaseException:
            _stop(worker, watch)
            raise
        finally:
            if worker.stdin:
                worker.stdin.close()
    watch.look()
    if worker.returncode != 0 or not results.exists():
        raise watch.error(log if not verbose else None)
    texts = json.loads(results.read_text(encoding="utf-8"))
    done = {stage: kind.model_validate_json(texts[stage]) for stage, kind in _RESULT_OF.items()}
    start = time.monotonic()
    verification = _verify(done, root, sink)
    return PipelineRun(done, verification, {**watch.seconds, "verify": time.monotonic() - start})


def _verify(results: Mapping[str, StageResult], root: str, sink: EventSink) -> VerifyReport:
    data, published = results["generate"], results["publish"]
    assert isinstance(data, GenerateResult)
    assert isinstance(published, PublishResult)
    sink.emit(Event("verify", "start", "checking every claim of what was published"))
    dataset = open_root(root).local_path(dataset_prefix(data.dataset_hash))
    report = verify(published.manifest_uri, dataset=dataset)
    sink.emit(Event("verify", "done", "every claim holds" if report.exit_code == 0 else "a claim does not hold"))
    return report


class _Watch:
    """Passes new events on, and remembers what the end of the run needs of them."""

    def __init__(self, tail: EventTail, sink: EventSink) -> None:
        self._tail = tail
        self._sink = sink
        self._last_done = time.time()
        self._stage = _STAGES[0]
        self._error: Event | None = None
        self.seconds: dict[str, float] = {}

    def look(self) -> None:
        for event in self._tail.read():
            self._stage = event.stage
            if event.kind == "done":
                self._stage = _NEXT.get(event.stage, event.stage)
                taken = max(0.0, event.time - self._last_done)
                self.seconds[event.stage] = self.seconds.get(event.stage, 0.0) + taken
                self._last_done = event.time
            elif event.kind == "error":
                self._error = event
            self._sink.emit(event)

    def error(self, log: Path | None) -> HoplineError:
        """The error to end with, once the worker has failed."""
        where = f"its output is in {log}" if log else "see its output above"
        if self._error is None:
            why = _last_exception(log) if log else ""
            why = why or "it ended without saying why, perhaps killed"
            return StepCrashedError(f"{self._stage}: {why}; {where}")
        kind, exit_code = self._error.values.get("type"), self._error.values.get("exit_code")
        if kind != "InternalError" and isinstance(exit_code, int):
            return StepFailedError(self._error.message, exit_code)
        message = " ".join(self._error.message.split())
        return StepCrashedError(f"{self._error.stage}: {message}; {where}")


def _last_exception(log: Path) -> str:
    """The last line of a traceback in what the steps printed; empty if there is none."""
    found = _EXCEPTION.findall(log.read_text(encoding="utf-8", errors="replace"))
    return found[-1] if found else ""


def _stop(worker: subprocess.Popen[bytes], watch: _Watch) -> None:
    """SIGTERM to the steps, time to save their state, then SIGKILL; a second Ctrl-C does not wait."""
    group = worker.pid  # it leads its own session
    deadline = time.monotonic() + GRACE
    try:
        _signal_group(group, signal.SIGTERM)
        while _group_lives(worker, group) and time.monotonic() < deadline:
            watch.look()
            time.sleep(_LOOK)
    finally:
        _signal_group(group, signal.SIGKILL)
        worker.wait()


def _group_lives(worker: subprocess.Popen[bytes], group: int) -> bool:
    worker.poll()
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


@contextmanager
def _sigterm_as_exception() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
