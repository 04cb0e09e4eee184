"""Reading triples files: ids, splits, and every fault named with file and line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopline.config import DatasetConfig
from hopline.datasets import snapshot_source
from hopline.datasets.import_report import UnknownRelation
from hopline.datasets.triples import TripleData, load_triples
from hopline.errors import ConfigError, DataError


def load(place: Path, share: float = 0.0, seed: int = 0, **keys: Any) -> TripleData:
    config = DatasetConfig(source=str(place), calibration_share=share, seed=seed, **keys)
    return load_triples(snapshot_source(config, None), config)


def test_names_become_ids_and_unseen_entities_come_last(write_triples) -> None:
    data = load(write_triples(test="d likes c\naaa knows a\n"))
    assert data.relations == ("knows", "likes")
    assert data.entities == ("a", "b", "c", "d", "aaa")
    assert data.unseen == 1
    assert data.triples["train"].tolist()[:2] == [[0, 1, 1], [1, 1, 2]]
    assert data.triples["test"].tolist() == [[3, 1, 2], [4, 0, 0]]
    assert data.triples["calibration"].shape == (0, 3)


def test_tsv_blanks_carriage_returns_a_byte_order_mark_and_empty_lines(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes(b"\xef\xbb\xbfa b\tlikes\tc\r\n\r\n  \nc\tlikes\ta b\n")
    (tmp_path / "valid.txt").write_bytes(b"c likes c")
    (tmp_path / "test.txt").write_bytes(b"a b\tlikes\ta b\n")
    data = load(tmp_path)
    assert data.entities == ("a b", "c")
    assert data.triples["valid"].tolist() == [[1, 0, 1]]


def test_repeated_triples_are_kept_once_and_leave_later_splits(write_triples) -> None:
    data = load(write_triples(train="a r b\na r b\nb r c\n", valid="a r b\nc r a\n", test="c r a\nc r b\n"))
    assert len(data.triples["train"]) == 2
    assert data.triples["valid"].tolist() == [[2, 0, 0]]
    assert data.triples["test"].tolist() == [[2, 0, 1]]
    assert data.dropped == {"valid": 1, "test": 1}


def test_calibration_is_carved_out_of_valid_by_a_salted_hash(write_triples) -> None:
    valid = "".join(f"a r x{i}\n" for i in range(400))
    folder = write_triples(train="a r b\n", valid=valid, test="b r a\n")
    data = load(folder, 0.3)
    assert len(data.triples["calibration"]) == pytest.approx(120, abs=30)
    carved = {tuple(triple) for triple in data.triples["calibration"].tolist()}
    assert not carved & {tuple(triple) for triple in data.triples["valid"].tolist()}
    assert len(carved) + len(data.triples["valid"]) == 400
    other = load(folder, 0.3, seed=1)
    assert {tuple(triple) for triple in other.triples["calibration"].tolist()} != carved


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": "a likes b\na b\n"}, r"train\.txt:2: found 2 fields, expected 3: head, relation and tail"),
        ({"valid": "a\tlikes\tb\tc\n"}, r"valid\.txt:1: found 4 fields, expected 3"),
        ({"valid": "a\tlikes\t\n"}, r"valid\.txt:1: found 2 fields, expected 3"),
        (
            {"test": "\n\na hates b\n"},
            r"test\.txt: no triples are left for test \(training has none of their relations\)",
        ),
        ({"valid": ""}, r"valid\.txt: no triples; expected at least one line"),
        ({"test": None}, r"test\.txt: no such file; expected train\.txt, valid\.txt and test\.txt"),
        ({"test": "a likes b\n"}, r"test\.txt: no triples are left for test \(all repeated\)"),
    ],
)
def test_every_fault_is_one_line_that_names_the_place(write_triples, splits, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(write_triples(**splits))
    assert "\n" not in str(caught.value)


def test_text_that_is_not_utf8_is_named_with_its_line(write_triples, tmp_path: Path) -> None:
    write_triples()
    (tmp_path / "train.txt").write_bytes(b"a\tlikes\tb\nb\tl\xefkes\ta\n")
    with pytest.raises(DataError, match=r"train\.txt:2: not UTF-8 text \(byte 4 of the line is 0xef\)"):
        load(tmp_path)


def test_a_valid_split_used_up_by_calibration_is_an_error(write_triples) -> None:
    with pytest.raises(DataError, match=r"valid\.txt: no triples are left for valid \(all were carved out"):
        load(write_triples(), 1.0)


def test_relations_that_training_does_not_have_are_left_out_and_reported(write_triples) -> None:
    test = "d likes c\na hates b\nb hates c\nc fears d\n"
    data = load(write_triples(valid="c likes d\nd knows b\n\nd hates b\n", test=test))
    assert data.relations == ("knows", "likes")
    assert [len(data.triples[name]) for name in ("train", "valid", "test")] == [6, 2, 1]
    assert data.report.unknown_relations == (
        UnknownRelation(relation="hates", split="valid", count=1, first="valid.txt:4"),
        UnknownRelation(relation="hates", split="test", count=2, first="test.txt:2"),
        UnknownRelation(relation="fears", split="test", count=1, first="test.txt:4"),
    )
    (warning,) = data.report.warnings()
    assert warning == (
        "4 of test, valid left out: relations that training does not have: 'fears', 'hates' (first: valid.txt:4)"
    )
    assert data.report.items == {"train.txt": 6, "valid.txt": 3, "test.txt": 4}


@pytest.mark.parametrize(
    ("line", "header", "taken"),
    [
        ("head relation tail", "auto", True),
        ("#Subject Predicate Object", "auto", True),
        ("h r t", "auto", False),
        ("source likes target", "auto", False),
        ("head relation tail", "absent", False),
        ("a likes b", "present", True),
    ],
)
def test_a_header_line(write_triples, line: str, header: str, taken: bool) -> None:
    data = load(
        write_triples(
            train=f"{line}\nb knows a\na likes b\n", valid="a knows b\nb knows b\n", test="b likes a\nb likes b\n"
        ),
        header=header,
    )
    assert len(data.triples["train"]) == 3 - taken
    assert data.report.headers == (
        ("train.txt", "valid.txt", "test.txt") if header == "present" else ("train.txt",) * taken
    )


def test_compressed_files(write_triples, tmp_path: Path) -> None:
    folder = write_triples()
    plain = load(folder)
    for path in list(folder.glob("*.txt")):
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = load(folder)
    assert packed.entities == plain.entities
    assert packed.triples["train"].tolist() == plain.triples["train"].tolist()
    (folder / "valid.txt.gz").write_bytes(gzip.compress(b"c likes d\nd knows\n"))
    with pytest.raises(DataError, match=r"valid\.txt\.gz:2: found 2 fields"):
        load(folder)
    (folder / "valid.txt.gz").write_bytes(gzip.compress(b"c likes d\n" * 50)[:-9])
    with pytest.raises(DataError, match=r"valid\.txt\.gz: cannot be unpacked: .*; expected a whole gzip file"):
        load(folder)
    (folder / "valid.txt.gz").write_bytes(b"c likes d\n")
    with pytest.raises(DataError, match=r"valid\.txt\.gz: cannot be unpacked: Not a gzipped file"):
        load(folder)


def test_two_files_for_a_split_are_one_too_many(write_triples, tmp_path: Path) -> None:
    write_triples()
    (tmp_path / "valid.tsv").write_text("a likes b\n")
    with pytest.raises(DataError, match=r"both valid\.txt and valid\.tsv are there; keep one"):
        load(tmp_path)


@pytest.fixture
def one_file(tmp_path: Path) -> Callable[..., Path]:
    """A file of triples between numbered entities; ``first`` is the first of them."""

    def write(name: str = "facts.tsv", entities: int = 60, first: int = 0) -> Path:
        names = [f"e{number}" for number in range(first, first + entities)]
        lines = [
            f"{a}\tr{place % 3}\t{names[(place + 7 * (place // entities) + 5) % entities]}"
            for place, a in enumerate(names * 6)
        ]
        (tmp_path / name).write_text("\n".join(lines))
        return tmp_path / name

    return write


def named(data: TripleData, split: str) -> set[tuple[str, str, str]]:
    return {(data.entities[h], data.relations[r], data.entities[t]) for h, r, t in data.triples[split].tolist()}


def test_one_file_needs_a_rule(one_file) -> None:
    path = one_file()
    with pytest.raises(
        DataError, match=r"facts\.tsv: one file of triples, .* set dataset\.triple_split to triple or entity"
    ):
        load(path)
    data = load(path, triple_split="triple", share=0.5)
    sizes = {name: len(data.triples[name]) for name in data.triples}
    assert sum(sizes.values()) == len({tuple(line.split("\t")) for line in path.read_text().splitlines()})
    assert sizes["test"] == pytest.approx(0.1 * sum(sizes.values()), abs=12)
    assert min(sizes.values()) > 0


def test_a_triple_stays_in_its_split_while_the_source_grows(one_file) -> None:
    path = one_file()
    before = load(path.parent, triple_split="triple")
    one_file("facts-2.tsv", first=40)
    after = load(path.parent, triple_split="triple")
    assert set(after.report.items) == {"facts.tsv", "facts-2.tsv"}
    for name in ("train", "valid", "test"):
        assert named(before, name) < named(after, name)
    salted = load(path.parent, triple_split="triple", split_seed=5)
    assert named(salted, "test") != named(after, "test")
    assert named(load(path.parent, triple_split="triple", seed=5), "test") == named(salted, "test")
    assert named(load(path.parent, triple_split="triple", seed=5, split_seed=0), "test") == named(after, "test")


def test_a_triple_and_its_reverse_stay_together(one_file) -> None:
    path = one_file()
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    path.write_text("\n".join("\t".join(line) for line in [*lines, *(line[::-1] for line in lines)]))
    data = load(path, triple_split="triple")
    for name in ("train", "valid", "test"):
        triples = named(data, name)
        assert all((t, r, h) in triples for h, r, t in triples)


def test_splits_by_entity_share_none(one_file) -> None:
    path = one_file(entities=200)
    data = load(path, triple_split="entity", valid_share=0.3, test_share=0.3, share=0.5)
    entities = {name: {e for h, _, t in named(data, name) for e in (h, t)} for name in data.triples}
    assert all(entities.values())
    assert not entities["train"] & (entities["valid"] | entities["calibration"] | entities["test"])
    assert not entities["test"] & (entities["valid"] | entities["calibration"])
    assert data.report.shared_entities == 0
    assert data.report.crossing_triples > 0
    assert any("their entities are in different splits" in text for text in data.report.warnings())
    with pytest.raises(
        DataError, match=r"no triples are left for valid \(dataset\.triple_split entity with this share"
    ):
        load(path, triple_split="entity", valid_share=0.0)


def test_a_whole_graph_has_to_be_allowed(one_file) -> None:
    path = one_file()
    with pytest.raises(
        ConfigError, match=r"dataset\.graph is full, but .* has 60 entities and dataset\.max_nodes is 59"
    ):
        load(path, triple_split="triple", graph="full", max_nodes=59)
    assert load(path, triple_split="triple", graph="full", max_nodes=60).num_entities == 60


def test_a_file_that_changes_after_it_was_hashed_is_refused(write_triples, tmp_path: Path) -> None:
    config = DatasetConfig(source=str(write_triples()))
    source = snapshot_source(config, None)
    (tmp_path / "test.txt").write_text("d likes b\n")
    with pytest.raises(
        DataError, match=r"test\.txt: changed since it was hashed: found sha256 \w+, expected \w+; run again"
    ):
        load_triples(source, config)
