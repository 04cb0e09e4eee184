"""What a step trains on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hopline.config import CurriculumStage
from hopline.errors import ConfigError
from hopline.graph import (
    KINDS,
    AnswerMode,
    ExampleGraph,
    GraphBatch,
    GraphStore,
    Query,
    QueryKind,
    ReasoningExample,
)
from hopline.training import SplitBatches, StepBatches


def ids(batches: StepBatches) -> list[int]:
    """Example ids of the units that count, in order; a twin has the id of its own."""
    parts = [chunk.batch for chunk in batches.chunks if chunk.weight]
    return [example for part in parts for example in part.example_id[~part.is_twin].tolist()]


def test_a_step_has_batch_size_times_accumulation_examples(bench) -> None:
    """G19: accumulation is a larger group, of the same examples in the same order."""
    small = bench.batches(bench.config(batch_size=8, gradient_accumulation=3))
    large = bench.batches(bench.config(batch_size=24))
    assert small.examples_per_step == large.examples_per_step == 24
    for step in range(4):
        assert ids(small.step(step)) == ids(large.step(step))
        assert len(ids(small.step(step))) == 24


def test_a_step_is_a_function_of_its_number(bench) -> None:
    """G54, D32: the data position is one integer; any step can be made first, and again."""
    one, other = bench.batches(), bench.batches()
    forwards = [ids(one.step(step)) for step in range(6)]
    backwards = [ids(other.step(step)) for step in reversed(range(6))]
    assert forwards == backwards[::-1]
    assert forwards[3] == ids(one.step(3))


def test_every_example_comes_once_an_epoch_in_a_new_order(bench) -> None:
    """D29: shuffled epochs, and no end of the stream."""
    length = len(bench.dataset.split("train"))
    batches = bench.batches(bench.config(batch_size=length))
    epochs = [ids(batches.step(epoch)) for epoch in range(3)]
    assert all(len(set(epoch)) == length for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert {frozenset(epoch) for epoch in epochs} == {frozenset(epochs[0])}


def test_a_batch_that_an_epoch_leaves_short_is_completed_from_the_next(bench) -> None:
    """D15, D29: all steps have the same number of examples, and none is dropped."""
    length = len(bench.dataset.split("train"))
    batches = bench.batches(bench.config(batch_size=length - 10))
    drawn = [ids(batches.step(step)) for step in range(2)]
    assert {len(part) for part in drawn} == {length - 10}
    stream = [example for part in drawn for example in part]
    assert len(set(stream[:length])) == length


def test_another_seed_is_another_order(bench) -> None:
    """G54: the shuffle seed is the config's."""
    first, second = (ids(bench.batches(bench.config(seed=seed)).step(0)) for seed in (0, 1))
    assert first != second


def parts_of(bench, **training: Any) -> list[GraphBatch]:
    """The parts of a step of 48 examples."""
    return [chunk.batch for chunk in bench.batches(bench.config(batch_size=48, **training)).step(0).chunks]


def test_a_twin_follows_its_example_in_the_same_part(bench) -> None:
    """G26, D7: parts are bounded in rows, twins counted, and a pair is never torn apart."""
    (whole,) = parts_of(bench, backward_chunk_size=1000)
    assert whole.is_twin.any()
    for most in (1, 3, 8):
        parts = parts_of(bench, backward_chunk_size=most)
        assert torch.equal(torch.cat([part.example_id for part in parts]), whole.example_id)
        assert torch.equal(torch.cat([part.is_twin for part in parts]), whole.is_twin)
        assert torch.equal(torch.cat([part.edge_type_ids for part in parts]), whole.edge_type_ids)
        assert sum(part.num_nodes for part in parts) == whole.num_nodes
        assert not any(part.is_twin[0] for part in parts)
        assert all(part.num_graphs <= max(most, 2) for part in parts)


def test_parts_are_bounded_in_nodes_and_edges(bench) -> None:
    """G24, D31: by the budgets of the config; an example that is larger alone makes a part of its own."""
    (whole,) = parts_of(bench, backward_chunk_size=1000)
    for key, size in (("backward_chunk_nodes", "num_nodes"), ("backward_chunk_edges", "num_edges")):
        most = getattr(whole, size) // 3
        parts = parts_of(bench, backward_chunk_size=1000, **{key: most})
        assert len(parts) in (3, 4, 5)
        assert all(getattr(part, size) <= most for part in parts)
        alone = parts_of(bench, backward_chunk_size=1000, **{key: 1})
        assert all(int((~part.is_twin).sum()) == 1 for part in alone)
        assert torch.equal(torch.cat([part.example_id for part in alone]), whole.example_id)


