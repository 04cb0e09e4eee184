"""Trainings of several processes over gloo: the same global batches, the same mean, the same decisions, the same states."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist

from hopline.errors import ConfigError
from hopline.training import ALONE, close_distributed, current_world, setup_distributed

pytestmark = pytest.mark.timeout(900)  # the first test waits for all trainings, four processes on two cores among them

Ranks = list[dict[str, Any]]
Play = Callable[[str, int], Ranks]


def play(dataset: Path, folder: Path, size: int, scenarios: list[str]) -> None:
    script = Path(__file__).with_name("ranked.py")
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(dataset), str(folder), str(size), *scenarios],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]


def ranks_of(folder: Path, scenario: str, size: int) -> Ranks:
    place = folder / f"{scenario}-{size}"
    return [torch.load(place / f"rank-{rank}.pt", weights_only=False) for rank in range(size)]


ONE = ["ddp", "small", "chunked", "whole", "evaluated", "handed_ddp"]
TWO = [
    "ddp", "fsdp", "small", "small_fsdp", "chunked", "chunked_fsdp", "dropout", "parted", "parted_fsdp", "whole",
    "whole_fsdp", "stopped", "content", "apart", "poisoned", "evaluated", "disk_full", "no_room", "unreadable", "refused",
    "again", "handed_ddp", "handed_fsdp", "continued_ddp", "continued_fsdp",
]  # fmt: skip
FOUR = ["ddp", "small", "chunked_fsdp", "evaluated"]


@pytest.fixture(scope="module")
def played(dataset_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """The results of a scenario by rank, for 1, 2 or 4 processes."""
    folder = tmp_path_factory.mktemp("ranked")
    for size, scenarios in ((1, ONE), (2, TWO), (1, ["continued_ddp", "continued_fsdp"]), (4, FOUR)):
        play(dataset_folder, folder, size, scenarios)
    return lambda scenario, size: ranks_of(folder, scenario, size)


@pytest.mark.parametrize("size", [2, 4])
def test_global_batches_are_the_same_on_any_number_of_ranks(played: Play, size: int) -> None:
    """G20, D19, D22: the ids of a step depend on seed, epoch and step alone; ranks have disjoint shares of them."""
    alone = played("ddp", 1)[0]
    ranks = played("ddp", size)
    for step in range(len(ranks[0]["units"])):
        assert all(rank["units"][step] == alone["units"][step] for rank in ranks)
        shares = [set(rank["ids"][step]) for rank in ranks]
        assert sum(map(len, shares)) == len(set.union(*shares)) == len(alone["ids"][step])
        assert set.union(*shares) == set(alone["ids"][step])


@pytest.mark.parametrize(
    ("scenario", "size"),
    [("ddp", 2), ("ddp", 4), ("small", 2), ("small", 4), ("chunked", 2)],
)
def test_the_gradient_is_the_mean_over_the_global_batch(played: Play, scenario: str, size: int) -> None:
    """G34, D15, D20, D24, G60: whatever each rank holds, an empty share too; losses and norms are those of one process,
    within the rounding of sums in another order."""
    alone, ranks = played(scenario, 1)[0], played(scenario, size)
    for rank in ranks:
        assert rank["losses"] == ranks[0]["losses"]
        assert rank["norms"] == ranks[0]["norms"]
        assert torch.equal(rank["gradients"], ranks[0]["gradients"])
    count = len(ranks[0]["losses"])
    assert count >= 3
    assert ranks[0]["losses"] == pytest.approx(alone["losses"][:count], abs=2e-3)
    assert ranks[0]["losses"][:3] == pytest.approx(alone["losses"][:3], abs=1e-5)
    assert ranks[0]["norms"][:3] == pytest.approx(alone["norms"][:3], abs=1e-5)


@pytest.mark.parametrize(
    ("sharded", "whole", "size"), [("fsdp", "ddp", 2), ("small_fsdp", "small", 2), ("chunked_fsdp", "chunked", 2)]
)
def test_sharded_training_equals_replicated_training(played: Play, sharded: str, whole: str, size: int) -> None:
    """G5, G59: the loss curve of FSDP2 is that of DDP within 1e-5, over 50 steps."""
    one, other = played(sharded, size)[0], played(whole, size)[0]
    assert len(one["losses"]) == (50 if sharded == "fsdp" else 3)
    assert one["losses"] == pytest.approx(other["losses"], abs=1e-5)
    assert one["norms"] == pytest.approx(other["norms"], abs=1e-5)
    if len(one["losses"]) == 3:  # later, Adam has made of rounding what it makes of any small gradient
        for name, value in other["weights"].items():
            torch.testing.assert_close(one["weights"][name], value, rtol=1e-4, atol=1e-5)


def test_ranks_share_small_chunks_of_a_sharded_model(played: Play) -> None:
    """G59: four ranks run the same number of chunks, some of them fillers."""
    ranks = played("chunked_fsdp", 4)
    assert len({tuple(rank["losses"]) for rank in ranks}) == 1
    assert ranks[0]["losses"] == pytest.approx(played("chunked", 1)[0]["losses"], abs=1e-5)


def test_every_rank_draws_its_own_masks(played: Play) -> None:
    """D23: dropout differs between ranks and steps, and is a function of seed, step and rank."""
    one, other = (rank["masks"] for rank in played("dropout", 2))
    for mine, theirs in zip(one, other, strict=True):
        assert not torch.equal(mine, theirs)
    for first, second, again in (one, other):
        assert torch.equal(first, again)
        assert not torch.equal(first, second)


@pytest.mark.parametrize(("scenario", "size"), [("ddp", 2), ("ddp", 4), ("chunked", 2)])
def test_a_step_exchanges_its_figures_once_and_gradients_in_buckets(played: Play, scenario: str, size: int) -> None:
    """D20, D27, G60: no exchange for each parameter and none for a flag; DDP does the gradients while it computes."""
    for rank in played(scenario, size):
        assert rank["buckets"]
        assert rank["exchanges"] == ["all_reduce"] * (len(rank["losses"]) - 1)


def test_weights_and_buffers_come_from_the_main_rank(played: Play) -> None:
    """G6, D21: the link head too, which is made before the weights are shared; they stay equal after a step."""
    one, other = played("parted", 2)
    assert not torch.equal(one["own"], other["own"])
    assert torch.equal(one["own"], one["first"])
    assert torch.equal(one["first"], other["first"])
    assert torch.equal(one["last"], other["last"])
    assert not torch.equal(one["first"], one["last"])
    assert other["constant"].tolist() == [0, 0]


def test_sharded_weights_are_parts_of_those_of_the_main_rank(played: Play) -> None:
    """G6, D21: nothing would even them out later, for no rank sees the part of another."""
    one, other = played("parted_fsdp", 2)
    assert any(not torch.equal(value, other["own"][name]) for name, value in one["own"].items())
    assert one["first"].keys() == one["own"].keys()
    for name, value in one["own"].items():
        assert torch.equal(one["first"][name], value), name


def test_joining_again_is_the_same_world(played: Play) -> None:
    """G7: idempotent."""
    assert all(rank["again"] for rank in played("parted", 2))


def test_one_rank_that_is_asked_to_stop_stops_all(played: Play) -> None:
    """G21, D28: after the same step, with one state, from which the run ends as if nothing had happened."""
    ranks = played("stopped", 2)
    assert ranks[0]["message"] == ranks[1]["message"]
    assert ranks[0]["message"].startswith("training stopped after step 6; its state was saved")
    assert ranks[0]["states"][-1] == 6
    whole = played("whole", 2)[0]
    for rank in ranks:
        assert rank["log"] == whole["log"]
        assert rank["state"] == whole["state"]
    for name, value in whole["weights"].items():
        assert torch.equal(ranks[0]["weights"][name], value), name


def test_the_reason_of_one_rank_stops_the_others(played: Play) -> None:
    """G44."""
    one, other = played("content", 2)
    assert (one["reason"], other["reason"]) == ("stopped on another rank", "rank 1 is content")
    assert one["state"]["step"] == other["state"]["step"] == 6


def test_what_is_not_finite_on_one_rank_is_skipped_on_all(played: Play) -> None:
    """D2, D27: and the ids of the whole batch are told by the main rank."""
    one, other = played("poisoned", 2)
    assert one["verdicts"] == other["verdicts"] == ["non_finite", "apply"]
    assert one["state"] == other["state"]
    (told,) = [message for kind, message in one["messages"] if kind == "warning"]
    assert len(told.partition("examples ")[2].split(", ")) == 16
    assert not other["messages"]


def test_the_main_rank_decides_what_is_best_and_when_to_stop(played: Play) -> None:
    """D25: ranks that measure something else do not part."""
    one, other = played("apart", 2)
    assert one["state"] == other["state"]
    assert (one["state"]["step"], one["state"]["best_step"], one["state"]["best_score"]) == (12, 12, 12.0)
    assert one["log"] == other["log"]


@pytest.mark.parametrize("size", [2, 4])
def test_a_split_is_measured_together_and_exactly(played: Play, size: int) -> None:
    """G58, D25: the figures are to the bit those of one process, and every rank has them."""
    alone = played("evaluated", 1)[0]
    for rank in played("evaluated", size):
        assert rank["metrics"] == alone["metrics"]
        assert rank["message"].startswith("evaluation stopped after 0 of 24 examples")


def test_the_same_topology_gives_the_same_bits(played: Play) -> None:
    """G53, D44: with dropout on, evaluations and candidates, twice."""
    again, first = played("again", 2)[0], played("whole", 2)[0]
    assert again["log"] == first["log"]
    for name, value in first["weights"].items():
        assert torch.equal(again["weights"][name], value), name


def test_sharded_runs_keep_whole_candidates(played: Play) -> None:
    """G46, G59: equal within rounding to those of replicated runs, with the same choice."""
    one, other = played("whole_fsdp", 2)[0], played("whole", 2)[0]
    assert one["states"] == other["states"]
    assert [c["step"] for c in one["state"]["candidates"]] == [c["step"] for c in other["state"]["candidates"]]
    assert one["weights"].keys() == other["weights"].keys()


def test_a_state_that_one_rank_could_not_write_is_no_state(played: Play) -> None:
    """D26, D35, G46: the others do not take it for saved; training goes on, and the next one is whole."""
    one, other = played("disk_full", 2)
    assert one["states"] == [8, 12]
    (told,) = [message for kind, message in one["messages"] if kind == "warning"]
    assert told.startswith("the training state of step 4 could not be saved; the one before stays: ")
    assert "the disk is full" in told
    assert one["state"] == other["state"] == played("whole", 2)[0]["state"]


def test_a_rank_without_room_for_temporary_files_keeps_nobody_waiting(played: Play) -> None:
    """D26, D35: its error is told to all; they go on together, in a save as in a restore."""
    one, other = played("no_room", 2)
    assert one["states"] == other["states"] == [8, 12]
    assert any("state of step 4 could not be saved" in m and "the disk is full" in m for _, m in one["messages"])
    assert one["state"] == other["state"] == played("whole", 2)[0]["state"]
    assert one["restored"] == other["restored"] == 8
    assert any("the training state of step 12 cannot be used" in message for message in one["told"])


def test_a_state_that_one_rank_cannot_read_is_left_by_all(played: Play) -> None:
    """G55, G63, D36: all fall back to the state before, and say so."""
    one, other = played("unreadable", 2)
    assert one["restored"] == other["restored"] == 8
    assert any("the training state of step 12 cannot be used" in message for _, message in one["messages"])
    assert one["state"] == played("whole", 2)[0]["state"]


def test_several_processes_need_to_know_how_they_share_the_training(played: Play) -> None:
    """D28: nothing is silently ignored."""
    for rank in played("refused", 2):
        assert rank["message"].startswith(
            "training.parallelism: found none, and 2 processes train together; expected ddp"
        )


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_state_moves_to_another_number_of_ranks(played: Play, mode: str, before: int, after: int) -> None:
    """G59, D39: saved on two ranks, continued on one, and the other way round; weights to the bit, losses within
    rounding."""
    left = played(f"handed_{mode if before > 1 else 'ddp'}", before)[0]
    found = played(f"continued_{mode}", after)[0]
    for name, value in left["saved"].items():
        assert torch.equal(found["restored"][name], value), name
    assert found["steps"] == len(left["saved"])
    assert found["losses"] == pytest.approx(left["losses"], abs=1e-4)


def test_one_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """G7: without WORLD_SIZE above 1 nothing is set up."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert setup_distributed(torch.device("cpu")) is ALONE
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert setup_distributed(torch.device("cpu")) is ALONE


