"""How a step is dealt to ranks and cut into chunks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.training.step_plan import StepPlan, plan_step


@dataclass(frozen=True)
class Case:
    """The units of a step with their sizes, and the budgets of a chunk."""

    units: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]
    nodes: np.ndarray[Any, Any]
    edges: np.ndarray[Any, Any]
    limits: dict[str, int]

    def plan(self, world: int, *, equal_chunks: bool = False) -> StepPlan:
        sizes = (self.rows, self.nodes, self.edges)
        return plan_step(self.units, *sizes, world=world, equal_chunks=equal_chunks, **self.limits)

    def size(self, units: np.ndarray[Any, Any]) -> tuple[int, int, int]:
        at = [int(np.flatnonzero(self.units == unit)[0]) for unit in units]
        return int(self.rows[at].sum()), int(self.nodes[at].sum()), int(self.edges[at].sum())


@st.composite
def cases(draw: Any) -> Case:
    count = draw(st.integers(1, 40))
    units = draw(st.permutations(range(100, 100 + count)))
    sizes = draw(
        st.lists(st.tuples(st.integers(1, 2), st.integers(1, 30), st.integers(0, 60)), min_size=count, max_size=count)
    )
    rows, nodes, edges = np.array(sizes, dtype=np.int64).T
    limits = {
        "max_rows": draw(st.integers(1, 20)),
        "max_nodes": draw(st.integers(1, 120)),
        "max_edges": draw(st.integers(1, 240)),
    }
    return Case(np.array(units, dtype=np.int64), rows, nodes, edges, limits)


def real(plan: StepPlan, rank: int) -> list[int]:
    """The units of a rank, fillers left out."""
    return [unit for chunk in plan.ranks[rank] if not chunk.filler for unit in chunk.units.tolist()]


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 11), st.booleans())
def test_every_unit_counts_once_whatever_the_world(case: Case, world: int, equal: bool) -> None:
    """G20, D15: any split of (rank, world) covers the batch of a step exactly once."""
    plan = case.plan(world, equal_chunks=equal)
    assert len(plan.ranks) == world
    assert Counter(unit for rank in range(world) for unit in real(plan, rank)) == Counter(case.units.tolist())
    assert plan.rows == case.rows.sum()


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_same_units_are_trained_on_by_any_number_of_ranks(case: Case) -> None:
    """G20: a step means the same on 1, 2, 4 and 8 ranks."""
    found = {
        world: sorted(unit for rank in range(world) for unit in real(case.plan(world), rank)) for world in (1, 2, 4, 8)
    }
    assert found[1] == found[2] == found[4] == found[8]


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(1, 9))
def test_units_keep_the_order_of_the_step(case: Case, world: int) -> None:
    """G20: one rank has the units as they are; of several each has its own in that order."""
    assert real(case.plan(1), 0) == case.units.tolist()
    order = {unit: position for position, unit in enumerate(case.units.tolist())}
    plan = case.plan(world)
    for rank in range(world):
        positions = [order[unit] for unit in real(plan, rank)]
        assert positions == sorted(positions)


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(2, 9))
def test_ranks_differ_by_no_more_edges_than_the_largest_unit_has(case: Case, world: int) -> None:
    """D15: the work of a step is balanced."""
    plan = case.plan(world)
    loads = [case.size(np.array(real(plan, rank), np.int64))[2] for rank in range(world)]
    assert max(loads) - min(loads) <= case.edges.max()


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 6))
def test_chunks_keep_their_budgets_and_are_no_smaller_than_they_must_be(case: Case, world: int) -> None:
    """G24: rows, nodes and edges are bounded; only a unit that is larger alone is over; the next would not have fitted."""
    limits = np.array([case.limits["max_rows"], case.limits["max_nodes"], case.limits["max_edges"]])
    for chunks in case.plan(world).ranks:
        for chunk in chunks:
            assert len(chunk.units) == 1 or (np.array(case.size(chunk.units)) <= limits).all()
        for chunk, following in pairwise(chunks):
            assert (np.array(case.size(np.append(chunk.units, following.units[0]))) > limits).any()


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(1, 11))
def test_fillers_make_ranks_equally_long(case: Case, world: int) -> None:
    """G21: no rank waits in a collective that another never enters; a filler is the cheapest unit, and comes last."""
    plan = case.plan(world, equal_chunks=True)
    assert len({len(chunks) for chunks in plan.ranks}) == 1
    assert plan.fillers == sum(chunk.filler for chunks in plan.ranks for chunk in chunks)
    assert any(not chunks[-1].filler for chunks in plan.ranks)
    for chunks in plan.ranks:
        assert [chunk.filler for chunk in chunks] == sorted(chunk.filler for chunk in chunks)
        for chunk in chunks:
            if chunk.filler:
                assert len(chunk.units) == 1
                assert case.size(chunk.units)[2] == case.edges.min()


def test_without_equal_chunks_only_a_rank_without_units_has_a_filler() -> None:
    """G21."""
    sizes = (np.array([1, 1]), np.array([5, 3]), np.array([9, 4]))
    plan = plan_step(np.array([7, 8]), *sizes, world=3, max_rows=8, max_nodes=99, max_edges=99, equal_chunks=False)
    shown = [[(chunk.units.tolist(), chunk.filler) for chunk in chunks] for chunks in plan.ranks]
    assert shown == [[([7], False)], [([8], False)], [([8], True)]]


def test_units_without_edges_are_dealt_in_turn() -> None:
    """D15: they cost a forward pass too."""
    count = 9
    ones, none = np.ones(count, np.int64), np.zeros(count, np.int64)
    plan = plan_step(
        np.arange(count), ones, ones, none, world=3, max_rows=8, max_nodes=99, max_edges=99, equal_chunks=False
    )
    assert [real(plan, rank) for rank in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_unit_that_comes_twice_counts_twice() -> None:
    """G19: a batch larger than the split begins the next epoch."""
    units = np.array([3, 1, 3])
    plan = plan_step(units, units, units, units, world=2, max_rows=99, max_nodes=99, max_edges=99, equal_chunks=True)
    assert [real(plan, rank) for rank in range(2)] == [[3, 1], [3]]
    assert plan.rows == 7


def test_a_step_without_units_is_an_error() -> None:
    """G23."""
    none = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match="at least one example"):
        plan_step(none, none, none, none, world=2, max_rows=1, max_nodes=1, max_edges=1, equal_chunks=True)
