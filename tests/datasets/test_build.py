"""Building: one hash whatever the workers and shards, killed builds continue, every altered byte is found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hopline.datasets.build as build_module
import hopline.datasets.synthetic.examples as examples_module
import hopline.datasets.tasks as tasks_module
from hopline.config import DatasetConfig, ExampleCounts
from hopline.datasets import GENERATOR_VERSION, SPLITS, Dataset, DatasetIndex, build_dataset, snapshot_source
from hopline.datasets.fingerprint import BLOCK_UNITS, block_digest, code_digest
from hopline.datasets.plan import make_plan
from hopline.datasets.pool import run_tasks
from hopline.datasets.tasks import ShardTask, run_task, shard_tasks
from hopline.errors import ConfigError, DataError, IntegrityError, NotFoundError
from hopline.graph import COLUMNS, KINDS, STATUSES, ExampleColumns
from hopline.progress import Event
from hopline.storage import canonical_json, sha256_bytes


class Listener:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture
def config() -> DatasetConfig:
    return DatasetConfig(
        examples=ExampleCounts(train=1300, valid=20, calibration=20, test=30), min_nodes=6, max_nodes=12
    )


def build(config: DatasetConfig, folder: Path, **changes: object) -> DatasetIndex:
    return build_dataset(config.model_copy(update={"workers": 1, **changes}), folder)


def test_the_hash_is_the_same_for_any_workers_shard_size_and_run(config: DatasetConfig, tmp_path: Path) -> None:
    reference = build(config, tmp_path / "reference")
    assert len(reference.splits["train"].blocks) == 3
    for number, changes in enumerate(
        (
            {},
            {"workers": 5, "shard_size": 100},
            {"workers": 2, "shard_size": 1000},
            {"shard_size": 333},
            {"shard_size": 512},
        )
    ):
        index = build(config, tmp_path / str(number), **changes)
        assert index.dataset_hash == reference.dataset_hash
        assert index.splits["train"].blocks == reference.splits["train"].blocks
        size = changes.get("shard_size", 4096)
        assert [shard.units for shard in index.splits["train"].shards] == [
            min(size, 1300 - first) for first in range(0, 1300, size)
        ]
    same = build(config, tmp_path / "again")
    shards = [
        [shard.sha256 for split in index.splits.values() for shard in split.shards] for index in (reference, same)
    ]
    assert shards[0] == shards[1]


def test_the_hash_is_that_of_other_machines_and_versions(tmp_path: Path) -> None:
    """Recorded; benchmarks/pyarrow_versions.py compares versions of pyarrow. A new generator version renews it."""
    counts = ExampleCounts(train=600, valid=20, calibration=20, test=30)
    index = build(DatasetConfig(examples=counts), tmp_path)
    assert (GENERATOR_VERSION, index.dataset_hash) == (
        "2",
        "926940c0cd0ccbb6fb8f8c0df3e0e2032ccc234d7e651000ecca78f48ac185a0",
    )


def test_the_hash_of_triples_is_the_same_for_any_workers(nations: Dataset, tmp_path: Path) -> None:
    config = DatasetConfig.model_validate(nations.index.config)
    index = build(config, tmp_path / "4", workers=4, shard_size=300)
    assert index.dataset_hash == nations.dataset_hash
    assert index.vocabulary == nations.vocabulary


def test_another_seed_or_setting_is_another_dataset(config: DatasetConfig, tmp_path: Path) -> None:
    small = config.model_copy(update={"examples": ExampleCounts(train=30, valid=5, calibration=5, test=5)})
    changes: tuple[dict[str, object], ...] = (
        {},
        {"seed": 1},
        {"max_paths": 8},
        {"noise_edges": 0.0},
        {"synthetic_relations": 9},
    )
    hashes = {build(small, tmp_path / str(number), **change).dataset_hash for number, change in enumerate(changes)}
    assert len(hashes) == len(changes)


def test_the_index_says_what_the_shards_hold(synthetic: Path, small_config: DatasetConfig) -> None:
    dataset = Dataset.open(synthetic)
    index = dataset.index
    assert set(index.splits) == set(SPLITS)
    for name, info in index.splits.items():
        split = dataset.split(name)
        columns = split.columns(np.arange(len(split)))
        assert info.units == len(split) == getattr(small_config.examples, name)
        assert info.rows == columns.num_rows
        assert info.kinds == {
            kind.value: int(n) for kind, n in zip(KINDS, np.bincount(split.kinds, minlength=6), strict=True) if n
        }
        rows = np.bincount(columns.values["status"], minlength=3)
        assert info.statuses == {status.value: int(n) for status, n in zip(STATUSES, rows, strict=True) if n}
        hops = np.bincount(split.hops)
        assert info.hops == {str(number): int(n) for number, n in enumerate(hops) if n}
        blocks = [
            block_digest(split.columns(np.arange(first, min(first + BLOCK_UNITS, len(split)))))
            for first in range(0, len(split), BLOCK_UNITS)
        ]
        assert list(info.blocks) == blocks
    assert index.generator.version == GENERATOR_VERSION
    assert index.generator.code_digest == code_digest()
    assert index.config == small_config.model_dump(mode="json")
    assert index.validated == sum(split.rows for split in index.splits.values())
    assert index.leakage.model_dump() == {
        "held_out_edges": 0, "duplicate_queries": 0, "replaced_queries": 0, "dropped_triples": {}, "unseen_entities": 0,
    }  # fmt: skip
    assert sorted(path.name for path in synthetic.iterdir()) == sorted(
        ["index.json", *(shard.file for split in index.splits.values() for shard in split.shards)]
    )


def test_a_query_in_two_splits_is_made_anew(tmp_path: Path) -> None:
    """Graphs of four nodes over four relations repeat all the time."""
    config = DatasetConfig(
        min_nodes=4, max_nodes=4, max_hops=1, synthetic_relations=4, noise_edges=0.0,
        examples=ExampleCounts(train=600, valid=30, calibration=30, test=30),
    )  # fmt: skip
    index = build(config, tmp_path / "a")
    assert index.leakage.replaced_queries > 0
    assert index.leakage.duplicate_queries == 0
    again = build(config, tmp_path / "b", workers=3, shard_size=100)
    assert again.dataset_hash == index.dataset_hash


def test_keys_are_compared_in_parts_with_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DatasetConfig(
        min_nodes=4, max_nodes=4, max_hops=1, synthetic_relations=4, noise_edges=0.0,
        examples=ExampleCounts(train=600, valid=30, calibration=30, test=30),
    )  # fmt: skip
    whole = build(config, tmp_path / "whole", shard_size=200)
    monkeypatch.setattr(build_module, "_KEY_PART_BITS", 5)
    parts = build(config, tmp_path / "parts", shard_size=200)
    assert parts.dataset_hash == whole.dataset_hash
    assert parts.leakage == whole.leakage
    assert parts.leakage.replaced_queries > 0


@pytest.mark.parametrize("damage", ["missing", "cut", "another"])
def test_a_shard_whose_keys_are_lost_is_made_again(config: DatasetConfig, tmp_path: Path, damage: str) -> None:
    config = config.model_copy(update={"workers": 1, "shard_size": 400})
    plan = make_plan(config, snapshot_source(config, None))
    work = tmp_path / "work"
    work.mkdir()
    task = shard_tasks(plan, {})[0]
    result = run_task(plan, task, tmp_path, work, lambda made: None)
    (work / f"{task.file}.json").write_text(result.model_dump_json())
    assert build_module._kept(task, tmp_path, work) == result
    keys = work / f"{task.file}.keys.npy"
    if damage == "missing":
        keys.unlink()
    elif damage == "cut":
        os.truncate(keys, 300)
    else:
        np.save(keys, np.zeros(3, dtype=np.uint64))
    assert build_module._kept(task, tmp_path, work) is None


def test_a_sample_of_a_large_dataset_is_solved_again(
    config: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_module, "_CHECK_ALL", 1000)
    index = build(config, tmp_path)
    assert 1370 / 32 <= index.validated <= 2 * (1370 / 32 + 4)


def test_an_example_that_its_graph_does_not_bear_is_never_written(
    config: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generator is made to lie about one relation: the solver finds it, though nothing is out of range."""
    rows_of = examples_module.rows_of

    def lying(*arguments: object) -> ExampleColumns:
        columns = rows_of(*arguments)
        columns.values["answer_relation"][columns.values["answer_relation"] == 3] = 4
        return columns

    monkeypatch.setattr(examples_module, "rows_of", lying)
    with pytest.raises(DataError, match=r"relation\): relation 4, but its graph says 3"):
        build(config, tmp_path)
    assert not (tmp_path / "index.json").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_is_told_until_all_is_made(config: DatasetConfig, tmp_path: Path, workers: int) -> None:
    listener = Listener()
    build_dataset(config.model_copy(update={"workers": workers, "shard_size": 400}), tmp_path, sink=listener)
    progress = [event for event in listener.events if event.kind == "progress"]
    assert [event.step for event in progress] == sorted(event.step or 0 for event in progress)
    assert (progress[-1].step, progress[-1].total) == (1370, 1370)
    assert {"examples_per_second", "eta_seconds"} <= set(progress[-1].values)
    assert {event.stage for event in listener.events} == {"generate"}


