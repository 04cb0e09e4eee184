"""How fast datasets are made and read, and in how much memory.

    python benchmarks/datasets.py            every part, some minutes
    python benchmarks/datasets.py --quick    a smoke run of about a minute
    python benchmarks/datasets.py --only generation memory

Targets (ratios: what was found over what is wanted, or the other way round where less is better; at least 1.0):

    generation  15,000 examples a second on two cores: drawn, checked, hashed and written; 20-60 nodes, the defaults.
    scaling     two workers make at least 1.8 times as many examples a second as one.
    hashing     the digests of blocks and files take less than a tenth of the processor time of generation.
    memory      making 2,000,000 examples takes at most a tenth more resident memory than making 100,000.
    reading     random batches of 128 examples, read and collated on one core: 150,000 graphs a second, or 20 times a loop
                over examples that are in memory already.
    geometric   examples that are in memory already are collated at 10 times the rate of torch_geometric's
                Batch.from_data_list, which gets the same graphs as objects, each with an attribute for each column of a
                shard, and tells for each element the graph that it is of. What the rate is with reading stands beside.
    reading memory
                reading through 2,000,000 examples takes at most a tenth more resident memory than through 100,000, pages
                of mapped files left out.

The part `reading` needs torch-geometric: `pip install -e '.[bench]'` brings it.

Because the machine may be shared, generation and scaling are counted by processor seconds along the longest way: those
of the process that asks, plus those of the worker that has most to do, its start included. Seconds on the clock stand
beside.

A table of ratios, then one line of JSON with them; exit code 1 if one is below 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers.graphs import OWNED, bare_graph, geometric_graphs, join_examples

from hopline.config import DatasetConfig, ExampleCounts
from hopline.datasets import Dataset
from hopline.datasets.fingerprint import BLOCK_UNITS, block_digest
from hopline.graph import collate
from hopline.storage import sha256_file

EXAMPLES_PER_SECOND = 15_000
CORES = 2
SCALING = 1.8
HASHING_SHARE = 0.10
MEMORY_GROWTH = 1.10
GRAPHS_PER_SECOND = 150_000
LOOP_RATIO = 20
GEOMETRIC_RATIO = 10
BATCH = 128


@dataclass(frozen=True, slots=True)
class Ratio:
    """One target: ``value`` is at least 1 where it is reached; ``found`` says in words what was measured."""

    name: str
    value: float
    found: str


@dataclass(frozen=True, slots=True)
class Build:
    """What one build took.

    Attributes:
        examples: how many it made.
        seconds: on the clock.
        longest_way: processor seconds of the process that asked, plus those of its busiest worker.
        all_seconds: processor seconds of all its processes.
        peak_mib: the peak of the anonymous resident memory of all its processes together, in MiB.
    """

    examples: int
    seconds: float
    longest_way: float
    all_seconds: float
    peak_mib: float


# What a build is run in: a process of its own, so that neither its memory nor its time is that of this one.
_BUILD = """
import sys, time
from pathlib import Path
from hopline.config import DatasetConfig
from hopline.datasets import build_dataset
config, out = DatasetConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
started, processor = time.perf_counter(), time.process_time()
build_dataset(config, out)
print(time.perf_counter() - started, time.process_time() - processor)
"""


def build(out: Path, train: int, workers: int) -> Build:
    """Make a dataset of the default config in a process of its own."""
    counts = ExampleCounts(train=train, valid=400, calibration=400, test=600)
    config = DatasetConfig(examples=counts, workers=workers)
    command = [sys.executable, "-c", _BUILD, config.model_dump_json(), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watch = Watch(process)
        assert process.stdout is not None
        seconds, own = map(float, process.stdout.read().split())
    helpers = list(watch.child_seconds.values())
    return Build(
        sum(counts.model_dump().values()), seconds, own + max(helpers, default=0), own + sum(helpers), watch.peak_mib
    )


class Watch:
    """Waits for a process and looks at it and its children until it ends.

    Attributes:
        peak_mib: the peak of the anonymous resident memory of all of them together: mapped files are not counted.
        child_seconds: processor seconds of each child.
    """

    def __init__(self, process: subprocess.Popen[Any]) -> None:
        self.child_seconds: dict[int, float] = {}
        peak = 0
        while process.poll() is None:
            children = _children(process.pid)
            peak = max(peak, sum(map(_anonymous, [process.pid, *children])))
            for child in children:
                self.child_seconds[child] = max(_processor_seconds(child), self.child_seconds.get(child, 0.0))
            time.sleep(0.01)
        if process.returncode:
            raise SystemExit(f"a measured process ended with code {process.returncode}")
        self.peak_mib = peak / 1024


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _anonymous(pid: int) -> int:
    """Resident memory that is no mapped file, in KiB; 0 for a process that has gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))


