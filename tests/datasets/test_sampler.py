"""The order of examples: a permutation without a table, a pure function of seed and step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.config import CurriculumStage
from hopline.datasets import BatchSampler, Dataset, Eligible, UnitSet, epoch_order
from hopline.datasets.sampler import permute
from hopline.errors import ConfigError
from hopline.graph import KINDS


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 2**40), st.integers(0, 1000))
def test_an_epoch_is_a_bijection_for_any_length(length: int, seed: int, epoch: int) -> None:
    assert sorted(epoch_order(seed, epoch, length).tolist()) == list(range(length))


def test_any_position_of_a_huge_set_is_found_alone() -> None:
    length = 12_000_000_007
    positions = np.array([0, 5, length - 1], dtype=np.int64)
    found = permute(positions, length, seed=1, epoch=0)
    assert len(set(found.tolist())) == 3
    assert found.min() >= 0
    assert found.max() < length
    for position, value in zip(positions, found, strict=True):
        assert permute(np.array([position]), length, seed=1, epoch=0).tolist() == [value]


def test_the_order_is_fixed_for_ever_and_differs_by_seed_and_epoch() -> None:
    assert epoch_order(0, 0, 10).tolist() == [4, 7, 5, 8, 9, 2, 6, 1, 0, 3]
    orders = [epoch_order(seed, epoch, 200).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_an_order_is_well_mixed() -> None:
    order = epoch_order(3, 0, 4096)
    assert abs(np.corrcoef(order, np.arange(4096))[0, 1]) < 0.06
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.06


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 25), st.integers(0, 5))
def test_steps_go_through_epoch_after_epoch_and_every_batch_is_full(length: int, batch_size: int, seed: int) -> None:
    sampler = BatchSampler(length, batch_size, seed)
    steps = -(-3 * length // batch_size)
    drawn = np.concatenate([sampler.units(step) for step in range(steps)])
    assert len(drawn) == steps * batch_size
    for epoch in range(3):
        assert drawn[epoch * length : (epoch + 1) * length].tolist() == epoch_order(seed, epoch, length).tolist()


def test_any_step_can_be_asked_for_alone() -> None:
    assert BatchSampler(1000, 32, 5).units(400).tolist() == BatchSampler(1000, 32, 5).units(400).tolist()


def test_a_curriculum_is_a_view_by_step(synthetic) -> None:
    split = Dataset.open(synthetic).split("train")
    stages = (CurriculumStage(until_step=3, max_hops=1), CurriculumStage(until_step=6, kinds=("count", "boolean")))
    sampler = BatchSampler(len(split), 16, 0, eligible=split.curriculum(stages))
    names = [kind.value for kind in KINDS]
    for step in range(3):
        assert split.hops[sampler.units(step)].max() <= 1
    for step in range(3, 6):
        assert {names[kind] for kind in split.kinds[sampler.units(step)]} <= {"count", "boolean"}
    assert sampler.units(6).tolist() == BatchSampler(len(split), 16, 0).units(0).tolist()
    assert len({*split.kinds[np.concatenate([sampler.units(step) for step in range(6, 20)])].tolist()}) == 6


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2000), st.integers(0, 1000), st.sampled_from([0.0, 0.003, 0.5, 1.0]))
def test_a_set_of_units_gives_the_unit_at_any_position(length: int, seed: int, share: float) -> None:
    admitted = np.random.default_rng(seed).random(length) < share
    units = UnitSet.of(admitted)
    expected = np.flatnonzero(admitted)
    assert len(units) == len(expected)
    np.testing.assert_array_equal(units.select(np.arange(len(expected))), expected)
    np.testing.assert_array_equal(units.select(np.arange(len(expected))[::-1]), expected[::-1])


def test_a_set_of_units_needs_little_memory() -> None:
    """The curriculum of twelve million examples is a view, not a list of them."""
    units = UnitSet.of(np.ones(1_000_000, dtype=bool))
    assert units.bits.nbytes + units.starts.nbytes < 160_000


def test_nothing_to_draw_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="nothing to draw"):
        BatchSampler(0, 4, 0)
    with pytest.raises(ConfigError, match="until step 5 admits no example"):
        BatchSampler(4, 2, 0, eligible=[Eligible(5, UnitSet.of(np.zeros(4, dtype=bool)))])
