"""The step-driven curriculum: a view of the sampler, decided by the step alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hopline.config import CurriculumStage
from hopline.errors import TerminatedError
from hopline.graph import KINDS, QueryKind
from hopline.stages.inputs import dataset_request, train_request
from hopline.training import SplitBatches
from hopline.training.schedule import learning_rate_factor

STAGES = (
    CurriculumStage(until_step=3, max_hops=1),
    CurriculumStage(until_step=6, max_hops=2, kinds=("multi_hop", "count", "link")),
)


class Watched:
    """Batches that remember which units each step drew."""

    def __init__(self, batches: SplitBatches) -> None:
        self._batches = batches
        self.examples_per_step = batches.examples_per_step
        self.units: dict[int, list[int]] = {}

    def step(self, step: int) -> Any:
        batches = self._batches.step(step)
        self.units[step] = batches.units.tolist()
        return batches


def drawn(batches: SplitBatches, steps: int = 10) -> list[list[int]]:
    return [batches.step(step).units.tolist() for step in range(steps)]


def test_a_stage_admits_what_it_says_and_all_of_it(bench) -> None:
    """G18: before its step only chains so long and kinds so named; over time every such unit, then every unit."""
    split = bench.dataset.split("train")
    hops, kinds = np.asarray(split.hops), np.asarray(split.kinds)
    wanted = [KINDS.index(kind) for kind in (QueryKind.MULTI_HOP, QueryKind.COUNT, QueryKind.LINK)]
    admitted = [
        set(np.flatnonzero(hops <= 1).tolist()),
        set(np.flatnonzero((hops <= 2) & np.isin(kinds, wanted)).tolist()),
        set(range(len(split))),
    ]
    long = (CurriculumStage(until_step=40, max_hops=1), STAGES[1].model_copy(update={"until_step": 80}))
    units = drawn(bench.batches(bench.config(curriculum=long)), 120)
    for stage, (first, last) in enumerate([(0, 40), (40, 80), (80, 120)]):
        assert {unit for step in units[first:last] for unit in step} == admitted[stage]


def test_the_draw_of_a_step_depends_on_nothing_before_it(bench) -> None:
    """G18, D32: asked for in any order, by any process, a step has the same examples."""
    config = bench.config(curriculum=STAGES)
    forwards = drawn(bench.batches(config))
    backwards = [bench.batches(config).step(step).units.tolist() for step in reversed(range(10))]
    assert backwards[::-1] == forwards
    other = drawn(bench.batches(bench.config(curriculum=STAGES, seed=1)))
    assert all(a != b for a, b in zip(forwards, other, strict=True))


def test_all_ranks_are_in_the_same_stage(bench) -> None:
    """G18, G20: the global batch of a step is the same on 1, 2 and 4 ranks, which share it without rest."""
    config = bench.config(curriculum=STAGES).training
    split, relations = bench.dataset.split("train"), bench.dataset.vocabulary.num_relations
    whole = drawn(SplitBatches(split, config, num_relations=relations))
    for world in (2, 4):
        ranks = [SplitBatches(split, config, num_relations=relations, rank=r, world=world) for r in range(world)]
        for step in range(8):
            shares = [rank.step(step) for rank in ranks]
            assert all(share.units.tolist() == whole[step] for share in shares)
            ids = [
                i for s in shares for c in s.chunks if c.weight for i in c.batch.example_id[~c.batch.is_twin].tolist()
            ]
            alone = SplitBatches(split, config, num_relations=relations).step(step)
            assert sorted(ids) == sorted(i for c in alone.chunks for i in c.batch.example_id[~c.batch.is_twin].tolist())


def test_after_the_last_stage_the_order_is_that_without_a_curriculum(bench) -> None:
    """G18: a view of the sampler, not of the data: what comes after it begins its own first epoch."""
    plain = drawn(bench.batches(bench.config()))
    assert drawn(bench.batches(bench.config(curriculum=STAGES)), 16)[6:] == plain


def test_skipped_updates_move_neither_stages_nor_the_schedule(bench) -> None:
    """G18, D3: step, learning rate and stage go on although updates are left out as spikes."""
    calm = Watched(bench.batches(bench.config(curriculum=STAGES)))
    skipping = Watched(bench.batches(bench.config(curriculum=STAGES)))
    config = bench.config(curriculum=STAGES, skip_grad_norm=1e-6, skip_minimum=2)
    rates: list[float] = []
    one, other = bench.trainer(bench.config(curriculum=STAGES)), bench.trainer(config)
    one.train(calm)
    other.train(skipping, on_step=lambda output: rates.append(output.learning_rate))
    assert other.skipped_updates == 10
    assert one.skipped_updates == 0
    assert skipping.units == calm.units
    training = config.training
    assert rates == [
        training.learning_rate
        * learning_rate_factor(
            step,
            total_steps=training.max_steps,
            warmup_ratio=training.warmup_ratio,
            floor=training.final_learning_rate_ratio,
        )
        for step in range(12)
    ]


@pytest.mark.parametrize("stopped", [2, 3, 5])
def test_a_stopped_run_continues_in_the_stage_that_it_left(bench, stopped: int) -> None:
    """G18, G54, D32: in the middle of a stage, at its end, and in the next one."""
    config = bench.config(curriculum=STAGES)
    whole, part, rest = (Watched(bench.batches(config)) for _ in range(3))
    bench.trainer(config).train(whole)
    trainer = bench.trainer(config)
    with pytest.raises(TerminatedError):
        trainer.train(part, checkpoints=bench.states(), stop=lambda: trainer.step == stopped)
    bench.resumed(config).train(rest)
    assert min(rest.units) == stopped
    assert rest.units == {step: units for step, units in whole.units.items() if step >= stopped}


def test_a_curriculum_makes_another_run_of_the_same_dataset(bench) -> None:
    """It is no part of the data, and decides the weights."""
    plain, staged = bench.config(), bench.config(curriculum=STAGES)
    source = bench.dataset.index.source
    assert dataset_request(plain.dataset, source).hash == dataset_request(staged.dataset, source).hash
    assert train_request(plain, "0" * 64).hash != train_request(staged, "0" * 64).hash