@pytest.mark.parametrize(
    ("device", "backend", "bound"),
    [("cpu", "gloo", None), ("cuda:1", "cpu:gloo,cuda:nccl", torch.device("cuda", 1))],
)
def test_processes_join_once_and_leave(
    monkeypatch: pytest.MonkeyPatch, device: str, backend: str, bound: torch.device | None
) -> None:
    """G7, D26, D28: NCCL on CUDA and gloo elsewhere; the device is told, nobody gives the others up while one of them
    saves, and the group is destroyed at the end."""
    groups: list[dict[str, Any]] = []
    left: list[bool] = []
    for name, value in {"WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("hopline.training.distributed._joined", None)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, **options: groups.append({"backend": backend, **options})
    )
    monkeypatch.setattr(dist, "new_group", lambda **options: groups.append(options) or options)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: left.append(True))
    world = setup_distributed(torch.device(device))
    assert setup_distributed(torch.device(device)) is current_world() is world
    assert (world.rank, world.size, world.local_rank, world.local_size) == (1, 2, 1, 2)
    joined, *others = groups
    assert (joined["backend"], joined["device_id"]) == (backend, bound)
    assert [group["backend"] for group in others] == ["gloo", "gloo"]
    assert all(group["timeout"] >= timedelta(minutes=20) for group in groups)
    close_distributed()
    close_distributed()
    assert left == [True]
    with pytest.raises(RuntimeError, match="torchrun"):
        current_world()


def test_devices_that_cannot_train_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """D27."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"mps: several processes train together on cuda or cpu alone"):
        setup_distributed(torch.device("mps"))


def test_distributed_training_without_a_group_names_torchrun(bench) -> None:
    """G4."""
    with pytest.raises(RuntimeError, match="torchrun"):
        current_world()
    with pytest.raises(RuntimeError, match="torchrun"):
        bench.trainer(distributed=True)
