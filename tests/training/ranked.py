"""Trainings of several processes: ``ranked.py DATASET FOLDER WORLD SCENARIO...``; the tests run it.

Each scenario has processes of its own, forked before torch has started any thread. A rank writes what its scenario returns
to ``FOLDER/SCENARIO-WORLD/rank-<r>.pt``.
"""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # here once: else every child would load it with its first step
import torch._inductor.config
from conftest import Bench
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector

from hopline.datasets import Dataset
from hopline.errors import HoplineError, TerminatedError
from hopline.evaluation import run_evaluation
from hopline.model import build_model
from hopline.training import GraphTrainer, SplitBatches, World, seed_everything, setup_distributed

STILL = {"dropout": 0.0}


class Ranked(Bench):
    """Trainings of this process among the others."""

    world: World

    def trainer(self, config=None, **options: Any) -> GraphTrainer:
        config = config or self.config()
        return GraphTrainer(
            self.model(config), config, "cpu", distributed=self.world.size > 1, sink=self.events, **options
        )

    def batches(self, config=None, split: str = "train") -> SplitBatches:
        config = config or self.config()
        return SplitBatches(
            self.dataset.split(split),
            config.training,
            num_relations=self.dataset.vocabulary.num_relations,
            rank=self.world.rank,
            world=self.world.size,
            equal_chunks=config.training.parallelism == "fsdp",
        )


def result(trainer: GraphTrainer, **more: Any) -> dict[str, Any]:
    return {
        "weights": trainer.weights(),
        "state": trainer.state.model_dump(),
        "log": trainer.log.to_bytes(),
        "messages": [(event.kind, event.message) for event in trainer._sink.all if event.message],
        **more,
    }


def steps(bench: Ranked, mode: str, count: int, **training: Any) -> dict[str, Any]:
    """Losses of some steps, and the ids that this rank had."""
    config = bench.config(STILL, parallelism=mode, max_steps=50, log_every=count, **training)
    trainer, ids, units = bench.trainer(config), [], []
    losses, norms = [], []
    batches = bench.batches(config)
    exchanges: list[str] = []
    for step in range(count):
        if step == 1:
            exchanges = counted_exchanges()
        mine = batches.step(step)
        ids.append([i for c in mine.chunks if c.weight for i in c.batch.example_id[~c.batch.is_twin].tolist()])
        units.append(mine.units.tolist())
        output = trainer.train_step(mine)
        losses.append(output.loss)
        norms.append(output.grad_norm)
    exchanges = exchanges.copy()  # before anything else is exchanged
    gradients = None
    if mode != "fsdp":
        gradients = parameters_to_vector([p.grad for p in trainer.model.parameters()])
    buckets = isinstance(trainer._step._run, DistributedDataParallel)
    more = {"exchanges": exchanges, "buckets": buckets}
    return result(trainer, losses=losses, norms=norms, ids=ids, units=units, gradients=gradients, **more)


def counted_exchanges() -> list[str]:
    """A list that grows by a name whenever this process itself exchanges something; what DDP sends is not seen."""
    names: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(dist, name)

        def exchange(*arguments: Any, **options: Any) -> Any:
            names.append(name)
            return original(*arguments, **options)

        return exchange

    for name in ("all_reduce", "broadcast", "all_gather", "all_gather_object", "broadcast_object_list", "barrier"):
        setattr(dist, name, counted(name))
    return names


def ddp(bench: Ranked) -> dict[str, Any]:
    return steps(bench, "ddp" if bench.world.size > 1 else "none", 50 if bench.world.size <= 2 else 6)


def fsdp(bench: Ranked) -> dict[str, Any]:
    return steps(bench, "fsdp", 50)


def small(bench: Ranked) -> dict[str, Any]:
    """Fewer examples than ranks: some have nothing in a step."""
    return steps(bench, "ddp" if bench.world.size > 1 else "none", 3, batch_size=1)


def small_fsdp(bench: Ranked) -> dict[str, Any]:
    return steps(bench, "fsdp", 3, batch_size=1)


