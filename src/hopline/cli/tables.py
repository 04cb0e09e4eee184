"""Plain tables on stdout: columns as wide as their cells, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table"]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Lines of a table; the columns with the numbers ``right`` end flush, the others begin flush."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
