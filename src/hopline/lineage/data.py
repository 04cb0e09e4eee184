"""The dataset in a manifest: part 3 from a dataset's index, and the check of a dataset against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.lineage.claims import Claim
from hopline.lineage.manifest import Manifest
from hopline.lineage.schema import (
    DatasetPart,
    GeneratorRecord,
    ShardRecord,
    SourceFile,
    SourceRecord,
    SplitRecord,
)
from hopline.lineage.values import portable
from hopline.storage import canonical_json, sha256_bytes

if TYPE_CHECKING:
    from hopline.datasets import Dataset, DatasetIndex

__all__ = ["dataset_claims", "dataset_part", "split_digest", "vocabulary_digest"]


def vocabulary_digest(vocabulary: Any) -> str:
    """sha256 of a vocabulary - the JSON value, or its model - as canonical JSON."""
    document = vocabulary.model_dump(mode="json") if isinstance(vocabulary, BaseModel) else vocabulary
    return sha256_bytes(canonical_json(document))


def split_digest(index: DatasetIndex, split: str) -> str:
    """sha256 over a split's content: its block digests and counts, and the vocabulary that its ids belong to.

    Two measurements are comparable where it is equal, even if the training data were not the same.

    Raises:
        NotFoundError: there is no such split.
    """
    if split not in index.splits:
        raise NotFoundError(
            f"dataset {index.dataset_hash[:12]}: no split {split!r}; there are {', '.join(index.splits)}"
        )
    info = index.splits[split]
    document = {
        "format": "hopline-split-v1",
        "vocabulary": vocabulary_digest(index.vocabulary),
        "units": info.units,
        "rows": info.rows,
        "blocks": list(info.blocks),
    }
    return sha256_bytes(canonical_json(document))


def dataset_part(index: DatasetIndex, *, split_rule: str | None = None) -> DatasetPart:
    """Part 3 from the index of the dataset that the model was trained on. ``split_rule``: how it was divided, in words."""
    source = SourceRecord(
        uri=index.source.uri,
        files=tuple(SourceFile(path=f.path, bytes=f.bytes, sha256=f.sha256) for f in index.source.files),
    )
    return DatasetPart.known(
        {
            "dataset_hash": index.dataset_hash,
            "splits": {
                name: SplitRecord(
                    units=info.units,
                    rows=info.rows,
                    digest=split_digest(index, name),
                    shards=tuple(
                        ShardRecord(file=s.file, units=s.units, rows=s.rows, bytes=s.bytes, sha256=s.sha256)
                        for s in info.shards
                    ),
                )
                for name, info in index.splits.items()
            },
            "generator": GeneratorRecord(
                name=index.generator.name, version=index.generator.version, code_digest=index.generator.code_digest
            ),
            "config": portable(index.config),
            "seed": index.seed,
            "source": source,
            "vocabulary_digest": vocabulary_digest(index.vocabulary),
            "split_rule": split_rule,
            "leakage": portable(index.leakage.model_dump(mode="json")),
        },
        otherwise="the dataset's index does not say",
    )


def dataset_claims(manifest: Manifest, folder: Path | None, deep: bool) -> Iterator[Claim]:
    """Check a dataset's folder against a manifest; without a folder say that it was not.

    Raises:
        NotFoundError: the folder holds no index.
    """
    said = manifest.dataset
    if folder is None:
        units = sum(split.units for split in said.splits.values())
        why = f"{said.dataset_hash[:12]} of {units} examples; give the dataset's folder to check it"
        yield Claim("dataset", "NOT CHECKED", why)
        return
    from hopline.datasets import DatasetIndex

    try:
        index = DatasetIndex.load(folder)  # computes the hash again from the block digests
    except (DataError, IntegrityError) as error:
        yield Claim("dataset", "FAIL", str(error))
        return
    if index.dataset_hash != said.dataset_hash:
        yield Claim(
            "dataset", "FAIL", f"{folder} is dataset {index.dataset_hash}, the manifest says {said.dataset_hash}"
        )
        return
    yield Claim("dataset", "OK", f"{index.dataset_hash}, computed again from its block digests")
    yield _record(said, dataset_part(index))
    yield (
        _shards(folder, index)
        if deep
        else Claim(
            "dataset shards",
            "NOT CHECKED",
            f"{sum(len(s.shards) for s in index.splits.values())} files; ask for a deep check",
        )
    )


def _record(said: DatasetPart, found: DatasetPart) -> Claim:
    """What the manifest repeats of the dataset. The shard files may be others: their size changes no content."""
    for name in sorted(said.splits.keys() | found.splits.keys()):
        a, b = said.splits.get(name), found.splits.get(name)
        if a is None or b is None or (a.digest, a.units, a.rows) != (b.digest, b.units, b.rows):
            return Claim("dataset record", "FAIL", f"split {name!r} in the manifest is not the dataset's")
    for field in ("seed", "vocabulary_digest", "generator", "source", "leakage"):
        if getattr(said, field) != getattr(found, field):
            return Claim("dataset record", "FAIL", f"{field} in the manifest is not the dataset's")
    same = all(said.splits[name].shards == split.shards for name, split in found.splits.items())
    return Claim("dataset record", "OK", "the same files" if same else "the same content, cut into other files")


def _shards(folder: Path, index: DatasetIndex) -> Claim:
    """Check every shard's bytes, and digest every block of every split again."""
    from hopline.datasets import Dataset

    try:
        dataset = Dataset.open(folder, expected_hash=index.dataset_hash)
        for name, info in index.splits.items():
            for number, (found, said) in enumerate(zip(_blocks(dataset, name), info.blocks, strict=True)):
                if found != said:
                    return Claim("dataset shards", "FAIL", f"split {name!r}, block {number}: {found}, expected {said}")
    except (DataError, IntegrityError, NotFoundError) as error:
        return Claim("dataset shards", "FAIL", str(error))
    except (IndexError, ValueError) as error:  # a shard whose offsets lead nowhere, or more or fewer blocks than said
        return Claim("dataset shards", "FAIL", f"the content is not that of the index: {' '.join(str(error).split())}")
    blocks = sum(len(info.blocks) for info in index.splits.values())
    return Claim("dataset shards", "OK", f"every byte, and {blocks} blocks of content computed again")


def _blocks(dataset: Dataset, name: str) -> Iterator[str]:
    import numpy as np

    from hopline.datasets.fingerprint import BLOCK_UNITS, block_digest

    split = dataset.split(name)
    for start in range(0, len(split), BLOCK_UNITS):
        yield block_digest(split.columns(np.arange(start, min(start + BLOCK_UNITS, len(split)), dtype=np.int64)))