def chunked(bench: Ranked) -> dict[str, Any]:
    """Parts of one or two rows: ranks have different numbers of them, and gradients travel once."""
    return steps(bench, "ddp" if bench.world.size > 1 else "none", 3, backward_chunk_size=2)


def chunked_fsdp(bench: Ranked) -> dict[str, Any]:
    return steps(bench, "fsdp", 3, backward_chunk_size=2)


def dropout(bench: Ranked) -> dict[str, Any]:
    """What this rank's generator gives when the model begins its first two steps, and its first step again."""
    config = bench.config(parallelism="ddp")
    trainer = bench.trainer(config)
    masks: list[torch.Tensor] = []

    def look(*_: Any) -> None:
        state = torch.get_rng_state()
        masks.append(torch.rand(8))
        torch.set_rng_state(state)

    trainer.model.register_forward_pre_hook(look)
    batches = bench.batches(config)
    found = []
    for step in (0, 1, 0):
        trainer.state.step = step
        masks.clear()
        trainer.train_step(batches.step(step))
        found.append(masks[0])
    return {"masks": found}


def parted(bench: Ranked) -> dict[str, Any]:
    """Every rank builds other weights; the main one's count, its buffers too."""
    config = bench.config(STILL, parallelism="ddp", link_head="mlp", max_steps=2)
    seed_everything(100 + bench.world.rank, deterministic=True)
    model = build_model(config, bench.dataset.vocabulary)
    model.register_buffer("constant", torch.full((2,), float(bench.world.rank)))
    own = parameters_to_vector(model.parameters()).detach().clone()
    trainer = GraphTrainer(model, config, "cpu", distributed=True, sink=bench.events)
    first = parameters_to_vector(model.parameters()).detach().clone()
    trainer.train_step(bench.batches(config).step(0))
    last = parameters_to_vector(model.parameters()).detach().clone()
    again = setup_distributed(torch.device("cpu")) is bench.world is trainer.world
    return {"own": own, "first": first, "last": last, "constant": model.constant, "again": again}


def parted_fsdp(bench: Ranked) -> dict[str, Any]:
    """The same where every rank keeps its own part: it has to be a part of the main one's weights."""
    config = bench.config(STILL, parallelism="fsdp", link_head="mlp", max_steps=2)
    seed_everything(100 + bench.world.rank, deterministic=True)
    model = build_model(config, bench.dataset.vocabulary)
    own = {name: value.clone() for name, value in model.state_dict().items()}
    return {"own": own, "first": GraphTrainer(model, config, "cpu", distributed=True).weights()}


def run(bench: Ranked, mode: str, name: str = "run", **options: Any) -> GraphTrainer:
    config = bench.config(parallelism=mode if bench.world.size > 1 else "none", **options.pop("training", {}))
    return bench.run(config, name=name, **options)


def whole(bench: Ranked) -> dict[str, Any]:
    return result(run(bench, "ddp"), states=bench.states().committed())


def whole_fsdp(bench: Ranked) -> dict[str, Any]:
    return result(run(bench, "fsdp"), states=bench.states().committed())


def stopped(bench: Ranked) -> dict[str, Any]:
    """One rank is asked to stop; all stop at the same step, and the run continues from there."""
    last = bench.world.size - 1
    asked = {"step": -1}

    def on_step(output) -> None:
        asked["step"] = output.step

    try:
        run(
            bench,
            "ddp",
            stop=lambda: bench.world.rank == last and asked["step"] >= 5,
            on_step=on_step,
        )
    except TerminatedError as error:
        message = str(error)
    states = bench.states().committed()
    return result(run(bench, "ddp"), message=message, states=states)


def content(bench: Ranked) -> dict[str, Any]:
    """One rank's on_step ends training."""
    trainers: list[GraphTrainer] = []
    config = bench.config(parallelism="ddp")
    trainer = bench.trainer(config)
    trainers.append(trainer)

    def on_step(output) -> None:
        if bench.world.rank == 1 and output.step == 6:
            trainer.stop_reason = "rank 1 is content"

    reason = trainer.train(bench.batches(config), on_step=on_step)
    return result(trainer, reason=reason)


