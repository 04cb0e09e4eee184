"""The cache of shards: fetched once, checked always, bounded, shared, and told apart from a healthy one when it is not."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from hopline.config import DatasetConfig, ExampleCounts
from hopline.datasets import Dataset, DatasetIndex, build_dataset
from hopline.errors import ConfigError, HoplineError, IntegrityError, StoreError
from hopline.progress import Event
from hopline.stages.generate_stage import open_dataset
from hopline.stages.shard_cache import cache_limit
from hopline.storage import open_store
from hopline.storage.folders import put_folder
from tests.storage.conftest import FaultProxy, fault_proxy  # noqa: F401 - a fixture of another room

pytestmark = pytest.mark.s3


class Notes:
    """A sink that keeps what was said."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def emit(self, event: Event) -> None:
        assert (event.stage, event.kind) == ("train", "note")
        self.all.append(event.message)


@dataclass(frozen=True)
class Remote:
    """A dataset in a bucket, with the folder that it was put there from, and the cache of this machine."""

    root: str
    folder: Path
    cache: Path

    @property
    def index(self) -> DatasetIndex:
        return DatasetIndex.load(self.folder)

    @property
    def hash(self) -> str:
        return self.index.dataset_hash

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for split in self.index.splits.values() for shard in split.shards)

    def key(self, split: str, number: int = 0) -> str:
        return f"datasets/{self.hash}/{self.index.splits[split].shards[number].file}"

    def cached(self) -> dict[str, Path]:
        """The files of the cache by name."""
        return {path.name: path for path in (self.cache / "shards").glob("??/*")}

    def cached_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.cached().values())

    def check(self, dataset: Dataset, *splits: str) -> None:
        """What is read is what is in the folder."""
        for name in splits or dataset.index.splits:
            found, expected = dataset.split(name), Dataset.open(self.folder).split(name)
            units = np.arange(len(expected))
            for column, values in expected.columns(units).values.items():
                np.testing.assert_array_equal(found.columns(units).values[column], values)


