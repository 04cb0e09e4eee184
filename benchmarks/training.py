"""How fast a training step is, beside other ways to write it.

    python benchmarks/training.py            every part, some minutes
    python benchmarks/training.py --quick    a smoke run of about a minute
    python benchmarks/training.py --only step

step: every contender trains on the same examples in the same order, 128 a step, with two threads, by turns; what is compared
are medians of the seconds of a step. Either both threads are for the kernels, or one makes the batches meanwhile: where both
are possible both are measured, and the faster one counts. Targets (ratios, at least):

    reference   8.0   a forward pass and a loss for each example, one backward pass for each chunk of 32 (rows made ahead;
                      one thread, because two make it slower)
    fused       3.0   one forward pass for all examples, then a loss for each
    pyg         1.7   the model with torch-geometric's GINE layers, scatter and softmax, Batch.from_data_list in a DataLoader
                      (in the process or by a worker process), under Lightning, no log, no checkpoints

ranks: what several processes and saved states cost, one thread for each process.

    ranks       1.7   2 gloo ranks (DDP) against 1 process, seconds of a step over the same batches
    evaluation  1.7   the same processes, an evaluation
    checkpoint  0.97  seconds of 150 steps without states, over seconds with a state saved every 50 steps

Printed beside them: examples and messages a second, and how much of the memory's copy bandwidth the messages take, were each
of them read and written once in either pass (16 bytes a number). The rest goes to what the model computes at nodes, paths
and rows, to the losses and to the optimizer.

A table of ratios, then one line of JSON with them; exit code 1 if one is below its target.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as where Hopline trains: waiting threads spin for a moment only

import numpy as np
import torch
from torch.nn import functional as F

from hopline.config import DatasetConfig, ExampleCounts, GraphConfig, ModelConfig, TrainingConfig
from hopline.datasets import BatchSampler, Dataset, build_dataset, take_rows
from hopline.graph import GraphBatch, collate
from hopline.model import Forward, GraphModel, build_model
from hopline.storage import open_store
from hopline.training import Checkpoints, GraphTrainer, MultiTaskLoss, SplitBatches
from hopline.training.optimizer import build_optimizer
from hopline.training.supervision import build_loss_inputs
from hopline.training.throughput import copy_bandwidth, message_bytes

BATCH = 128
CHUNK = 32
TARGETS = {"reference": 8.0, "fused": 3.0, "pyg": 1.7, "ranks": 1.7, "evaluation": 1.7, "checkpoint": 0.97}


@dataclass(frozen=True, slots=True)
class Ratio:
    """One target: how much faster Hopline is, and what was measured, in words."""

    name: str
    value: float
    target: float
    found: str


@dataclass(frozen=True, slots=True)
class Work:
    """What everybody trains on, and the steps so far.

    Attributes:
        examples: the rows of each example, each as a batch of its own: one, or a missing one and its twin.
        order: the examples of each step.
    """

    dataset: Dataset
    config: GraphConfig
    examples: list[list[GraphBatch]]
    order: list[list[int]]

    @property
    def relations(self) -> int:
        return self.dataset.vocabulary.num_relations

    def model(self) -> GraphModel:
        torch.manual_seed(0)
        return build_model(self.config, self.dataset.vocabulary)


def make_work(folder: Path, *, examples: int, hidden_dim: int, steps: int) -> Work:
    data = DatasetConfig(examples=ExampleCounts(train=examples, valid=8, calibration=8, test=8))
    config = GraphConfig(
        name="benchmark",
        dataset=data,
        model=ModelConfig(hidden_dim=hidden_dim, layers=4),
        training=TrainingConfig(
            batch_size=BATCH, backward_chunk_size=2 * BATCH, max_steps=100_000, deterministic=False, checkpoint_every=0
        ),
    )
    if not (folder / "index.json").exists():
        build_dataset(data, folder)
    dataset = Dataset.open(folder)
    split = dataset.split("train")
    sampler = BatchSampler(len(split), BATCH, config.training.seed)
    rows = []
    for unit in range(len(split)):
        columns = split.columns(np.array([unit]))
        parts = [take_rows(columns.values, columns.offsets, np.array([row])) for row in range(columns.num_rows)]
        rows.append([collate(part, num_relations=dataset.vocabulary.num_relations) for part in parts])
    return Work(dataset, config, rows, [sampler.units(step).tolist() for step in range(steps)])


class Contender:
    """Somebody who can do steps with some threads for the kernels; ``seconds`` of each so far."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads = f"{name}, {threads} for kernels", threads
        self.seconds: list[float] = []
        self.done = 0

    def run(self, steps: int) -> None:
        """Do some steps, and take the time of all but the first, which warms up."""
        torch.set_num_threads(self.threads)
        times = self.steps(self.done, self.done + 1 + steps)
        self.done += 1 + steps
        self.seconds += times[-steps:]

    def steps(self, start: int, stop: int) -> list[float]:
        raise NotImplementedError

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Hopline(Contender):
    """The trainer as it is used, batches made ahead by its thread."""

    def __init__(self, work: Work, threads: int) -> None:
        super().__init__("hopline", threads)
        self.trainer = GraphTrainer(work.model(), work.config, "cpu")
        self.batches = SplitBatches(work.dataset.split("train"), work.config.training, num_relations=work.relations)

    def steps(self, start: int, stop: int) -> list[float]:
        ends = [time.perf_counter()]
        self.trainer.train(self.batches, limit=stop, on_step=lambda _: ends.append(time.perf_counter()))
        return [b - a for a, b in itertools.pairwise(ends)]


