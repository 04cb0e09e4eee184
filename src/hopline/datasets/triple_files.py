"""Files of triples: which of a source's files they are, and what their lines say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopline.datasets.textfile import numbered_lines
from hopline.errors import DataError

__all__ = ["TRIPLE_FILES", "TRIPLE_SUFFIXES", "TripleFile", "is_triples", "read_triples", "triple_paths"]

TRIPLE_FILES: Final = ("train", "valid", "test")
TRIPLE_SUFFIXES: Final = (".txt", ".tsv", ".txt.gz", ".tsv.gz")

_HEADS: Final = {"head", "subject", "source", "head_entity", "from"}
_RELATIONS: Final = {"relation", "predicate", "rel", "property", "edge", "label", "type"}
_TAILS: Final = {"tail", "object", "target", "tail_entity", "to"}
"""What people call the columns. Single letters are left out: they are as likely to be names."""

Names = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class TripleFile:
    """What a file says: triples with the numbers of their lines."""

    path: Path
    triples: tuple[tuple[int, Names], ...]
    header: bool


def is_triples(path: Path) -> bool:
    """Whether a file is one of triples, by its name."""
    return path.name.endswith(TRIPLE_SUFFIXES) and not path.name.startswith(".")


def triple_paths(place: Path, *, given: bool) -> dict[str, Path]:
    """The files of a source of triples by name.

    Args:
        place: a folder, or one file.
        given: the files are train, valid and test; otherwise every file of triples belongs to the source.

    Raises:
        DataError: a file is missing, or there is one too many.
    """
    if place.is_file():
        if given:
            raise DataError(
                f"{place}: one file of triples, which does not say what is for valid and test; set dataset.triple_split to "
                "triple or entity"
            )
        return {place.name: place}
    if given and place.exists() and not place.is_dir():
        raise DataError(f"{place}: is neither a file nor a folder; dataset.source names one or the other")
    if given:
        return {name: _split_file(place, name) for name in TRIPLE_FILES}
    if not place.is_dir():
        raise DataError(f"{place}: is neither a file nor a folder; dataset.source names one or the other")
    paths = {path.name: path for path in sorted(place.iterdir()) if path.is_file() and is_triples(path)}
    if not paths:
        raise DataError(f"{place}: no files of triples there; expected {', '.join(TRIPLE_SUFFIXES)}")
    return paths


def read_triples(path: Path, *, header: str = "auto", sha256: str | None = None) -> TripleFile:
    """Read a file. Fields are divided by tabs, or by blanks where a line has no tab; empty lines are passed over.

    Args:
        path: the file.
        header: ``present``, ``absent``, or ``auto``: the first line is one if it names columns.
        sha256: as for :func:`~hopline.datasets.textfile.numbered_lines`.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or a line has not three fields; the message names file and line.
    """
    triples: list[tuple[int, Names]] = []
    has_header = False
    first = True
    for number, raw in numbered_lines(path, sha256=sha256):
        try:
            text = raw.decode("utf-8").strip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{number}: not UTF-8 text (byte {error.start + 1} of the line is 0x{raw[error.start]:02x}); "
                "save the file as UTF-8"
            ) from None
        if number == 1:
            text = text.removeprefix("\ufeff")
        if not text.strip():
            continue
        fields = [field.strip() for field in (text.split("\t") if "\t" in text else text.split())]
        if len(fields) != 3 or not all(fields):
            count = sum(map(bool, fields))
            raise DataError(
                f"{path}:{number}: found {count} field{'s' * (count != 1)}, expected 3: "
                "head, relation and tail, divided by tabs"
            )
        names = (fields[0], fields[1], fields[2])
        if first and (header == "present" or (header == "auto" and _names_columns(names))):
            has_header = True
        else:
            triples.append((number, names))
        first = False
    return TripleFile(path, tuple(triples), has_header)


def _names_columns(names: Names) -> bool:
    head, relation, tail = (name.lower().lstrip("#").strip() for name in names)
    return head in _HEADS and relation in _RELATIONS and tail in _TAILS


def _split_file(folder: Path, name: str) -> Path:
    found = [path for suffix in TRIPLE_SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
    if not found:
        raise DataError(
            f"{folder / name}.txt: no such file; expected train.txt, valid.txt and test.txt with a line "
            "'head<TAB>relation<TAB>tail' for each triple; other files need dataset.triple_split: triple or entity"
        )
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name} are there; keep one")
    return found[0]