def apart(bench: Ranked) -> dict[str, Any]:
    """Every rank measures something else: by its own figures the last one would have stopped after two evaluations."""
    signs = {0: 1.0}
    trainer = run(bench, "ddp", training={"patience": 1}, score=lambda step: signs.get(bench.world.rank, -1.0) * step)
    return result(trainer, states=bench.states().committed())


def poisoned(bench: Ranked) -> dict[str, Any]:
    """One rank's gradient is not a number in one step: no rank applies the update."""
    config = bench.config(STILL, parallelism="ddp")
    trainer = bench.trainer(config)
    batches = bench.batches(config)
    parameter = next(p for p in trainer.model.parameters() if p.ndim > 1)
    handle = parameter.register_hook(lambda grad: grad * (math.nan if bench.world.rank == 1 else 1.0))
    output = trainer.train_step(batches.step(0))
    handle.remove()
    verdicts = [output.verdict, trainer.train_step(batches.step(1)).verdict]
    return result(trainer, verdicts=verdicts)


def evaluated(bench: Ranked) -> dict[str, Any]:
    """The split is measured together; uneven, so that a rank has no batch in the last round."""
    config = bench.config(STILL, parallelism="ddp" if bench.world.size > 1 else "none")
    trainer = bench.trainer(config)
    figures = run_evaluation(
        trainer.reasoner, bench.dataset.split("valid"), batch_size=5, peers=bench.world, stop=lambda: False
    ).metrics
    try:
        last = bench.world.size - 1
        run_evaluation(
            trainer.reasoner,
            bench.dataset.split("valid"),
            batch_size=5,
            peers=bench.world,
            stop=lambda: bench.world.rank == last,
        )
    except TerminatedError as error:
        return {"metrics": figures, "message": str(error)}
    return {"metrics": figures}


def disk_full(bench: Ranked) -> dict[str, Any]:
    """The last rank cannot store its files in its first try: no rank takes the state for saved."""
    from hopline.errors import StoreError
    from hopline.training import Checkpoints

    original, tries = Checkpoints.put, 0

    def put(self, step: int, name: str, path: Path):
        nonlocal tries
        tries += 1
        if bench.world.rank == bench.world.size - 1 and tries == 1:
            raise StoreError("cannot write: the disk is full")
        return original(self, step, name, path)

    Checkpoints.put = put
    trainer = run(bench, "ddp")
    return result(trainer, states=bench.states().committed())


def no_room(bench: Ranked) -> dict[str, Any]:
    """The last rank has no room for its temporary files when it first saves, nor when it first restores."""
    import tempfile

    original, asked = tempfile.mkdtemp, 0

    def mkdtemp(*arguments: Any, **options: Any) -> str:
        nonlocal asked
        checkpoint = str(options.get("prefix") or arguments[1:2]).find("hopline-checkpoint-") >= 0
        asked += checkpoint
        if checkpoint and asked == 1 and bench.world.rank == bench.world.size - 1:
            raise OSError(28, "No space left on device")
        return original(*arguments, **options)

    tempfile.mkdtemp = mkdtemp
    trainer = run(bench, "ddp")
    saved, asked = bench.states().committed(), 0
    again = bench.trainer(bench.config(parallelism="ddp"))
    again.load_checkpoint(bench.states())
    messages = [event.message for event in again._sink.all if event.message]
    return result(trainer, states=saved, restored=again.step, told=messages)


def unreadable(bench: Ranked) -> dict[str, Any]:
    """One rank cannot read the newest state: all take the one before."""
    from hopline.errors import StoreError
    from hopline.training import Checkpoints

    run(bench, "ddp")
    original = Checkpoints.fetch

    def fetch(self, step: int, file, path: Path) -> None:
        if bench.world.rank == bench.world.size - 1 and step == 12:
            raise StoreError("cannot read: input/output error")
        original(self, step, file, path)

    Checkpoints.fetch = fetch
    trainer = bench.trainer(bench.config(parallelism="ddp"))
    trainer.load_checkpoint(bench.states())
    restored = trainer.step
    Checkpoints.fetch = original
    return result(run(bench, "ddp"), restored=restored)