class Loop(Contender):
    """A loop over steps around a forward and backward pass over all examples of one."""

    def __init__(
        self, name: str, work: Work, threads: int, backward: Callable[[Loop, list[list[GraphBatch]], int], None]
    ) -> None:
        super().__init__(name, threads)
        self.work, self.backward = work, backward
        self.model = work.model()
        self.optimizer = build_optimizer(self.model, work.config.training)
        self.loss = MultiTaskLoss(work.config.loss)

    def steps(self, start: int, stop: int) -> list[float]:
        times = []
        for step in range(start, stop):
            begin = time.perf_counter()
            self.optimizer.zero_grad(set_to_none=True)
            self.backward(self, [self.work.examples[i] for i in self.work.order[step]], step)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.work.config.training.grad_clip)
            self.optimizer.step()
            times.append(time.perf_counter() - begin)
        return times

    def score(self, row: GraphBatch, forward: Forward, step: int, divisor: int) -> torch.Tensor:
        """The loss of one row, as if it were a batch."""
        inputs = build_loss_inputs(self.model, row, forward, seed=self.work.config.training.seed, step=step)
        return self.loss(inputs, divisor=divisor).total

    def margin(self, missing: Forward, twin: Forward) -> torch.Tensor:
        """The loss of a missing row against its twin."""
        config = self.work.config.loss
        return (
            config.weights.pair_margin * F.relu(config.pair_margin - twin.support_logit + missing.support_logit).sum()
        )


def reference(self: Loop, examples: list[list[GraphBatch]], step: int) -> None:
    """Each row alone; the backward pass for the sum of a chunk."""
    rows = sum(map(len, examples))
    for start in range(0, len(examples), CHUNK):
        losses = []
        for example in examples[start : start + CHUNK]:
            forwards = [self.model.forward_batch(row) for row in example]
            losses += [self.score(row, out, step, rows) for row, out in zip(example, forwards, strict=True)]
            if len(forwards) == 2:
                losses.append(self.margin(*forwards) / rows)
        torch.stack(losses).sum().backward()


def fused(self: Loop, examples: list[list[GraphBatch]], step: int) -> None:
    """All rows in one forward pass; each has its loss, and its part of the outputs, of its own."""
    flat = [row for example in examples for row in example]
    split = self.work.dataset.split("train")
    batch = collate(split.columns(np.array(self.work.order[step])), num_relations=self.work.relations)
    parts = cut(self.model.forward_batch(batch), flat)
    losses = [self.score(row, part, step, len(flat)) for row, part in zip(flat, parts, strict=True)]
    place = 0
    for example in examples:
        if len(example) == 2:
            losses.append(self.margin(parts[place], parts[place + 1]) / len(flat))
        place += len(example)
    torch.stack(losses).sum().backward()


