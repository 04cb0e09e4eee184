"""Kill -9 a training at many moments, start it again, and compare how it ends with a run that nobody disturbed.

    python benchmarks/kill_matrix.py            20 kills and 4 terminations for one and for two processes
    python benchmarks/kill_matrix.py --quick    4 kills and 1 termination for each

Target: every run ends with the same bits as the undisturbed one: weights and moments of the final training state, the state
of the loop, the step log, the candidates, and with them the best choice. Times are not in any of these.

A run is watched from outside, by its events and by the files that appear, and killed a random while after

    step         a line of the log
    evaluation   the line of the step that an evaluation follows
    write        the first file of a training state that has no index yet
    commit       the index of a training state
    exit         the record of the finished run

With two processes one rank is killed, and torchrun starts the group again, or the whole group is, and the command is given
again. A termination (SIGTERM to the command) has to end with exit code 143 and a saved state.

A table, then one line of JSON; exit code 1 if one run ended otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

from hopline.storage import open_store, sha256_file
from hopline.training import Checkpoints
from hopline.training.reproducibility import model_hash
from hopline.training.state_files import LOG_FILE, STATE_FILE, StateReader

MOMENTS = ("step", "evaluation", "write", "commit", "exit")
CONFIG = """
name: killed
dataset:
  examples: {train: 200, valid: 60, calibration: 20, test: 20}
  min_nodes: 10
  max_nodes: 20
  synthetic_relations: 6
  workers: 1
model: {hidden_dim: 16, layers: 2, dropout: 0.1}
training:
  max_steps: 48
  batch_size: 32
  evaluation_every: 6
  checkpoint_every: 4
  log_every: 2
