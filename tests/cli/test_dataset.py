"""``hopline dataset``: what it checks, describes and prints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from hopline.config import DatasetConfig, ExampleCounts
from hopline.datasets import Dataset, DatasetIndex, build_dataset, read_examples
from hopline.datasets.shards import open_shard, write_shard
from hopline.graph import ExampleColumns
from hopline.storage import open_store
from hopline.storage.folders import put_folder
from tests.stages.workbench import hopline

COUNTS = ExampleCounts(train=120, valid=20, calibration=10, test=10)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset under a root, named by its hash. Not to be changed."""
    root = tmp_path_factory.mktemp("root")
    folder = root / "new"
    config = DatasetConfig(workers=1, shard_size=40, examples=COUNTS, missing_share=0.4, max_nodes=24)
    index = build_dataset(config, folder)
    (root / "datasets").mkdir()
    return folder.rename(root / "datasets" / index.dataset_hash)


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(built, tmp_path / "dataset"))


def claims(*arguments: str) -> dict[str, tuple[str, str]]:
    """What ``verify --json`` says: status and detail by claim. Its exit code agrees."""
    done = hopline("dataset", "verify", *arguments, "--json")
    said = json.loads(done.stdout)
    found = {claim["name"]: (claim["status"], claim["detail"]) for claim in said["claims"]}
    failed = any(status == "FAIL" for status, _ in found.values())
    assert (done.code, said["ok"]) == (int(failed), not failed)
    return found


def rewrite(folder: Path, split: str, number: int, change) -> None:
    """Alter the rows of a shard, and make the index agree with the file."""
    index = DatasetIndex.load(folder)
    info = index.splits[split].shards[number]
    shard = open_shard(folder / info.file)
    offsets = {group: values.astype(np.int64) for group, values in shard.offsets.items()}
    values = {name: array.copy() for name, array in shard.values.items()}
    change(values)
    new = write_shard(ExampleColumns(values, offsets), folder / info.file, folder)
    shards = [*index.splits[split].shards]
    shards[number] = new
    splits = {**index.splits, split: index.splits[split].model_copy(update={"shards": tuple(shards)})}
    (folder / "index.json").write_bytes(index.model_copy(update={"splits": splits}).to_bytes())


def test_a_whole_dataset_passes(built: Path) -> None:
    found = claims(str(built), "--deep")
    assert {status for status, _ in found.values()} == {"OK"}
    assert list(found)[:3] == ["index", "calibration shards", "calibration counts"]
    assert found["train shards"][1].startswith("3 files, every byte of ")
    assert found["content"][1].startswith(f"{built.name}, computed again from the rows of ")
    assert claims(str(built))["content"][0] == "NOT CHECKED"


def test_claims_are_lines_for_people(built: Path) -> None:
    done = hopline("dataset", "verify", str(built))
    assert done.code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"OK           index: {built.name}, computed again from the digests that it lists"
    assert "NOT CHECKED  content: ask for a --deep check" in lines


def test_an_altered_shard_fails_and_the_rest_is_checked(folder: Path) -> None:
    path = folder / "train-00001.arrow"
    path.write_bytes(path.read_bytes()[:-8])
    found = claims(str(folder), "--deep")
    assert found["train shards"][0] == "FAIL"
    assert str(path) in found["train shards"][1]
    assert found["content"] == ("FAIL", "the shards of train cannot be read")
    assert found["test shards"][0] == found["test counts"][0] == "OK"


def test_a_missing_shard_fails(folder: Path) -> None:
    (folder / "valid-00000.arrow").unlink()
    assert claims(str(folder))["valid shards"][0] == "FAIL"


def test_an_altered_index_fails(folder: Path) -> None:
    path = folder / "index.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1', 1))
    found = claims(str(folder))
    assert list(found) == ["index"]
    assert "the index was altered" in found["index"][1]


def test_rows_that_are_not_the_indexs_are_found_only_by_a_deep_check(folder: Path) -> None:
    """Whoever alters rows can fit the digests of files to them, but not the dataset hash."""

    def other_relation(values: dict) -> None:
        values["edge_relation"][7] ^= 1

    rewrite(folder, "train", 1, other_relation)
    assert claims(str(folder))["train shards"][0] == "OK"
    found = claims(str(folder), "--deep")
    assert found["content"][0] == "FAIL"
    assert "train, block 0: found " in found["content"][1]