BY_NODE = {"entity_order", "node_states", "entity_logits"}
BY_PATH = {"selection_logits", "selection_labels", "path_attention"}
BY_STEP = {"next_hop_logits", "next_hop_labels", "hop_relation_logits", "hop_relation_labels", "hop_graph"}
BY_LINK = {"ranking_logits", "bilinear_logits", "ranking_graph"}
BY_QUESTION = {"relation_logits", "relation_graph"}


def cut(forward: Forward, rows: Sequence[GraphBatch]) -> list[Forward]:
    """The outputs of each row, as if it had been alone."""
    places = dict.fromkeys(("node", "path", "step", "link", "question", "row"), 0)
    found = []
    for row in rows:
        sizes = {
            "node": row.num_nodes, "path": row.num_paths, "step": row.num_supporting_steps, "link": 0,
            "question": row.num_relation_queries, "row": 1,
        }  # fmt: skip
        values = {}
        for field in fields(Forward):
            value, name = getattr(forward, field.name), field.name
            groups = (
                ("node", BY_NODE),
                ("path", BY_PATH),
                ("step", BY_STEP),
                ("link", BY_LINK),
                ("question", BY_QUESTION),
            )
            group = next((group for group, names in groups if name in names), "row")
            part = value[places[group] : places[group] + sizes[group]]
            values[name] = torch.zeros_like(part) if name.endswith("_graph") else part
        found.append(replace(forward, **values))
        places = {group: place + sizes[group] for group, place in places.items()}
    return found


class Pyg(Contender):
    """torch-geometric under Lightning."""

    def __init__(self, work: Work, threads: int, workers: int) -> None:
        from benchmarks.peers.pyg_data import Rows
        from benchmarks.peers.pyg_model import PygModel
        from benchmarks.peers.pyg_training import Reasoner

        super().__init__(f"pyg, {workers} workers", threads)
        torch.manual_seed(0)
        self.work, self.workers = work, workers
        self.rows = Rows(work.examples)
        self.reasoner = Reasoner(PygModel(work.config.model, work.relations), work.config)
        self.parameters = sum(parameter.numel() for parameter in self.reasoner.parameters())

    def steps(self, start: int, stop: int) -> list[float]:
        from benchmarks.peers.pyg_training import train

        return train(self.rows, self.work.order[start : stop + 1], self.reasoner, self.workers)