def make(folder: Path, seed: int) -> Path:
    counts = ExampleCounts(train=60, valid=10, calibration=10, test=10)
    build_dataset(DatasetConfig(seed=seed, workers=1, shard_size=12, examples=counts, max_nodes=20), folder)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three datasets."""
    return [make(tmp_path_factory.mktemp(f"dataset-{seed}"), seed) for seed in (1, 2, 3)]


@pytest.fixture
def remotes(s3_root: str, folders: list[Path], tmp_path: Path) -> list[Remote]:
    return [put(s3_root, folder, tmp_path / "cache") for folder in folders]


@pytest.fixture
def remote(s3_root: str, folders: list[Path], tmp_path: Path) -> Remote:
    return put(s3_root, folders[0], tmp_path / "cache")


def put(root: str, folder: Path, cache: Path) -> Remote:
    remote = Remote(root, folder, cache)
    put_folder(open_store(root), f"datasets/{remote.hash}", folder)
    return remote


def test_a_split_is_fetched_when_it_is_asked_for_and_only_once(remote: Remote) -> None:
    notes = Notes()
    dataset = open_dataset(remote.root, remote.hash, sink=notes)
    assert remote.cached() == {}
    remote.check(dataset, "train")
    shards = remote.index.splits["train"].shards
    assert len(shards) == 5
    assert set(remote.cached()) == {shard.sha256 for shard in shards}
    assert len(notes.all) == 1
    assert notes.all[0].startswith("fetches 5 shards, 0.")

    for shard in shards:
        open_store(remote.root).delete(f"datasets/{remote.hash}/{shard.file}")
    again = Notes()
    remote.check(open_dataset(remote.root, remote.hash, sink=again), "train")
    assert again.all == []


def test_a_shard_is_shared_by_all_datasets_that_have_it(remote: Remote, s3_root: str) -> None:
    """Its name is its digest, wherever it came from."""
    remote.check(open_dataset(remote.root, remote.hash))
    other = f"{s3_root}/another-root"
    put_folder(open_store(other), f"datasets/{remote.hash}", remote.folder)
    notes = Notes()
    remote.check(open_dataset(other, remote.hash, sink=notes))
    assert notes.all == []


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:200] + b"\0" + data[201:], lambda data: b""]
)
def test_a_cached_shard_that_was_altered_is_fetched_again(remote: Remote, damage) -> None:
    remote.check(open_dataset(remote.root, remote.hash))
    path = remote.cached()[remote.index.splits["train"].shards[2].sha256]
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    remote.check(open_dataset(remote.root, remote.hash))
    assert path.read_bytes() == whole


def test_a_vanished_shard_is_named(remote: Remote) -> None:
    open_store(remote.root).delete(remote.key("train", 3))
    dataset = open_dataset(remote.root, remote.hash)
    with pytest.raises(IntegrityError, match="a shard of the dataset is missing: run `hopline generate`") as caught:
        dataset.split("train")
    assert f"{remote.root}/{remote.key('train', 3)}" in str(caught.value)
    remote.check(dataset, "test")


def test_a_truncated_shard_is_named(remote: Remote) -> None:
    data = (remote.folder / remote.index.splits["valid"].shards[0].file).read_bytes()
    open_store(remote.root).put_bytes(remote.key("valid"), data[:-100])
    with pytest.raises(IntegrityError, match=r"valid-00000\.arrow is truncated") as caught:
        open_dataset(remote.root, remote.hash).split("valid")
    assert "\n" not in str(caught.value)
    assert remote.cached() == {}


@pytest.mark.parametrize("fault", ["cut", "refuse", "drop"])
def test_a_transfer_that_is_cut_goes_on(
    remote: Remote,
    fault_proxy: FaultProxy,  # noqa: F811
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", fault_proxy.url)
    dataset = open_dataset(remote.root, remote.hash)
    fault_proxy.plan = [("GET", fault)] * 2
    remote.check(dataset, "train")
    assert fault_proxy.plan == []


def test_an_altered_transfer_is_found(
    remote: Remote,
    fault_proxy: FaultProxy,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", fault_proxy.url)
    dataset = open_dataset(remote.root, remote.hash)
    fault_proxy.plan = [("GET", "flip")] * 40
    with pytest.raises(HoplineError, match=r"valid-00000\.arrow"):
        dataset.split("valid")
    assert remote.cached() == {}


def test_what_was_used_longest_ago_makes_room(remotes: list[Remote], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = remotes
    limit = int(2.5 * max(remote.bytes for remote in remotes))
    monkeypatch.setenv("HOPLINE_CACHE_BYTES", str(limit))
    for age, remote in ((300, first), (200, second)):
        remote.check(open_dataset(remote.root, remote.hash))
        for split in remote.index.splits.values():
            for shard in split.shards:
                os.utime(remote.cached()[shard.sha256], (time.time() - age,) * 2)
    opened = open_dataset(first.root, first.hash)
    first.check(opened)
    third.check(open_dataset(third.root, third.hash))
    kept = set(first.cached())
    digests = [{s.sha256 for split in remote.index.splits.values() for s in split.shards} for remote in remotes]
    assert digests[0] <= kept, "it was used again after the second"
    assert not digests[1] <= kept
    assert digests[2] <= kept
    assert first.cached_bytes() <= limit


def test_what_is_mapped_can_be_removed(remotes: list[Remote], monkeypatch: pytest.MonkeyPatch) -> None:
    """A training whose shards another process removes goes on."""
    first, second, _ = remotes
    dataset = open_dataset(first.root, first.hash)
    for name in dataset.index.splits:
        dataset.split(name)
    train = sum(shard.bytes for shard in second.index.splits["train"].shards)
    monkeypatch.setenv("HOPLINE_CACHE_BYTES", str(train))
    open_dataset(second.root, second.hash).split("train")
    assert set(first.cached()) == {shard.sha256 for shard in second.index.splits["train"].shards}
    first.check(dataset)


def test_a_split_that_cannot_fit_is_refused_before_anything_is_fetched(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPLINE_CACHE_BYTES", "20kB")
    with pytest.raises(StoreError, match="bytes of shards are needed at once, and the cache may keep 20000; raise HOP"):
        open_dataset(remote.root, remote.hash).split("train")
    assert remote.cached() == {}


def test_a_disk_without_room_is_found_before_anything_is_fetched(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(remote.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(StoreError, match="the disk has 1000 free; set HOPLINE_CACHE to a folder on a larger disk"):
        open_dataset(remote.root, remote.hash).split("train")
    assert remote.cached() == {}


def test_a_disk_that_becomes_full_is_a_clear_error(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("hopline.storage.s3.copy_verified", full)
    with pytest.raises(StoreError, match="the disk is full") as caught:
        open_dataset(remote.root, remote.hash).split("train")
    assert "set HOPLINE_CACHE to a folder on a larger disk, or lower HOPLINE_CACHE_BYTES" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert remote.cached() == {}


def read(root: str, dataset_hash: str, folder: Path, cache: Path) -> None:
    remote = Remote(root, folder, cache)
    remote.check(open_dataset(root, dataset_hash))


def test_two_processes_may_fetch_at_once(remote: Remote) -> None:
    """The ranks of one machine: one fetches, the others find."""
    context = multiprocessing.get_context("spawn")
    arguments = (remote.root, remote.hash, remote.folder, remote.cache)
    processes = [context.Process(target=read, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(remote.cached()) == len({s.sha256 for split in remote.index.splits.values() for s in split.shards})


def test_a_process_that_is_killed_while_it_fetches_leaves_nothing_in_the_way(
    remote: Remote,
    fault_proxy: FaultProxy,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import sys\nfrom hopline.stages.generate_stage import open_dataset\n"
    code += "open_dataset(sys.argv[1], sys.argv[2]).split('train')\n"
    fault_proxy.plan = [("GET", None), ("GET", "hang"), ("GET", "hang")]
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", fault_proxy.url)
        process = subprocess.Popen([sys.executable, "-c", code, remote.root, remote.hash])
        deadline = time.monotonic() + 60
        while len(fault_proxy.plan) or len(remote.cached()) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    left = {name for name in remote.cached() if len(name) != 64}
    assert left, "it was killed with a shard half written"
    remote.check(open_dataset(remote.root, remote.hash))
    assert not left & set(remote.cached())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 200 << 30), ("500000000", 500_000_000), ("20kB", 20_000), ("3 GiB", 3 << 30), ("1T", 10**12), ("7b", 7)],
)
def test_the_limit_is_a_size(monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    monkeypatch.setenv("HOPLINE_CACHE_BYTES", text)
    assert cache_limit() == expected


@pytest.mark.parametrize("text", ["lots", "-5", "5 XB", "1.5GB"])
def test_what_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HOPLINE_CACHE_BYTES", text)
    with pytest.raises(ConfigError, match="HOPLINE_CACHE_BYTES: found"):
        cache_limit()
