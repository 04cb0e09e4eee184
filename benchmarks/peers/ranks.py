"""Steps and evaluations of several processes, one thread each; started by :func:`measure`, once for each rank."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from hopline.config import GraphConfig
from hopline.datasets import Dataset
from hopline.evaluation import run_evaluation
from hopline.model import build_model
from hopline.training import GraphTrainer, SplitBatches, setup_distributed

WARM_UP = 3
ROOT = Path(__file__).parents[2]


def measure(config: GraphConfig, data: Path, *, world: int, steps: int, units: int) -> tuple[float, float]:
    """Median seconds of a step over all examples of a batch, and seconds of an evaluation of some units."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = config.model_copy(
        update={"training": config.training.model_copy(update={"parallelism": "ddp" if world > 1 else "none"})}
    ).model_dump_json()
    command = [sys.executable, "-m", "benchmarks.peers.ranks", text, str(data), str(steps), str(units)]
    common = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            command, cwd=ROOT, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE
        )
        for rank in range(world)
    ]
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(f"a process of {world} failed")
    found = json.loads(outputs[0])
    return found["step"], found["evaluation"]


def main(text: str, data: str, steps: str, units: str) -> None:
    """One rank."""
    torch.set_num_threads(1)
    world = setup_distributed(torch.device("cpu"))
    config = GraphConfig.model_validate_json(text)
    dataset = Dataset.open(Path(data))
    torch.manual_seed(0)
    trainer = GraphTrainer(build_model(config, dataset.vocabulary), config, "cpu", distributed=world.size > 1)
    batches = SplitBatches(
        dataset.split("train"),
        config.training,
        num_relations=dataset.vocabulary.num_relations,
        rank=world.rank,
        world=world.size,
    )
    ends: list[float] = []
    trainer.train(batches, limit=WARM_UP + int(steps), on_step=lambda _: ends.append(time.perf_counter()))
    step = statistics.median(b - a for a, b in zip(ends[WARM_UP - 1 : -1], ends[WARM_UP:], strict=True))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        run_evaluation(
            trainer.reasoner,
            dataset.split("train"),
            batch_size=64,
            limit=int(units),
            peers=world if world.size > 1 else None,
        )
        seconds.append(time.perf_counter() - start)
    if world.is_main:
        print(json.dumps({"step": step, "evaluation": min(seconds)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