BUILD = """
import sys
from pathlib import Path
from hopline.config import DatasetConfig
from hopline.datasets import build_dataset
print(build_dataset(DatasetConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2])).dataset_hash)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_build_continues_to_the_same_hash(config: DatasetConfig, tmp_path: Path, workers: int) -> None:
    config = config.model_copy(update={"workers": workers, "shard_size": 100})
    out = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, config.model_dump_json(), str(out)], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while len(list(out.glob(".work-*/*.arrow.json"))) < 3 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was done before it could be killed"
    assert not (out / "index.json").exists()
    with pytest.raises(NotFoundError, match="no complete dataset"):
        Dataset.open(out)
    (work,) = out.glob(".work-*")
    finished = {path.name.removesuffix(".json") for path in work.glob("*.arrow.json")}
    kept = {name: (out / name).stat().st_mtime_ns for name in finished if (out / name).exists()}
    index = build_dataset(config, out)
    assert index.dataset_hash == build(config, tmp_path / "whole").dataset_hash
    assert len(kept) >= 3
    assert all((out / name).stat().st_mtime_ns == stamp for name, stamp in kept.items()), "finished shards are kept"
    assert not list(out.glob(".work-*"))


def test_a_finished_shard_that_was_damaged_is_made_again(config: DatasetConfig, tmp_path: Path) -> None:
    config = config.model_copy(update={"workers": 1, "shard_size": 100})
    out = tmp_path / "out"
    expected = build_dataset(config, tmp_path / "whole").dataset_hash
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, config.model_dump_json(), str(out)], stdout=subprocess.DEVNULL
    )
    while not list(out.glob(".work-*/train-00001.arrow.json")) and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    flip(out / "train-00000.arrow", 5000)
    assert build_dataset(config, out).dataset_hash == expected
    assert Dataset.open(out).split("train").example(0).example_id == 0


def test_shards_of_another_cut_do_not_stay(config: DatasetConfig, tmp_path: Path) -> None:
    build(config, tmp_path, shard_size=200)
    (tmp_path / "notes.txt").write_text("mine")
    index = build(config, tmp_path, shard_size=1000)
    names = {shard.file for split in index.splits.values() for shard in split.shards}
    assert {path.name for path in tmp_path.iterdir()} == names | {"index.json", "notes.txt"}


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << (place % 8)
    path.write_bytes(data)


def open_all(folder: Path) -> None:
    dataset = Dataset.open(folder)
    for name in SPLITS:
        dataset.split(name)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**40))
def test_a_flipped_bit_anywhere_is_found(synthetic: Path, tmp_path_factory: pytest.TempPathFactory, place: int) -> None:
    copy = tmp_path_factory.mktemp("flipped") / "dataset"
    shutil.copytree(synthetic, copy)
    files = sorted(copy.iterdir())
    flip(files[place % len(files)], place // len(files))
    with pytest.raises((IntegrityError, DataError)) as caught:
        open_all(copy)
    assert str(copy) in str(caught.value)
    shutil.rmtree(copy.parent)


@pytest.mark.parametrize("damage", ["altered", "truncated", "missing"])
def test_a_damaged_shard_is_named_with_both_digests(synthetic: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(synthetic, tmp_path / "dataset")
    shard = tmp_path / "dataset" / "train-00000.arrow"
    expected = Dataset.open(synthetic).index.splits["train"].shards[0].sha256
    if damage == "altered":
        flip(shard, 4000)
    elif damage == "truncated":
        os.truncate(shard, shard.stat().st_size - 1)
    else:
        shard.unlink()
    dataset = Dataset.open(tmp_path / "dataset")
    assert len(dataset.split("valid")) == 60, "another split is whole"
    with pytest.raises(IntegrityError, match=rf"train-00000\.arrow: .*expected (sha256 )?{expected}") as caught:
        dataset.split("train")
    assert ("found sha256" in str(caught.value)) == (damage != "missing")


def test_an_altered_index_is_found(synthetic: Path, tmp_path: Path) -> None:
    document = json.loads((synthetic / "index.json").read_text())

    def load(change, *, seal: bool = False) -> None:
        altered = json.loads(json.dumps(document))
        change(altered)
        data = json.dumps(altered).encode()
        if seal:
            altered.pop("index_sha256")
            altered["index_sha256"] = sha256_bytes(canonical_json(altered))
            data = json.dumps(altered).encode()
        (tmp_path / "index.json").write_bytes(data)
        DatasetIndex.load(tmp_path)

    load(lambda index: None)
    with pytest.raises(IntegrityError, match=r"index\.json: found index_sha256 [0-9a-f]{64}, expected [0-9a-f]{64}"):
        load(lambda index: index["splits"]["train"].update(units=701))
    # Sealed again after the change, the dataset hash still tells.
    for change in (
        lambda index: index["splits"]["train"].update(units=701),
        lambda index: index["splits"]["test"]["blocks"].append("0" * 64),
        lambda index: index["vocabulary"]["relations"].append("more"),
    ):
        with pytest.raises(IntegrityError, match=r"found dataset hash [0-9a-f]{64}, expected [0-9a-f]{64}"):
            load(change, seal=True)
    with pytest.raises(DataError, match="schema version 0, expected 1"):
        load(lambda index: index.update(schema_version=0))
    with pytest.raises(DataError, match=r"index\.json: "):
        load(lambda index: index["splits"]["train"]["shards"][0].update(file="../../elsewhere"), seal=True)


def test_a_dataset_is_asked_for_by_its_hash(synthetic: Path) -> None:
    index = DatasetIndex.load(synthetic)
    assert Dataset.open(synthetic, expected_hash=index.dataset_hash).dataset_hash == index.dataset_hash
    with pytest.raises(IntegrityError, match=rf"found dataset hash {index.dataset_hash}, expected 0000"):
        Dataset.open(synthetic, expected_hash="0" * 64)
    with pytest.raises(NotFoundError, match="no split 'dev'; there are"):
        Dataset.open(synthetic).split("dev")
    with pytest.raises(NotFoundError, match=r"index\.json: no such file"):
        Dataset.open(synthetic / "nothing")


def test_a_folder_that_cannot_be_written_is_a_data_error(config: DatasetConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match=r"file.*: cannot be written: "):
        build(config, tmp_path / "file" / "out")


def test_synthetic_entities_have_no_identity(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.entities: synthetic entities have no identity"):
        build(DatasetConfig(entities="identity"), tmp_path)


def test_an_error_in_a_worker_is_the_error_of_the_build(config: DatasetConfig, tmp_path: Path) -> None:
    impossible = config.model_copy(
        update={"min_nodes": 4, "max_nodes": 4, "min_hops": 9, "max_hops": 9, "shard_size": 100}
    )
    kinds = config.kinds.model_copy(
        update=dict.fromkeys(("link", "multi_hop", "boolean", "aggregate", "relation"), 0.0)
    )
    with pytest.raises(DataError, match=r"synthetic: after 256 attempts no example fits"):
        build(impossible, tmp_path, workers=2, kinds=kinds)


def test_a_worker_that_dies_is_named_with_its_shard(config: DatasetConfig, tmp_path: Path) -> None:
    plan = make_plan(config, snapshot_source(config, None))
    tasks = [
        ShardTask(split="train", number=n, first=100 * n, last=100 * n + 100, made=100 * n + 100) for n in range(2)
    ]
    work = tmp_path / "nothing-was-saved"
    with pytest.raises(DataError, match=r"train-0000\d\.arrow: the process that made it ended with code 1"):
        list(run_tasks(plan, tasks, tmp_path, work, 2, lambda made: None))


def test_columns_cover_the_whole_format() -> None:
    """A change of the columns changes every dataset: raise the generator version with it."""
    assert GENERATOR_VERSION == "2"
    assert len(COLUMNS) == 21
