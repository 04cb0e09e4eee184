"""How fast datasets are made and read, and in how much memory.

    python benchmarks/datasets.py            every part, some minutes
    python benchmarks/datasets.py --quick    a smoke run of about a minute
    python benchmarks/datasets.py --only generation memory

Targets (ratios: what was found over what is wanted, or the other way round where less is better; at least 1.0):

    generation  15,000 examples a second on two cores: drawn, checked, hashed and written; 20-60 nodes, the defaults.
                Counted by processor seconds, because the machine may be shared; seconds on the clock stand beside.
    scaling     two workers make at least 1.8 times as many examples a second as one.
    hashing     the digests of blocks and files take less than a tenth of the processor time of generation.
    memory      making 2,000,000 examples takes at most a tenth more resident memory than making 100,000.

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

import numpy as np

from hopline.config import DatasetConfig, ExampleCounts
from hopline.datasets import Dataset
from hopline.datasets.fingerprint import BLOCK_UNITS, block_digest
from hopline.storage import sha256_file

EXAMPLES_PER_SECOND = 15_000
CORES = 2
SCALING = 1.8
HASHING_SHARE = 0.10
MEMORY_GROWTH = 1.10


@dataclass(frozen=True, slots=True)
class Ratio:
    """One target: ``value`` is at least 1 where it is reached; ``found`` says in words what was measured."""

    name: str
    value: float
    found: str


@dataclass(frozen=True, slots=True)
class Build:
    """What one build took: seconds on the clock and of processors, and the peak of anonymous resident memory in MiB."""

    examples: int
    seconds: float
    processor_seconds: float
    peak_mib: float


# What a build is run in: a process of its own, so that neither its memory nor its time is that of this one.
_BUILD = """
import resource, sys, time
from pathlib import Path
from hopline.config import DatasetConfig
from hopline.datasets import build_dataset
config, out = DatasetConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])
def processor():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
before, started = processor(), time.perf_counter()
build_dataset(config, out)
print(time.perf_counter() - started, processor() - before)
"""


def build(out: Path, train: int, workers: int) -> Build:
    """Make a dataset of the default config in a process of its own."""
    counts = ExampleCounts(train=train, valid=400, calibration=400, test=600)
    config = DatasetConfig(examples=counts, workers=workers)
    command = [sys.executable, "-c", _BUILD, config.model_dump_json(), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = watch_memory(process)
        assert process.stdout is not None
        seconds, processor = map(float, process.stdout.read().split())
    return Build(sum(counts.model_dump().values()), seconds, processor, peak)


def watch_memory(process: subprocess.Popen[str]) -> float:
    """Wait for a process; the peak of the anonymous resident memory of it and its children together, in MiB."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_anonymous, [process.pid, *_children(process.pid)])))
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"a measured process ended with code {process.returncode}")
    return peak / 1024


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


def generation(folder: Path, *, quick: bool) -> list[Ratio]:
    """Speed, scaling and the share of hashing; one and two workers take turns."""
    train, rounds = (40_000, 1) if quick else (160_000, 3)
    runs: dict[int, list[Build]] = {1: [], 2: []}
    for turn in range(rounds):
        for workers, found in runs.items():
            out = folder / f"generation-{workers}-{turn}"
            found.append(build(out, train, workers))
            if (workers, turn) != (1, 0):
                shutil.rmtree(out)
    by_processor, one, two = (
        statistics.median(values)
        for values in (
            [CORES * run.examples / run.processor_seconds for run in runs[2]],
            [run.examples / run.seconds for run in runs[1]],
            [run.examples / run.seconds for run in runs[2]],
        )
    )
    processor = statistics.median(run.processor_seconds for run in runs[1])
    share = _hashing_seconds(folder / "generation-1-0") / processor
    shutil.rmtree(folder / "generation-1-0")
    rates = f"{by_processor:,.0f} examples in a second of {CORES} cores ({two:,.0f} on the clock with two workers)"
    return [
        Ratio("generation", by_processor / EXAMPLES_PER_SECOND, rates),
        Ratio("scaling", two / one / SCALING, f"{two / one:.2f} times from one worker ({one:,.0f}/s) to two"),
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
    """Peak memory of making a large dataset, beside that of a small one."""
    small, large = (20_000, 60_000) if quick else (100_000, 2_000_000)
    peaks = []
    for train in (small, large):
        out = folder / f"memory-{train}"
        peaks.append(build(out, train, CORES).peak_mib)
        shutil.rmtree(out)
    growth = peaks[1] / peaks[0]
    found = f"{peaks[0]:,.0f} MiB for {small:,} examples, {peaks[1]:,.0f} MiB for {large:,}"
    return [Ratio("memory", MEMORY_GROWTH / growth, found)]


PARTS: dict[str, Callable[..., list[Ratio]]] = {"generation": generation, "memory": memory}
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
