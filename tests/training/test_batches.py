"""What a step trains on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.config import CurriculumStage
from hopline.errors import ConfigError
from hopline.graph import KINDS, GraphBatch, QueryKind
from hopline.training.batches import chunk_starts


def ids(chunks: list[GraphBatch]) -> list[int]:
    """Example ids of the units, in order; a twin has the id of its own."""
    return torch.cat([chunk.example_id[~chunk.is_twin] for chunk in chunks]).tolist()


def test_a_step_has_batch_size_times_accumulation_examples(bench) -> None:
    """G19: accumulation is a larger group, of the same examples in the same order."""
    small = bench.batches(bench.config(batch_size=8, gradient_accumulation=3))
    large = bench.batches(bench.config(batch_size=24))
    assert small.examples_per_step == large.examples_per_step == 24
    for step in range(4):
        assert ids(small.chunks(step)) == ids(large.chunks(step))
        assert len(ids(small.chunks(step))) == 24


def test_a_step_is_a_function_of_its_number(bench) -> None:
    """G54, D32: the data position is one integer; any step can be made first, and again."""
    one, other = bench.batches(), bench.batches()
    forwards = [ids(one.chunks(step)) for step in range(6)]
    backwards = [ids(other.chunks(step)) for step in reversed(range(6))]
    assert forwards == backwards[::-1]
    assert forwards[3] == ids(one.chunks(3))


def test_every_example_comes_once_an_epoch_in_a_new_order(bench) -> None:
    """D29: shuffled epochs, and no end of the stream."""
    length = len(bench.dataset.split("train"))
    batches = bench.batches(bench.config(batch_size=length))
    epochs = [ids(batches.chunks(epoch)) for epoch in range(3)]
    assert all(len(set(epoch)) == length for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert {frozenset(epoch) for epoch in epochs} == {frozenset(epochs[0])}


def test_a_batch_that_an_epoch_leaves_short_is_completed_from_the_next(bench) -> None:
    """D15, D29: all steps have the same number of examples, and none is dropped."""
    length = len(bench.dataset.split("train"))
    batches = bench.batches(bench.config(batch_size=length - 10))
    drawn = [ids(batches.chunks(step)) for step in range(2)]
    assert {len(part) for part in drawn} == {length - 10}
    stream = [example for part in drawn for example in part]
    assert len(set(stream[:length])) == length


def test_another_seed_is_another_order(bench) -> None:
    """G54: the shuffle seed is the config's."""
    first, second = (ids(bench.batches(bench.config(seed=seed)).chunks(0)) for seed in (0, 1))
    assert first != second


def test_a_twin_follows_its_example_in_the_same_part(bench) -> None:
    """G26, D7: parts are bounded in rows, twins counted, and a pair is never torn apart."""
    whole = bench.batches(bench.config(batch_size=48, backward_chunk_size=1000)).chunks(0)
    assert len(whole) == 1
    assert whole[0].is_twin.any()
    for most in (1, 3, 8):
        parts = bench.batches(bench.config(batch_size=48, backward_chunk_size=most)).chunks(0)
        assert torch.equal(torch.cat([part.example_id for part in parts]), whole[0].example_id)
        assert torch.equal(torch.cat([part.is_twin for part in parts]), whole[0].is_twin)
        assert torch.equal(torch.cat([part.edge_type_ids for part in parts]), whole[0].edge_type_ids)
        assert sum(part.num_nodes for part in parts) == whole[0].num_nodes
        assert not any(part.is_twin[0] for part in parts)
        assert all(part.num_graphs <= max(most, 2) for part in parts)


@st.composite
def twins(draw: Any) -> np.ndarray[Any, Any]:
    units = draw(st.lists(st.booleans(), min_size=1, max_size=40))
    return np.array([row for pair in units for row in ([False, True] if pair else [False])])


@settings(deadline=None)
@given(is_twin=twins(), most=st.integers(1, 12))
def test_parts_are_as_large_as_they_may_be(is_twin: np.ndarray[Any, Any], most: int) -> None:
    """D7, G24: at most ``most`` rows but for a pair alone; a pair is whole; the next pair would not have fitted."""
    starts = chunk_starts(is_twin, most)
    assert starts[0] == 0
    assert not is_twin[starts].any()
    bounds = [*starts, len(is_twin)]
    for (a, b), following in zip(pairwise(bounds), [*bounds[2:], None], strict=True):
        assert 0 < b - a <= max(most, 2)
        assert b - a <= most or is_twin[b - 1]
        if following is not None:
            unit = 2 if b + 1 < len(is_twin) and is_twin[b + 1] else 1
            assert b - a + unit > most


def test_a_curriculum_chooses_by_step(bench) -> None:
    """G18, G54: stages by step, so that a resumed run is in the stage that it left."""
    stages = (CurriculumStage(until_step=2, max_hops=1), CurriculumStage(until_step=4, kinds=("multi_hop", "count")))
    batches = bench.batches(bench.config(curriculum=stages))
    split = bench.dataset.split("train")
    known = dict(zip(ids([split.batch(np.arange(len(split)))]), zip(split.hops, split.kinds, strict=True), strict=True))
    drawn = [[known[example] for example in ids(batches.chunks(step))] for step in range(6)]
    assert all(hops <= 1 for step in (0, 1) for hops, _ in drawn[step])
    wanted = {KINDS.index(QueryKind.MULTI_HOP), KINDS.index(QueryKind.COUNT)}
    assert {kind for step in (2, 3) for _, kind in drawn[step]} == wanted
    assert {kind for step in (4, 5) for _, kind in drawn[step]} > wanted


def test_a_stage_without_examples_is_refused_at_the_start(bench) -> None:
    """D29: not when the step is reached."""
    with pytest.raises(ConfigError, match="the stage until step 5 admits no example"):
        bench.batches(bench.config(curriculum=(CurriculumStage(until_step=5, kinds=()),)))
