"""Rows of many shards at once, against rows of each alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.config import DatasetConfig
from hopline.datasets import Dataset, build_dataset, concat_columns, take_rows
from hopline.datasets.mapped import MappedShards
from hopline.datasets.shards import Shard, open_shard
from hopline.errors import DataError
from hopline.graph import COLUMNS, GROUPS


@pytest.fixture(scope="module")
def shards(small_config: DatasetConfig, tmp_path_factory: pytest.TempPathFactory) -> list[Shard]:
    """All shards of a dataset of small ones, whatever their split."""
    folder = tmp_path_factory.mktemp("mapped")
    build_dataset(small_config.model_copy(update={"shard_size": 40}), folder)
    return [open_shard(path) for path in sorted(folder.glob("*.arrow"))]


@pytest.fixture(scope="module")
def mapped(shards: list[Shard]) -> MappedShards:
    return MappedShards(shards)


def test_it_knows_the_rows_of_its_shards(shards: list[Shard], mapped: MappedShards) -> None:
    assert len(shards) > 20
    assert mapped.num_rows.tolist() == [shard.num_rows for shard in shards]
    for number, shard in enumerate(shards):
        for name in ("example_id", "kind", "is_twin"):
            np.testing.assert_array_equal(mapped.column(name, number), shard.values[name])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_rows_are_those_of_their_shards_in_the_order_given(
    shards: list[Shard], mapped: MappedShards, seed: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    shard = rng.integers(0, len(shards), count)
    rows = rng.integers(0, mapped.num_rows[shard], count)
    found = mapped.take(shard, rows)
    pieces = [
        take_rows(shards[s].values, shards[s].offsets, np.array([row])) for s, row in zip(shard, rows, strict=True)
    ]
    expected = concat_columns(pieces or [take_rows(shards[0].values, shards[0].offsets, np.zeros(0, np.int64))])
    for name, spec in COLUMNS.items():
        assert found.values[name].dtype == np.dtype(spec.dtype)
        np.testing.assert_array_equal(found.values[name], expected.values[name], err_msg=name)
    for group in GROUPS:
        np.testing.assert_array_equal(found.offsets[group], expected.offsets[group], err_msg=group)
    for group in ("node", "edge"):
        lengths = mapped.lengths(group, shard, rows, rows + 1)
        np.testing.assert_array_equal(lengths, np.diff(expected.offsets[group]))


def test_a_row_outside_its_shard_is_an_index_error(mapped: MappedShards) -> None:
    """Memory that belongs to nobody's column is never read."""
    for row in (-1, int(mapped.num_rows[1])):
        with pytest.raises(IndexError, match="outside its shard"):
            mapped.take(np.array([0, 1]), np.array([0, row]))
    with pytest.raises(IndexError):
        mapped.take(np.array([len(mapped.num_rows)]), np.array([0]))


def test_rows_outlive_the_shards_that_they_were_mapped_by(small_config: DatasetConfig, tmp_path: Path) -> None:
    """The maps live as long as what reads them."""
    build_dataset(small_config.model_copy(update={"shard_size": 100}), tmp_path)
    paths = sorted(tmp_path.glob("train-*.arrow"))
    mapped = MappedShards(open_shard(path) for path in paths)
    for path in paths:
        path.unlink()
    rows = mapped.take(np.arange(len(paths)), np.zeros(len(paths), np.int64))
    assert rows.values["example_id"].tolist() == [100 * number for number in range(len(paths))]


def test_no_shards_have_no_rows() -> None:
    mapped = MappedShards([])
    none = np.zeros(0, np.int64)
    assert mapped.take(none, none).num_rows == 0


@pytest.mark.parametrize("offset", [-3, 1 << 30])
def test_a_shard_whose_offsets_lead_out_of_it_is_not_opened(synthetic: Path, tmp_path: Path, offset: int) -> None:
    """Whoever made it, and whatever its digest."""
    data = (synthetic / "test-00000.arrow").read_bytes()
    offsets = open_shard(synthetic / "test-00000.arrow").offsets["anchor"]
    altered = np.append(offsets[:-1], np.int32(offset))
    assert data.count(offsets.tobytes()) == 1
    (tmp_path / "x.arrow").write_bytes(data.replace(offsets.tobytes(), altered.tobytes()))
    with pytest.raises(DataError, match=r"x\.arrow: not an Arrow file"):
        open_shard(tmp_path / "x.arrow")


def test_a_twin_without_its_example_is_an_error(synthetic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard of somebody else's making, with digests to match."""
    from hopline.datasets import dataset as module
    from hopline.errors import IntegrityError

    dataset = Dataset.open(synthetic)
    original, kept = open_shard, []

    def altered(path: Path) -> Shard:
        shard = original(path)
        twins = shard.values["is_twin"].copy()
        twins[np.flatnonzero(twins)[0]] = 0
        twins[0] = 1
        kept.append(twins)
        return Shard({**shard.values, "is_twin": twins}, shard.offsets)

    monkeypatch.setattr(module, "open_shard", altered)
    with pytest.raises(IntegrityError, match="a twin does not follow its example"):
        dataset.split("test")