def measure_steps(work: Work, *, rounds: int, steps: int) -> list[Ratio]:
    """By turns: each contender some steps, so that a busy moment of the machine meets them all."""
    mine = [Hopline(work, threads) for threads in (1, 2)]
    peers: list[tuple[str, Contender, int]] = [
        ("reference", Loop("reference", work, 1, reference), max(1, steps // 8)),
        *(("fused", Loop("fused", work, threads, fused), max(1, steps // 4)) for threads in (1, 2)),
        *(("pyg", Pyg(work, threads, workers), steps) for threads, workers in ((2, 0), (1, 1))),
    ]
    for _ in range(rounds):
        for contender in mine:
            contender.run(steps)
        for _, peer, count in peers:
            peer.run(count)
    for contender in [*mine, *(peer for _, peer, _ in peers)]:
        print(f"  {contender.name:30} {contender.median * 1e3:8.1f} ms a step", file=sys.stderr)
    ours = min(mine, key=lambda contender: contender.median)
    sizes = [ours.batches.step(step).chunks for step in range(8)]
    messages = statistics.mean(2 * sum(chunk.batch.num_edges for chunk in chunks) for chunks in sizes) / ours.median
    moved = messages * message_bytes(work.config.model.layers, work.config.model.hidden_dim)
    limit = copy_bandwidth(torch.device("cpu"))
    print(
        f"hopline: {BATCH / ours.median:,.0f} examples/s, {messages:,.0f} messages/s, {moved / limit:.1%} of the copy "
        f"bandwidth ({limit / 1e9:.1f} GB/s); {sum(p.numel() for p in ours.trainer.model.parameters()):,} parameters "
        f"(pyg {peers[-1][1].parameters:,})"  # type: ignore[attr-defined]
    )
    ratios = []
    for name in ("reference", "fused", "pyg"):
        best = min((peer for kind, peer, _ in peers if kind == name), key=lambda peer: peer.median)
        found = f"{best.name} {BATCH / best.median:,.0f} examples/s, hopline {BATCH / ours.median:,.0f}"
        ratios.append(Ratio(name, best.median / ours.median, TARGETS[name], found))
    return ratios


def measure_ranks(work: Work, folder: Path, *, rounds: int, steps: int) -> list[Ratio]:
    """One process and two, by turns."""
    from benchmarks.peers.ranks import measure

    units = min(len(work.examples), 64 * steps)
    found = {
        world: [measure(work.config, folder, world=world, steps=steps, units=units) for _ in range(rounds)]
        for world in (1, 2)
    }
    (step, evaluation), (shared_step, shared_evaluation) = (
        [statistics.median(column) for column in zip(*found[world], strict=True)] for world in (1, 2)
    )
    return [
        Ratio(
            "ranks",
            step / shared_step,
            TARGETS["ranks"],
            f"1 rank {step * 1e3:.1f} ms, 2 ranks {shared_step * 1e3:.1f}",
        ),
        Ratio(
            "evaluation",
            evaluation / shared_evaluation,
            TARGETS["evaluation"],
            f"{units} units: 1 rank {evaluation:.2f} s, 2 ranks {shared_evaluation:.2f}",
        ),
    ]


def measure_checkpoints(work: Work, scratch: Path, *, rounds: int, every: int) -> Ratio:
    """The same steps with and without states, by turns; three states within the time that is taken."""
    torch.set_num_threads(1)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for saved in (False, True):
            training = work.config.training.model_copy(update={"checkpoint_every": every})
            config = work.config.model_copy(update={"training": training})
            trainer = GraphTrainer(work.model(), config, "cpu")
            batches = SplitBatches(work.dataset.split("train"), training, num_relations=work.relations)
            states = Checkpoints(open_store(str(scratch / f"states-{number}")), "checkpoints") if saved else None
            ends: list[float] = []
            trainer.train(
                batches,
                checkpoints=states,
                limit=every // 10 + 3 * every + 1,
                on_step=lambda _, ends=ends: ends.append(time.perf_counter()),
            )
            seconds[saved].append(ends[every // 10 + 3 * every] - ends[every // 10])
    without, with_states = (statistics.median(seconds[saved]) for saved in (False, True))
    found = f"{3 * every} steps {without:.2f} s, with a state every {every} {with_states:.2f} s"
    return Ratio("checkpoint", without / with_states, TARGETS["checkpoint"], found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke run of about a minute")
    parser.add_argument("--hidden-dim", type=int, default=40, help="40 makes about 130,000 parameters")
    parser.add_argument("--only", nargs="+", choices=["step", "ranks"], help="parts to run")
    parser.add_argument("--data", type=Path, help="where the dataset is kept between runs")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="lightning|torch_geometric|torch.utils.data")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rounds, steps = (2, 8) if options.quick else (7, 16)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.data or Path(scratch) / "data"
        examples = 1024 if options.quick else 4096
        work = make_work(folder, examples=examples, hidden_dim=options.hidden_dim, steps=rounds * (steps + 2) + 2)
        parts = options.only or ["step", "ranks"]
        ratios: list[Ratio] = []
        if "step" in parts:
            ratios += measure_steps(work, rounds=rounds, steps=steps)
        if "ranks" in parts:
            ratios += measure_ranks(work, folder, rounds=1 if options.quick else 3, steps=3 * steps)
            ratios.append(measure_checkpoints(work, Path(scratch), rounds=1 if options.quick else 3, every=50))
    print(f"\n{'part':12} {'ratio':>7} {'target':>7}   found   ({os.cpu_count()} processors)")
    for ratio in ratios:
        mark = "" if ratio.value >= ratio.target else "   below"
        print(f"{ratio.name:12} {ratio.value:7.2f} {ratio.target:7.2f}   {ratio.found}{mark}")
    print(json.dumps({ratio.name: round(ratio.value, 3) for ratio in ratios}))
    return 0 if all(ratio.value >= ratio.target for ratio in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