@pytest.mark.parametrize("equal", [False, True])
def test_ranks_share_a_step(bench, equal: bool) -> None:
    """G20, G21, D15: together they have the step of one process once; all know its units and its scored rows."""
    config = bench.config(batch_size=13, backward_chunk_size=4)
    split, relations = bench.dataset.split("train"), bench.dataset.vocabulary.num_relations
    alone = bench.batches(config).step(3)
    for world in (2, 3, 16):
        shares = [
            SplitBatches(
                split, config.training, num_relations=relations, rank=rank, world=world, equal_chunks=equal
            ).step(3)
            for rank in range(world)
        ]
        assert sorted(example for share in shares for example in ids(share)) == sorted(ids(alone))
        assert {share.rows for share in shares} == {alone.rows} == {sum(c.batch.num_graphs for c in alone.chunks)}
        assert all((share.units == alone.units).all() for share in shares)
        assert all(share.chunks for share in shares)
        fillers = sum(chunk.weight == 0 for share in shares for chunk in share.chunks)
        assert fillers > 0 if world == 16 else equal or not fillers
        if equal:
            assert len({len(share.chunks) for share in shares}) == 1


def test_a_rank_reads_its_own_examples_alone(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """D22: of the others it knows the sizes."""
    config = bench.config(batch_size=12)
    split, relations = bench.dataset.split("train"), bench.dataset.vocabulary.num_relations
    asked: list[int] = []
    original = type(split).columns

    def columns(self: Any, units: Any) -> Any:
        asked.extend(units.tolist())
        return original(self, units)

    monkeypatch.setattr(type(split), "columns", columns)
    read: list[list[int]] = []
    for rank in range(3):
        asked.clear()
        step = SplitBatches(split, config.training, num_relations=relations, rank=rank, world=3).step(0)
        read.append(sorted(asked))
    assert sorted(unit for part in read for unit in part) == sorted(step.units.tolist())
    assert all(0 < len(part) < 12 for part in read)


def test_no_example_is_made_into_an_object(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """D30: batches are cut from columns; no graph is built again at every visit."""
    for kind in (ReasoningExample, ExampleGraph, Query, GraphStore):
        monkeypatch.setattr(kind, "__init__", lambda *_, **__: pytest.fail("an object was made"))
    with pytest.raises(pytest.fail.Exception, match="an object was made"):
        Query((0,), ((0,),), AnswerMode.ENTITIES)
    trainer = bench.trainer()
    batches = bench.batches(trainer.config)
    for step in range(2):
        assert trainer.train_step(batches.step(step)).examples >= 16


def test_a_rank_outside_the_world_is_an_error(bench) -> None:
    with pytest.raises(ValueError, match="rank 2 of 2"):
        SplitBatches(bench.dataset.split("train"), bench.config().training, num_relations=9, rank=2, world=2)


def test_a_curriculum_chooses_by_step(bench) -> None:
    """G18, G54: stages by step, so that a resumed run is in the stage that it left."""
    stages = (CurriculumStage(until_step=2, max_hops=1), CurriculumStage(until_step=4, kinds=("multi_hop", "count")))
    batches = bench.batches(bench.config(curriculum=stages))
    split = bench.dataset.split("train")
    known = dict(zip(range(len(split)), zip(split.hops, split.kinds, strict=True), strict=True))
    drawn = [[known[example] for example in ids(batches.step(step))] for step in range(6)]
    assert all(hops <= 1 for step in (0, 1) for hops, _ in drawn[step])
    wanted = {KINDS.index(QueryKind.MULTI_HOP), KINDS.index(QueryKind.COUNT)}
    assert {kind for step in (2, 3) for _, kind in drawn[step]} == wanted
    assert {kind for step in (4, 5) for _, kind in drawn[step]} > wanted


def test_a_stage_without_examples_is_refused_at_the_start(bench) -> None:
    """D29: not when the step is reached."""
    with pytest.raises(ConfigError, match="the stage until step 5 admits no example"):
        bench.batches(bench.config(curriculum=(CurriculumStage(until_step=5, kinds=()),)))