def hand_over(bench: Ranked, mode: str) -> dict[str, Any]:
    """Leave a state of step 8, and say how the run would have gone on."""
    config = bench.config(STILL, parallelism=mode if bench.world.size > 1 else "none", max_steps=16)
    trainer = bench.trainer(config)
    batches = bench.batches(config)
    for step in range(8):
        trainer.train_step(batches.step(step))
    saved = {name: value.clone() for name, value in trainer.weights().items()}
    trainer.save_checkpoint(bench.states())
    losses = [trainer.train_step(batches.step(step)).loss for step in range(8, 16)]
    return result(trainer, saved=saved, losses=losses)


def take_over(bench: Ranked, mode: str) -> dict[str, Any]:
    """Continue the state that another number of processes has left: two go on with that of one, and one with that of two."""
    origin = "handed_ddp-1" if bench.world.size > 1 else f"handed_{mode}-2"
    bench.folder = bench.folder.parent / origin
    trainer = bench.trainer(bench.config(STILL, parallelism=mode if bench.world.size > 1 else "none", max_steps=16))
    digest = trainer.load_checkpoint(bench.states())
    restored = {name: value.clone() for name, value in trainer.weights().items()}
    moments = trainer.optimizer.state_dict()["state"]
    losses = [trainer.train_step(bench.batches(trainer.config).step(step)).loss for step in range(8, 16)]
    return result(trainer, digest=digest, restored=restored, losses=losses, steps=len(moments))


def handed_ddp(bench: Ranked) -> dict[str, Any]:
    return hand_over(bench, "ddp")


def handed_fsdp(bench: Ranked) -> dict[str, Any]:
    return hand_over(bench, "fsdp")


def continued_ddp(bench: Ranked) -> dict[str, Any]:
    return take_over(bench, "ddp")


def continued_fsdp(bench: Ranked) -> dict[str, Any]:
    return take_over(bench, "fsdp")


def again(bench: Ranked) -> dict[str, Any]:
    """The same as ``whole``, once more."""
    return whole(bench)


def refused(bench: Ranked) -> dict[str, Any]:
    """Several processes and no word about how they share the training."""
    try:
        bench.trainer(bench.config(parallelism="none"))
    except HoplineError as error:
        return {"message": str(error)}
    return {}


SCENARIOS: dict[str, Callable[[Ranked], dict[str, Any]]] = {
    function.__name__: function
    for function in (
        ddp, fsdp, small, small_fsdp, chunked, chunked_fsdp, dropout, parted, parted_fsdp, whole, whole_fsdp, stopped,
        content, apart, poisoned, evaluated, disk_full, no_room, unreadable, refused, again, handed_ddp,
        handed_fsdp, continued_ddp, continued_fsdp,
    )
}  # fmt: skip


def take_part(dataset: str, folder: Path, scenario: str, rank: int, size: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    np.random.seed(0)
    bench = Ranked(Dataset.open(Path(dataset)), folder / f"{scenario}-{size}")
    bench.world = setup_distributed(torch.device("cpu"))
    found = SCENARIOS[scenario](bench)
    path = folder / f"{scenario}-{size}" / f"rank-{rank}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(found, path)


def main(dataset: str, folder: str, size: str, *scenarios: str) -> None:
    for scenario in scenarios:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        children = []
        for rank in range(int(size)):
            child = os.fork()
            if not child:
                take_part(dataset, Path(folder), scenario, rank, int(size), port)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
            children.append(child)
        for rank, child in enumerate(children):
            _, status = os.waitpid(child, 0)
            if status:
                raise SystemExit(f"{scenario}: rank {rank} ended with status {status}")


if __name__ == "__main__":
    main(*sys.argv[1:])
