"""Several training processes on this machine: started by torchrun, listened to, stopped, and their end explained.

A process that is lost makes torchrun start the group again, from the newest training state. What the processes raise on
purpose comes back as that error: it would come again, so the group is not started again.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from pydantic import BaseModel, ConfigDict

from hopline import errors
from hopline.config import ClusterConfig, GraphConfig
from hopline.errors import ConfigError, HoplineError, PeerLostError, TerminatedError
from hopline.progress import EventSink, event_from_json
from hopline.stages.requests import Request, read_record
from hopline.stages.results import TrainResult
from hopline.storage import Store

__all__ = ["JOB_VARIABLE", "Group", "Outcome", "RankJob", "end_with_parent", "train_together"]

JOB_VARIABLE: Final = "HOPLINE_TRAIN_JOB"
"""Names the file that tells a training process what to do."""

_DEVICES: Final = ("auto", "cpu", "gpu")
_GRACE: Final = 300
"""Seconds that training processes get to save their state before torchrun kills them."""
_PR_SET_PDEATHSIG: Final = 1  # of prctl(2)


@dataclass(frozen=True, slots=True)
class Group:
    """How many processes train together.

    Attributes:
        nodes: machines, the most of them where their number may vary.
        arguments: what torchrun is told beside its own ``PET_*`` variables.
        is_single: one process does it all, without torchrun.
    """

    nodes: int
    arguments: tuple[str, ...]
    is_single: bool
    is_several: bool = False
    """Certainly more than one process."""

    @classmethod
    def of(cls, config: ClusterConfig, environment: Mapping[str, str] | None = None) -> Group:
        """As torchrun's ``PET_*`` variables say, else the config.

        Raises:
            ConfigError: a variable says what cannot be.
        """
        environment = os.environ if environment is None else environment
        nodes = _nodes(environment)
        arguments = [f"--max-restarts={config.max_restarts}"] if "PET_MAX_RESTARTS" not in environment else []
        if "PET_NPROC_PER_NODE" not in environment:
            arguments.append(f"--nproc-per-node={config.processes}")
        if nodes == 1 and "PET_RDZV_ENDPOINT" not in environment:
            # Any free port, on this machine alone.
            arguments += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
        each = environment.get("PET_NPROC_PER_NODE", str(config.processes))
        if each not in _DEVICES and not (each.isdecimal() and int(each) > 0):
            raise ConfigError(
                f"PET_NPROC_PER_NODE: found {each!r}, expected a number from 1 on, or one of {', '.join(_DEVICES)}"
            )
        single = config.processes == 1 and not any(name.startswith("PET_") for name in environment)
        return cls(nodes, tuple(arguments), single, nodes > 1 or (each.isdecimal() and int(each) > 1))


class RankJob(BaseModel):
    """What a training process is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: str
    """As JSON."""
    root: str
    dataset_hash: str
    run_hash: str
    outcomes: str
    """Folder where a process writes why it ended, if not with success."""


