"""Reading triples files: ids, splits, and every fault named with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopline.datasets.triples import load_triples
from hopline.errors import DataError


def load(folder: Path, share: float = 0.0, seed: int = 0):
    return load_triples(folder, seed=seed, calibration_share=share)


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
        ({"test": "\n\na hates b\n"}, r"test\.txt:3: relation 'hates' is in no training triple"),
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