def test_counts_that_are_not_the_indexs_are_found(folder: Path) -> None:
    def other_kind(values: dict) -> None:
        values["kind"][0] = (values["kind"][0] + 1) % 6

    rewrite(folder, "train", 2, other_kind)
    found = claims(str(folder))
    assert found["train counts"][0] == "FAIL"
    assert found["train counts"][1].startswith("kinds: found {")


def test_a_kind_that_there_is_not_fails(folder: Path) -> None:
    rewrite(folder, "train", 0, lambda values: values["kind"].fill(99))
    assert claims(str(folder))["train counts"][0] == "FAIL"


def test_a_leakage_that_was_recorded_fails(folder: Path) -> None:
    index = DatasetIndex.load(folder)
    leakage = index.leakage.model_copy(update={"held_out_edges": 3})
    (folder / "index.json").write_bytes(index.model_copy(update={"leakage": leakage}).to_bytes())
    assert claims(str(folder))["leakage gate"][0] == "FAIL"


def test_other_code_is_told(folder: Path) -> None:
    index = DatasetIndex.load(folder)
    generator = index.generator.model_copy(update={"code_digest": "0" * 64})
    (folder / "index.json").write_bytes(index.model_copy(update={"generator": generator}).to_bytes())
    status, detail = claims(str(folder))["generator"]
    assert status == "NOT CHECKED"
    assert detail.endswith("other code than here: 000000000000")


@pytest.mark.parametrize("name", ["path", "uri", "index", "hash", "start"])
def test_a_dataset_has_several_names(built: Path, name: str) -> None:
    root = built.parent.parent
    target = {
        "path": str(built),
        "uri": built.as_uri(),
        "index": f"{built}/index.json",
        "hash": built.name,
        "start": built.name[:12],
    }[name]
    done = hopline("dataset", "show", target, "--root", str(root), "--json")
    assert done.result["dataset_hash"] == built.name


def test_a_folder_named_after_another_hash_fails(built: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(built, tmp_path / ("0" * 64))
    found = claims(str(folder))
    assert found["index"][0] == "FAIL"
    assert "expected 0000" in found["index"][1]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no/such/folder", "no/such/folder/index.json: no such file; no complete dataset is there"),
        ("0123456789ab", "no dataset has a hash that begins with 0123456789ab; give its folder, or another --root"),
        ("gs://bucket/data", "'gs://bucket/data' is not a location"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "show", "head"])
def test_what_is_not_there_is_one_line(command: str, target: str, message: str, tmp_path: Path) -> None:
    assert message in hopline("dataset", command, target, "--root", str(tmp_path)).error