evaluation: {batch_size: 16}
"""
LIMIT = 300.0


@dataclass
class Result:
    """What happened to the runs of one moment."""

    ranks: int
    moment: str
    runs: int = 0
    equal: int = 0
    resumed: int = 0
    lost: list[str] = field(default_factory=list)


class Run:
    """One run in a root of its own, and the command that carries it out."""

    def __init__(self, folder: Path, dataset: Path, ranks: int) -> None:
        self.root = folder
        self._ranks = ranks
        self._config = folder.parent / f"config-{ranks}.yaml"
        self._config.write_text(CONFIG)
        shutil.copytree(dataset, folder)

    def start(self) -> subprocess.Popen[str]:
        sets = ["training.parallelism=ddp", f"cluster.processes={self._ranks}"] if self._ranks > 1 else []
        command = [str(Path(sys.executable).with_name("hopline")), "train", "-c", str(self._config), "--json"]
        command += [argument for each in sets for argument in ("--set", each)]
        return subprocess.Popen(
            [*command, "--root", str(self.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def finish(self) -> dict[str, Any]:
        """Give the command, as often as it takes, until it ends well."""
        process = self.start()
        out, err = process.communicate(timeout=LIMIT)
        if process.returncode:
            raise RuntimeError(f"ended with {process.returncode}: {err[-2000:]}")
        return json.loads(out)

    def files(self, pattern: str) -> list[Path]:
        return list(self.root.glob(f"runs/*/{pattern}"))

    def resumed(self) -> bool:
        """Whether an attempt continued a training state."""
        return any(json.loads(path.read_text())["resumed_from"] for path in self.files("attempts/*.json"))

    def end(self) -> dict[str, Any]:
        """Everything that has to be equal."""
        (run,) = self.files("run.json")
        checkpoints = Checkpoints(open_store(str(run.parent)), "checkpoints")
        step = checkpoints.committed()[-1]
        with tempfile.TemporaryDirectory() as folder:
            reader = StateReader(checkpoints, step, Path(folder))
            tensors: dict[str, Any] = {}
            _load_state_dict(tensors, storage_reader=reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
            flat = dict(_flat(tensors))
            return {
                "step": step,
                "tensors": model_hash(flat),
                "state": reader.document(STATE_FILE).decode(),
                "log": reader.document(LOG_FILE).decode(),
                "steps.jsonl": sha256_file(run.parent / "steps.jsonl"),
                "candidates": {path.parent.name: sha256_file(path) for path in self.files("candidates/*/index.json")},
            }


def _flat(tensors: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tensors.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{name}{key}.")
        else:
            yield f"{name}{key}", value


def children(pid: int) -> list[int]:
    """Processes below a process, deepest last."""
    try:
        below = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return below + [deeper for each in below for deeper in children(each)]


def watch(run: Run, process: subprocess.Popen[str], moment: str, chance: random.Random) -> bool:
    """Wait for a moment of a run; False if the run ended before."""
    events: list[dict[str, Any]] = []

    def listen() -> None:
        assert process.stderr is not None
        events.extend(json.loads(line) for line in process.stderr if line.startswith('{"time"'))

    threading.Thread(target=listen, daemon=True).start()
    threading.Thread(target=process.stdout.read, daemon=True).start()  # type: ignore[union-attr]
    step = chance.choice(range(4, 44, 2))
    state = chance.choice(range(1, 11))

    def reached() -> bool:
        if moment == "step":
            return any(event.get("step", 0) >= step and "loss" in event for event in events)
        if moment == "evaluation":
            due = -(-step // 6) * 6
            return any(event.get("step", 0) >= due and "loss" in event for event in events)
        if moment == "write":
            folders = run.files("checkpoints/step-*")
            return len(folders) >= min(state, 2) and any(not (each / "index.json").exists() for each in folders)
        if moment == "commit":
            return any(int(each.parent.name[5:]) >= 4 * state for each in run.files("checkpoints/*/index.json"))
        return bool(run.files("run.json"))

    deadline = time.monotonic() + LIMIT
    while not reached():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    longest = {"step": 0.2, "evaluation": 0.3, "write": 0.02, "commit": 0.02, "exit": 0.05}[moment]
    time.sleep(chance.uniform(0, longest))
    return process.poll() is None


def kill(process: subprocess.Popen[str], ranks: int, chance: random.Random) -> str:
    """Kill -9 what there is to kill; the name of what was."""
    below = children(process.pid)
    if ranks > 1 and len(below) >= 1 + ranks and chance.random() < 0.5:
        victim = chance.choice(below[1 : 1 + ranks])  # torchrun is the first
        os.kill(victim, signal.SIGKILL)
        return "rank"
    for pid in (process.pid, *below):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return "all"


def disturb(run: Run, moment: str, ranks: int, chance: random.Random) -> None:
    """Kill a run at a moment, and bring it to its end."""
    process = run.start()
    hit = watch(run, process, moment, chance)
    if hit and kill(process, ranks, chance) == "rank":
        code = process.wait(LIMIT)  # torchrun has started the group again
        if code == 0:
            return
        raise RuntimeError(f"the group ended with {code} after one of its ranks was killed")
    process.wait(LIMIT)
    for pid in children(process.pid):
        raise RuntimeError(f"process {pid} outlived the command that started it")
    run.finish()


def terminate(run: Run, chance: random.Random) -> None:
    """SIGTERM a run, and bring it to its end."""
    process = run.start()
    if watch(run, process, "step", chance):
        process.terminate()
        code = process.wait(LIMIT)
        if code != 143:
            raise RuntimeError(f"ended with {code} after SIGTERM, expected 143")
        if not run.files("checkpoints/*/index.json"):
            raise RuntimeError("left no training state after SIGTERM")
    run.finish()


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    wrong = [name for name, value in wanted.items() if found.get(name) != value]
    return ", ".join(wrong) + " differ" if wrong else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few kills only")
    parser.add_argument("--kills", type=int, help="kills for each number of processes")
    parser.add_argument("--ranks", default="1,2", help="numbers of processes")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments")
    options = parser.parse_args()
    kills = options.kills or (4 if options.quick else 20)
    terminations = 1 if options.quick else 4
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="hopline-kill-matrix-") as temporary:
        folder = Path(temporary)
        dataset = folder / "dataset"
        (folder / "config.yaml").write_text(CONFIG)
        hopline = str(Path(sys.executable).with_name("hopline"))
        subprocess.run(
            [hopline, "generate", "-c", str(folder / "config.yaml"), "--root", str(dataset)],
            check=True,
            capture_output=True,
        )
        for ranks in map(int, options.ranks.split(",")):
            chance = random.Random(f"{options.seed} {ranks}")
            undisturbed = Run(folder / f"undisturbed-{ranks}", dataset, ranks)
            undisturbed.finish()
            wanted = undisturbed.end()
            by_moment = {moment: Result(ranks, moment) for moment in (*MOMENTS, "SIGTERM")}
            results += by_moment.values()
            plan = [MOMENTS[n % len(MOMENTS)] for n in range(kills)] + ["SIGTERM"] * terminations
            for number, moment in enumerate(plan):
                run, result = Run(folder / f"run-{ranks}-{number}", dataset, ranks), by_moment[moment]
                result.runs += 1
                try:
                    if moment == "SIGTERM":
                        terminate(run, chance)
                    else:
                        disturb(run, moment, ranks, chance)
                    wrong = difference(run.end(), wanted)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    wrong = " ".join(str(error).split())
                result.resumed += run.resumed()
                result.equal += wrong is None
                if wrong is not None:
                    result.lost.append(wrong)
                    print(f"{ranks} ranks, {moment}: {wrong}", file=sys.stderr)
                shutil.rmtree(run.root)
    print(f"{'processes':>9}  {'killed at':<10} {'runs':>5} {'continued':>10} {'equal':>6}")
    for result in results:
        print(f"{result.ranks:>9}  {result.moment:<10} {result.runs:>5} {result.resumed:>10} {result.equal:>6}")
    runs, equal = sum(result.runs for result in results), sum(result.equal for result in results)
    print(json.dumps({"runs": runs, "equal": equal, "ratio": equal / runs}))
    return 0 if equal == runs else 1


if __name__ == "__main__":
    sys.exit(main())
