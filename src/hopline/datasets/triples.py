"""Triples files: ``head relation tail`` on each line, for train, valid and test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopline.datasets.splits import is_calibration
from hopline.errors import DataError

__all__ = ["TRIPLE_FILES", "TripleData", "load_triples", "triple_file"]

TRIPLE_FILES: Final = ("train", "valid", "test")
_SUFFIXES: Final = (".txt", ".tsv")

Names = tuple[str, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class TripleData:
    """The triples of a source as ids.

    Attributes:
        relations: names, sorted; the id of a relation is its place.
        entities: names; those of the training triples first, sorted, then the others, sorted.
        triples: for each split, int64 ``[n, 3]`` of head, relation, tail, in the order of the file, each once.
        dropped: how many triples of a split were left out because an earlier split has them.
        unseen: how many entities are in no training triple.
    """

    relations: tuple[str, ...]
    entities: tuple[str, ...]
    triples: Mapping[str, NDArray[np.int64]]
    dropped: Mapping[str, int]
    unseen: int

    @property
    def num_relations(self) -> int:
        return len(self.relations)

    @property
    def num_entities(self) -> int:
        return len(self.entities)


def triple_file(folder: Path, name: str) -> Path:
    """The file of a split in a folder of triples. DataError if there is none."""
    for suffix in _SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    raise DataError(
        f"{folder / name}.txt: no such file; expected train.txt, valid.txt and test.txt with a line "
        "'head<TAB>relation<TAB>tail' for each triple"
    )


def load_triples(folder: Path, *, seed: int, calibration_share: float) -> TripleData:
    """Read the triples of a folder, and carve calibration out of valid by a salted hash of each triple.

    Raises:
        DataError: a file is missing, empty or not UTF-8, a line has not three fields, valid or test uses a relation
            that train does not have, or a split is left without triples. The message names file and line.
    """
    paths = {name: triple_file(folder, name) for name in TRIPLE_FILES}
    named = {name: list(_read(path)) for name, path in paths.items()}
    for name, path in paths.items():
        if not named[name]:
            raise DataError(f"{path}: no triples; expected at least one line 'head<TAB>relation<TAB>tail'")
    relations = sorted({triple[1] for _, triple in named["train"]})
    relation_ids = {relation: index for index, relation in enumerate(relations)}
    for name in ("valid", "test"):
        for line, (_, relation, _) in named[name]:
            if relation not in relation_ids:
                raise DataError(
                    f"{paths[name]}:{line}: relation '{relation}' is in no training triple; a model cannot learn it: "
                    "remove the line, or add training triples"
                )
    seen = {entity for _, (head, _, tail) in named["train"] for entity in (head, tail)}
    every = {entity for lines in named.values() for _, (head, _, tail) in lines for entity in (head, tail)}
    entities = sorted(seen) + sorted(every - seen)
    entity_ids = {entity: index for index, entity in enumerate(entities)}
    kept: dict[str, list[tuple[int, int, int]]] = {name: [] for name in ("train", "valid", "calibration", "test")}
    dropped = dict.fromkeys(kept, 0)
    known: dict[tuple[int, int, int], str] = {}
    for name in TRIPLE_FILES:
        for _, (head, relation, tail) in named[name]:
            triple = (entity_ids[head], relation_ids[relation], entity_ids[tail])
            split = name
            if name == "valid" and is_calibration(seed, calibration_share, *triple):
                split = "calibration"
            if triple not in known:
                known[triple] = name
                kept[split].append(triple)
            elif known[triple] != name:
                dropped[split] += 1
    for name in TRIPLE_FILES:
        if not kept[name]:
            what = "all were carved out for calibration" if name == "valid" and kept["calibration"] else "all repeated"
            raise DataError(f"{paths[name]}: no triples are left for {name} ({what}); give it other triples")
    return TripleData(
        relations=tuple(relations),
        entities=tuple(entities),
        triples={name: np.array(triples, dtype=np.int64).reshape(-1, 3) for name, triples in kept.items()},
        dropped={name: count for name, count in dropped.items() if count},
        unseen=len(every) - len(seen),
    )


def _read(path: Path) -> Iterator[tuple[int, Names]]:
    """Line numbers and triples. Fields are divided by tabs, or by blanks where a line has no tab."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    for number, raw in enumerate(data.split(b"\n"), start=1):
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
        yield number, (fields[0], fields[1], fields[2])
