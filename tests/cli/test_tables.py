"""Plain tables."""

from __future__ import annotations

from hopline.cli.tables import table


def test_columns_are_as_wide_as_their_cells() -> None:
    text = table(("name", "n"), [["a", "1"], ["longer", "1,000"]], right=(1,))
    assert text.splitlines() == ["name        n", "a           1", "longer  1,000"]


def test_no_rows_leave_the_heads() -> None:
    assert table(("a", "b"), []) == "a  b"


def test_no_line_ends_in_blanks() -> None:
    assert table(("a", "wide head"), [["x", ""], ["y", "z"]]).splitlines() == ["a  wide head", "x", "y  z"]