def _processor_seconds(pid: int) -> float:
    """Processor seconds of a process so far; 0 for one that has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def generation(folder: Path, *, quick: bool) -> list[Ratio]:
    """Speed, scaling and the share of hashing; one and two workers take turns."""
    train, rounds = (200_000, 1) if quick else (400_000, 3)
    runs: dict[int, list[Build]] = {1: [], CORES: []}
    for turn in range(rounds):
        for workers, found in runs.items():
            out = folder / f"generation-{workers}-{turn}"
            found.append(build(out, train, workers))
            if (workers, turn) != (1, 0):
                shutil.rmtree(out)
    one, two = (statistics.median(run.examples / run.longest_way for run in runs[workers]) for workers in (1, CORES))
    clock_one, clock_two = (
        statistics.median(run.examples / run.seconds for run in runs[workers]) for workers in (1, CORES)
    )
    processor = statistics.median(run.all_seconds for run in runs[1])
    share = _hashing_seconds(folder / "generation-1-0") / processor
    shutil.rmtree(folder / "generation-1-0")
    return [
        Ratio(
            "generation",
            two / EXAMPLES_PER_SECOND,
            f"{two:,.0f} examples/s with two workers ({clock_two:,.0f} on the clock)",
        ),
        Ratio(
            "scaling",
            two / one / SCALING,
            f"{two / one:.2f} times the {one:,.0f} examples/s of one worker ({clock_two / clock_one:.2f} on the clock)",
        ),
        Ratio("hashing", HASHING_SHARE / share, f"{share:.1%} of the processor time"),
    ]


def _hashing_seconds(folder: Path) -> float:
    """Processor seconds of every digest that a build computes: of blocks, and of files."""
    dataset = Dataset.open(folder)
    total = 0.0
    for name, info in dataset.index.splits.items():
        split = dataset.split(name)
        for first in range(0, len(split), BLOCK_UNITS):
            columns = split.columns(np.arange(first, min(first + BLOCK_UNITS, len(split))))
            started = time.process_time()
            block_digest(columns)
            total += time.process_time() - started
        started = time.process_time()
        for shard in info.shards:
            sha256_file(folder / shard.file)
        total += time.process_time() - started
    return total


def memory(folder: Path, *, quick: bool) -> list[Ratio]:
    """Peak memory of making a large dataset and of reading through it, beside those of a small one."""
    small, large = (20_000, 60_000) if quick else (100_000, 2_000_000)
    made, read = [], []
    for train in (small, large):
        out = folder / f"memory-{train}"
        made.append(build(out, train, CORES).peak_mib)
        with subprocess.Popen([sys.executable, "-c", _READ, str(out)], stdout=subprocess.DEVNULL) as process:
            read.append(Watch(process).peak_mib)
        shutil.rmtree(out)
    ratios = []
    for name, peaks in (("memory", made), ("reading memory", read)):
        found = f"{peaks[0]:,.0f} MiB for {small:,} examples, {peaks[1]:,.0f} MiB for {large:,}"
        ratios.append(Ratio(name, MEMORY_GROWTH * peaks[0] / peaks[1], found))
    return ratios


# One epoch of a training, without the training.
_READ = """
import sys
from pathlib import Path
from hopline.config import TrainingConfig
from hopline.datasets import Dataset
from hopline.training import SplitBatches
dataset = Dataset.open(Path(sys.argv[1]))
split = dataset.split("train")
config = TrainingConfig(batch_size=512)
batches = SplitBatches(split, config, num_relations=dataset.vocabulary.num_relations)
print(sum(chunk.batch.num_graphs for step in range(-(-len(split) // 512)) for chunk in batches.step(step).chunks))
"""


def reading(folder: Path, *, quick: bool) -> list[Ratio]:
    """Random batches from the files, beside a loop over examples and beside torch-geometric, which have theirs in memory."""
    try:
        from torch_geometric.data import Batch
    except ImportError as error:
        raise SystemExit(f"the part 'reading' needs torch-geometric ({error}): pip install -e '.[bench]'") from None
    torch.set_num_threads(1)
    out = folder / "reading"
    build(out, 20_000 if quick else 100_000, CORES)
    dataset = Dataset.open(out)
    split, relations = dataset.split("train"), dataset.vocabulary.num_relations
    rng = np.random.default_rng(0)
    known = rng.integers(0, len(split), 1024)
    examples = [split.batch(known[place : place + 1]) for place in range(len(known))]
    for units in np.array_split(np.arange(len(split)), len(split) // BATCH):
        split.batch(units)  # so that all have been mapped, as after the first epoch of a training
    rows = [example.num_graphs for example in examples]
    whole = [row for example in examples for row in geometric_graphs(example)]
    bare = [bare_graph(row) for row in whole]

    def batch() -> tuple[float, int]:
        units = rng.integers(0, len(split), BATCH)
        return _seconds(split.batch, units), int(split.sizes(units).rows.sum())

    def collated() -> tuple[float, int]:
        columns = split.columns(rng.integers(0, len(split), BATCH))
        return _seconds(lambda given: collate(given, num_relations=relations), columns), columns.num_rows

    def joined() -> tuple[float, int]:
        chosen = rng.integers(0, len(examples), BATCH).tolist()
        return _seconds(join_examples, [examples[i] for i in chosen]), sum(rows[i] for i in chosen)

    def from_list(graphs: list[Any], owners: Sequence[str] = ()) -> tuple[float, int]:
        chosen = rng.integers(0, len(graphs), BATCH).tolist()
        return _seconds(lambda given: Batch.from_data_list(given, list(owners)), [graphs[i] for i in chosen]), BATCH

    works: dict[str, Callable[[], tuple[float, int]]] = {
        "ours": batch,
        "collated": collated,
        "loop": joined,
        "geometric": lambda: from_list(whole, OWNED),
        "bare": lambda: from_list(bare),
    }
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(10 if quick else 40):
        for name, work in works.items():
            # The best of a few: whoever shares the machine takes the caches away in between.
            rates[name].append(max(count / seconds for seconds, count in (work() for _ in range(9))))
    shutil.rmtree(out)
    rate = {name: statistics.median(values) for name, values in rates.items()}
    ours, loop, geometric, alone = (rate[name] for name in ("ours", "loop", "geometric", "collated"))
    found = f"{ours:,.0f} graphs a second of one core, {ours / loop:.1f} times a loop ({loop:,.0f}/s)"
    beside = (
        f"{alone / geometric:.1f} times Batch.from_data_list ({geometric:,.0f}/s), {ours / geometric:.1f} times with "
    )
    beside += f"reading; {alone / rate['bare']:.1f} times where its graphs have but nodes, edges and types"
    return [
        Ratio("reading", max(ours / GRAPHS_PER_SECOND, ours / loop / LOOP_RATIO), found),
        Ratio("geometric", alone / geometric / GEOMETRIC_RATIO, beside),
    ]


def _seconds(work: Callable[[Any], object], given: object) -> float:
    """Processor seconds of one call."""
    started = time.process_time()
    work(given)
    return time.process_time() - started


PARTS: dict[str, Callable[..., list[Ratio]]] = {"generation": generation, "memory": memory, "reading": reading}
"""What is measured, part by part: each gets an empty folder and ``quick``, and cleans up what is large."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run of about a minute")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory() as name:
        for part in options.only:
            ratios += PARTS[part](Path(name), quick=options.quick)
    width = max(len(ratio.name) for ratio in ratios)
    print(f"{'':{width}}  ratio")
    for ratio in ratios:
        print(f"{ratio.name:{width}}  {ratio.value:5.2f}  {ratio.found}")
    print(json.dumps({ratio.name: round(ratio.value, 3) for ratio in ratios}))
    return int(any(ratio.value < 1 for ratio in ratios))


if __name__ == "__main__":
    raise SystemExit(main())