class Outcome(BaseModel):
    """Why a training process ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    message: str

    def error(self) -> HoplineError:
        """The error that was raised there."""
        kind = getattr(errors, self.type, HoplineError)
        return kind(self.message) if issubclass(kind, HoplineError) else HoplineError(self.message)


def train_together(
    group: Group, config: GraphConfig, store: Store, dataset_hash: str, request: Request, sink: EventSink
) -> TrainResult:
    """Start the processes of this machine, wait for their end, and return what the main one recorded.

    Raises:
        HoplineError: what they raised.
        PeerLostError: they ended without a reason, after every restart.
    """
    with tempfile.TemporaryDirectory(prefix="hopline-group-") as temporary:
        folder = Path(temporary)
        outcomes = folder / "outcomes"
        outcomes.mkdir()
        job = RankJob(
            config=config.model_dump_json(),
            root=store.base_uri,
            dataset_hash=dataset_hash,
            run_hash=request.hash,
            outcomes=str(outcomes),
        )
        (folder / "job.json").write_text(job.model_dump_json(), encoding="utf-8")
        code, terminated = _torchrun(group, folder / "job.json", outcomes, sink)
        failed = _outcome(outcomes)
    if failed is not None:
        raise failed
    if code != 0 and terminated:
        raise TerminatedError(f"run {request.hash[:12]} was terminated before its first step; it begins where it stood")
    if code != 0:
        raise PeerLostError(
            f"run {request.hash[:12]}: a training process was lost more than {config.cluster.max_restarts} times (torchrun "
            f"ended with code {code}); what it said is above: the run continues from its last state when it is started again"
        )
    result = read_record(store, request, TrainResult)
    if result is None:
        raise PeerLostError(f"run {request.hash[:12]}: the main process ended without a record; start it again")
    return result.model_copy(update={"reused": False})


def end_with_parent() -> None:
    """Let a process be killed when its parent dies, however that dies: two groups must not work on one run."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _nodes(environment: Mapping[str, str]) -> int:
    """Machines, the most of them where their number may vary."""
    told = environment.get("PET_NNODES", "1")
    least, _, most = told.rpartition(":")
    if not all(part.isdecimal() and int(part) > 0 for part in (least or most, most)) or int(least or most) > int(most):
        raise ConfigError(f"PET_NNODES: found {told!r}, expected a number from 1 on, or min:max")
    nodes = int(most)
    rank = environment.get("PET_NODE_RANK", "0")
    if not rank.isdecimal() or int(rank) >= nodes:
        raise ConfigError(f"PET_NODE_RANK: found {rank!r}, expected 0 to {nodes - 1}, as PET_NNODES is {told}")
    if nodes > 1 and not {"PET_RDZV_ENDPOINT", "PET_MASTER_ADDR"} & environment.keys():
        raise ConfigError(
            f"PET_NNODES is {told}, and nothing says where the others are; set PET_MASTER_ADDR or PET_RDZV_ENDPOINT"
        )
    return nodes


def _torchrun(group: Group, job: Path, outcomes: Path, sink: EventSink) -> tuple[int, bool]:
    """Run torchrun to its end, events of the processes going to ``sink`` and the rest of what they print to stderr.

    Returns:
        Its exit code, and whether this process was asked to terminate meanwhile.
    """
    environment = {**os.environ, JOB_VARIABLE: str(job), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    # torchrun would set it to 1 and say so; the processes settle their threads themselves.
    environment.setdefault("OMP_NUM_THREADS", "1")
    process = subprocess.Popen(  # noqa: S603 - this interpreter, and our own module
        [
            sys.executable,
            *("-m", "hopline.stages.train_agent"),
            *group.arguments,
            f"--shutdown-timeout={_GRACE}",
            *("-m", "hopline.stages.train_rank"),
        ],
        stdout=subprocess.PIPE,
        env=environment,
        encoding="utf-8",
        errors="replace",
        preexec_fn=end_with_parent,
    )
    assert process.stdout is not None
    stopped = threading.Event()

    def watch() -> None:
        # An error that was raised on purpose would come again: do not let torchrun start the group again.
        while not stopped.wait(0.2):
            if any(outcomes.iterdir()) and not stopped.wait(2.0):
                process.terminate()
                return

    watcher = threading.Thread(target=watch, name="outcomes", daemon=True)
    watcher.start()
    try:
        with _passed_on(process) as terminated:
            for line in process.stdout:
                _say(line, sink)
            return process.wait(), terminated.is_set()
    finally:
        stopped.set()
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
        watcher.join()


def _say(line: str, sink: EventSink) -> None:
    try:
        event = event_from_json(line)
    except (ValueError, KeyError, TypeError, AttributeError):
        with suppress(OSError):
            sys.stderr.write(line)
        return
    sink.emit(event)


@contextmanager
def _passed_on(process: subprocess.Popen[str]) -> Iterator[threading.Event]:
    """SIGTERM goes to torchrun, which passes it to the training processes and waits until they have saved their state.

    The flag tells whether it came.
    """
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        flag.set()
        process.terminate()

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGTERM, before)


def _outcome(folder: Path) -> HoplineError | None:
    """Why the processes ended: what the lowest rank says."""
    files = sorted(folder.glob("*.json"))
    return Outcome.model_validate(json.loads(files[0].read_text(encoding="utf-8"))).error() if files else None