def test_several_datasets_of_one_start(built: Path, tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    start = built.name[:8]
    for end in ("a" * 56, "b" * 56):
        shutil.copytree(built, tmp_path / "datasets" / (start + end))
    error = hopline("dataset", "show", start, "--root", str(tmp_path)).error
    assert f"2 datasets have a hash that begins with {start}; give more digits of it" in error


def test_show_is_the_index_in_tables(built: Path) -> None:
    done = hopline("dataset", "show", str(built))
    assert done.code == 0
    assert built.name in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["examples", "120", "20", "10", "10"] in rows
    assert ["shards", "3", "1", "1", "1"] in rows
    index = DatasetIndex.load(built)
    splits = [index.splits[name] for name in ("train", "valid", "calibration", "test")]
    assert ["multi_hop", *(str(split.kinds["multi_hop"]) for split in splits)] in rows
    assert ["missing", *(str(split.statuses.get("missing", 0)) for split in splits)] in rows
    assert any(line and "█" in line[1] for line in map(str.split, done.stdout.splitlines()) if len(line) > 1)


def test_show_counts_every_graph_of_a_small_dataset_once(built: Path) -> None:
    found = hopline("dataset", "show", str(built), "--json").result
    dataset = Dataset.open(built)
    units = {name: dataset.split(name) for name in dataset.index.splits}
    nodes = [split.example(unit).graph.num_nodes for split in units.values() for unit in range(len(split))]
    edges = [split.example(unit).graph.num_edges for split in units.values() for unit in range(len(split))]
    assert found["graphs"]["examples"] == found["graphs"]["of"] == 160
    for name, values in (("nodes", nodes), ("edges", edges)):
        said = found["graphs"][name]
        assert (said["smallest"], said["largest"]) == (min(values), max(values))
        assert said["median"] == np.median(values)
        for start, end, count in said["bins"]:
            assert count == sum(start <= value <= end for value in values)
        assert sum(count for _, _, count in said["bins"]) == 160
    assert found["splits"]["train"]["kinds"] == dataset.index.splits["train"].kinds


def test_show_looks_into_a_few_shards_of_a_large_dataset(tmp_path: Path) -> None:
    config = DatasetConfig(workers=1, shard_size=10, examples=COUNTS, max_nodes=24)
    index = build_dataset(config, tmp_path)
    for shard in index.splits["train"].shards:
        if shard.file not in {f"train-{number:05d}.arrow" for number in (0, 4, 7, 11)}:
            (tmp_path / shard.file).unlink()
    found = hopline("dataset", "show", str(tmp_path), "--json").result["graphs"]
    assert (found["examples"], found["of"]) == (80, 160)


def test_head_is_readable(built: Path) -> None:
    done = hopline("dataset", "head", str(built), "-n", "60", "--facts", "3")
    assert done.code == 0
    blocks = done.stdout.rstrip("\n").split("\n\n")
    assert len(blocks) == 60
    split = Dataset.open(built).split("train")
    for number, block in enumerate(blocks):
        example, lines = split.example(number), block.splitlines()
        assert lines[0].startswith(f"example {number}: {example.kind.value}, {example.hops} hop")
        assert lines[1].startswith("  question  ")
        assert "?" in lines[1]
        assert lines[2] == f"  status    {example.status.value}"
        assert f"  graph     {example.graph.num_nodes} nodes, {example.graph.num_edges} facts" in lines
        assert f"            ... and {example.graph.num_edges - 3} more" in lines
        assert ("  twin " in block) == (example.pair is not None)
        assert ("  evidence  " in block) == bool(example.supporting_paths)
    assert any("  twin " in block for block in blocks)


def test_head_as_json_is_the_exchange_format(built: Path, tmp_path: Path) -> None:
    done = hopline("dataset", "head", str(built), "-n", "50", "--split", "valid", "--json")
    assert done.code == 0
    path = tmp_path / "examples.jsonl"
    path.write_text(done.stdout)
    dataset = Dataset.open(built)
    found = read_examples(path, dataset.vocabulary).examples
    assert len(found) == 20, "all that the split has"
    for number, imported in enumerate(found):
        expected = dataset.split("valid").example(number)
        assert imported.split == "valid"
        assert imported.example.query == expected.query
        assert imported.example.answers == expected.answers
        assert imported.example.graph.edge_index.tolist() == expected.graph.edge_index.tolist()


def test_head_reads_only_the_shards_that_it_needs(folder: Path) -> None:
    (folder / "train-00002.arrow").unlink()
    assert hopline("dataset", "head", str(folder), "-n", "80").code == 0
    assert "train-00002.arrow" in hopline("dataset", "head", str(folder), "-n", "81").error


def test_head_of_a_split_that_there_is_not(built: Path) -> None:
    error = hopline("dataset", "head", str(built), "--split", "dev").error
    assert "no split 'dev'; there are calibration, test, train, valid" in error


@pytest.mark.s3
def test_a_remote_dataset_is_checked_where_it_lies(built: Path, s3_root: str, tmp_path: Path) -> None:
    """Not in the cache, which has the right bytes of it."""
    store = open_store(s3_root)
    put_folder(store, f"datasets/{built.name}", built)
    uri = f"{s3_root}/datasets/{built.name}"
    assert {status for status, _ in claims(uri, "--deep").values()} == {"OK"}
    assert not (tmp_path / "cache" / "shards").exists()
    local = hopline("dataset", "show", str(built), "--json").result
    assert hopline("dataset", "show", built.name[:10], "--root", s3_root, "--json").result == {
        **local,
        "dataset_uri": uri,
    }
    assert (tmp_path / "cache" / "shards").exists()
    assert hopline("dataset", "head", uri).stdout == hopline("dataset", "head", str(built)).stdout

    store.put_bytes(f"datasets/{built.name}/test-00000.arrow", b"something else")
    store.delete(f"datasets/{built.name}/valid-00000.arrow")
    found = claims(uri)
    assert {name for name, (status, _) in found.items() if status == "FAIL"} == {"test shards", "valid shards"}
    assert f"{uri}/valid-00000.arrow" in found["valid shards"][1]
