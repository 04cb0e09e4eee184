"""Reading: random access across shards, against reading one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.config import DatasetConfig
from hopline.datasets import Dataset, Split, build_dataset, columns_from_examples
from hopline.datasets.shards import open_shard, write_shard
from hopline.errors import DataError
from hopline.graph import COLUMNS, GROUPS, STATUSES, Status


@pytest.fixture(scope="module")
def split(small_config: DatasetConfig, tmp_path_factory: pytest.TempPathFactory) -> Split:
    """A split of eight shards."""
    folder = tmp_path_factory.mktemp("shards")
    build_dataset(small_config.model_copy(update={"shard_size": 90}), folder)
    return Dataset.open(folder).split("train")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 699), min_size=1, max_size=30))
def test_units_come_in_the_order_asked_for_with_their_twins(split: Split, units: list[int]) -> None:
    columns = split.columns(np.array(units))
    expected = columns_from_examples([split.example(unit) for unit in units])
    for name in COLUMNS:
        np.testing.assert_array_equal(columns.values[name], expected.values[name], err_msg=name)
    for group in GROUPS:
        np.testing.assert_array_equal(columns.offsets[group], expected.offsets[group], err_msg=group)
    assert columns.values["example_id"][columns.values["is_twin"] == 0].tolist() == units


def test_arrays_by_unit_are_those_of_the_examples(split: Split) -> None:
    assert len(split) == len(split.kinds) == len(split.hops) == len(split.statuses) == 700
    for unit in range(0, 700, 37):
        example = split.example(unit)
        assert example.example_id == unit
        assert STATUSES[split.statuses[unit]] is example.status
        assert split.hops[unit] == max(example.hops, example.pair.hops if example.pair is not None else 0)
        assert (example.pair is not None) == (example.status is Status.MISSING)


def test_a_batch_holds_the_rows_of_its_units(split: Split) -> None:
    units = np.arange(0, 700, 11)
    batch = split.batch(units)
    assert batch.num_graphs == split.columns(units).num_rows
    assert batch.example_id[~batch.is_twin].tolist() == units.tolist()
    twins = np.flatnonzero(batch.is_twin.numpy())
    assert (batch.status.numpy()[twins - 1] == STATUSES.index(Status.MISSING)).all()
    assert (batch.status.numpy()[twins] == STATUSES.index(Status.SUPPORTED)).all()


@pytest.mark.parametrize("units", [[-1], [700], []])
def test_units_outside_the_split_are_an_index_error(split: Split, units: list[int]) -> None:
    with pytest.raises(IndexError, match=r"\[0, 700\)"):
        split.columns(np.array(units, dtype=np.int64))


def test_a_shard_is_an_arrow_file_that_others_can_read(synthetic: Path) -> None:
    with pa.memory_map(str(synthetic / "test-00000.arrow")) as source, pa.ipc.open_file(source) as reader:
        table = reader.read_all()
    split = Dataset.open(synthetic).split("test")
    assert table.column_names == list(COLUMNS)
    row = table.slice(0, 1).to_pylist()[0]
    example = split.example(0)
    assert row["edge_source"] == example.graph.edge_index[0].tolist()
    assert [tuple(path) for path in row["step"]] == [*example.supporting_paths, *example.competing_paths]


def test_a_shard_is_mapped_not_read(synthetic: Path) -> None:
    shard = open_shard(synthetic / "train-00000.arrow")
    for name, values in shard.values.items():
        assert not values.flags.owndata, name
        assert not values.flags.writeable, name


def test_what_is_no_shard_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(b"nothing like an Arrow file")
    with pytest.raises(DataError, match=r"x\.arrow: not an Arrow file"):
        open_shard(tmp_path / "x.arrow")
    batch = pa.record_batch({"a": [1]})
    with pa.ipc.new_file(str(tmp_path / "y.arrow"), batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(DataError, match=r"y\.arrow: not a shard of this version"):
        open_shard(tmp_path / "y.arrow")


def test_a_shard_is_in_place_at_once_and_leaves_nothing_else(tmp_path: Path, split: Split) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    info = write_shard(split.columns(np.arange(5)), tmp_path / "x.arrow", scratch)
    assert info.units == 5
    assert info.bytes == (tmp_path / "x.arrow").stat().st_size
    assert list(scratch.iterdir()) == []


def test_sizes_of_units_come_from_the_offsets(split: Split) -> None:
    units = np.array([5, 699, 5, 0, 90, 89])
    sizes = split.sizes(units)
    batches = [split.batch(np.array([unit])) for unit in units]
    assert sizes.rows.tolist() == [batch.num_graphs for batch in batches]
    assert sizes.nodes.tolist() == [batch.num_nodes for batch in batches]
    assert sizes.edges.tolist() == [batch.num_edges for batch in batches]
    with pytest.raises(IndexError, match=r"\[0, 700\)"):
        split.sizes(np.array([700]))
