"""Examples that people bring as a file, divided into splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hopline.config import DatasetConfig
from hopline.datasets.draws import hash64, threshold
from hopline.datasets.jsonl import read_examples
from hopline.datasets.splits import SPLITS, is_calibration
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import DataError
from hopline.graph import ReasoningExample

__all__ = ["ImportedExamples"]

_SHARES: Final = (("valid", threshold(0.1)), ("test", threshold(0.2)), ("train", 2**64))
"""Where lines without a split go, by a salted hash of their number."""


@dataclass(frozen=True, slots=True, eq=False)
class ImportedExamples:
    """The examples of a file by split, and their vocabulary."""

    splits: Mapping[str, tuple[ReasoningExample, ...]]
    vocabulary: Vocabulary

    @classmethod
    def read(cls, path: Path, config: DatasetConfig) -> ImportedExamples:
        """Read a file of labelled examples.

        Raises:
            DataError: a line is no labelled example, or train, valid or test gets none.
        """
        file = read_examples(path, max_paths=config.max_paths)
        splits: dict[str, list[ReasoningExample]] = {name: [] for name in SPLITS}
        own_calibration = any(item.split == "calibration" for item in file.examples)
        for item in file.examples:
            if not item.labelled:
                raise DataError(
                    f"{path}:{item.line}: neither answers nor status; only labelled examples can be trained on"
                )
            split = item.split or _split(config.seed, item.line)
            if split == "valid" and not own_calibration:
                carved = is_calibration(config.seed, config.calibration_share, item.line)
                split = "calibration" if carved else "valid"
            numbered = replace(item.example, example_id=len(splits[split]))
            if numbered.pair is not None:
                numbered = replace(numbered, pair=replace(numbered.pair, example_id=numbered.example_id))
            splits[split].append(numbered)
        for name in ("train", "valid", "test"):
            if not splits[name]:
                raise DataError(f'{path}: no example for {name}; give some lines "split": "{name}"')
        return cls({name: tuple(examples) for name, examples in splits.items()}, file.vocabulary)


def _split(seed: int, line: int) -> str:
    key = hash64(f"hopline-lines:{seed}".encode(), line)
    return next(name for name, bound in _SHARES if key < bound)
