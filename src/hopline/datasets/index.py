"""``index.json``: what a dataset holds, where it came from, and the digests it is checked against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hopline.datasets.fingerprint import dataset_digest
from hopline.datasets.import_report import ImportReport
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.storage import canonical_json, parse_json, sha256_bytes

__all__ = [
    "INDEX_FILE",
    "SCHEMA_VERSION",
    "DatasetIndex",
    "GeneratorInfo",
    "Leakage",
    "PatternInfo",
    "ShardInfo",
    "SourceFile",
    "SourceFiles",
    "SplitIndex",
]

SCHEMA_VERSION: Final = 1
INDEX_FILE: Final = "index.json"

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
Count = Annotated[int, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ShardInfo(_Frozen):
    """One Arrow IPC file."""

    file: FileName
    units: Count
    rows: Count
    bytes: Count
    sha256: Sha256


class SplitIndex(_Frozen):
    """One split. A unit is an example; a missing example and its twin are two rows of one unit."""

    units: Count
    rows: Count
    kinds: dict[str, int]
    """Units by kind."""
    statuses: dict[str, int]
    """Rows by status."""
    hops: dict[str, int]
    """Units by hops."""
    shards: tuple[ShardInfo, ...]
    blocks: tuple[Sha256, ...]
    """Digest of the logical content of each block of units."""


class GeneratorInfo(_Frozen):
    """The code that made the dataset."""

    name: str
    version: str
    code_digest: Sha256


class SourceFile(_Frozen):
    """One file that the dataset was made from."""

    path: str
    bytes: Count
    sha256: Sha256


class SourceFiles(_Frozen):
    """The snapshot of a source: the digest of every file. Empty for the synthetic source.

    ``folder`` is where the files lie on this machine; it is not recorded.
    """

    uri: str
    files: tuple[SourceFile, ...] = ()
    folder: Path | None = Field(default=None, exclude=True)


class PatternInfo(_Frozen):
    """What facts may not stand together; see :class:`hopline.datasets.patterns.Patterns`."""

    functional: tuple[int, ...] = ()
    asymmetric: tuple[int, ...] = ()
    inverse: tuple[tuple[int, int], ...] = ()


class Leakage(_Frozen):
    """What the leakage gate found. A dataset that fails it is not written."""

    held_out_edges: Count
    """Edges of graphs that are triples of valid, calibration or test; 0."""
    duplicate_queries: Count
    """Units whose canonical query is in an earlier split too; 0."""
    replaced_queries: Count = 0
    """Units that were made anew because their query was in an earlier split."""
    dropped_triples: dict[str, int] = {}
    """Triples of the source left out of a split because an earlier split has them."""
    unseen_entities: Count = 0
    """Entities of the source that are in no training triple."""


class DatasetIndex(_Frozen):
    """The whole index. ``dataset_hash`` covers the schema, the vocabulary, and the content of every split."""

    schema_version: int
    dataset_hash: Sha256
    splits: dict[str, SplitIndex]
    generator: GeneratorInfo
    config: dict[str, Any]
    seed: int
    vocabulary: Vocabulary
    patterns: PatternInfo
    source: SourceFiles
    leakage: Leakage
    imported: ImportReport | None = None
    """What was read from the source and what of it is in no split; null for the synthetic source."""
    validated: Count
    """Rows whose status, answers and paths were derived again from their graph when the dataset was made: all of a small
    dataset, a sample of a large one; of link queries from triples, whose answers are held-out facts, the paths alone.
    Ids, paths that are walks and end in answers, and twins that lack edges and nothing else are checked in every row."""
    index_sha256: Sha256 | None = None
    """sha256 of this document as canonical JSON without this field."""

    def to_bytes(self) -> bytes:
        """The bytes of ``index.json``, with ``index_sha256`` filled in."""
        document = self.model_dump(mode="json", exclude={"index_sha256"})
        document["index_sha256"] = sha256_bytes(canonical_json(document))
        return json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True).encode()

    @classmethod
    def load(cls, source: Path | bytes, *, name: str | None = None) -> Self:
        """Read an index from a folder, a file, or its bytes, and check it against its own digests.

        Args:
            source: the dataset's folder, the path of its index, or the bytes of one.
            name: what errors call it.

        Raises:
            NotFoundError: there is no index.
            DataError: it is no index, or of another schema version.
            IntegrityError: it was altered.
        """
        if isinstance(source, Path):
            path = source / INDEX_FILE if source.is_dir() else source
            name = name or str(path)
            try:
                source = path.read_bytes()
            except FileNotFoundError:
                raise NotFoundError(f"{path}: no such file; no complete dataset is there") from None
            except OSError as error:
                raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        name = name or INDEX_FILE
        document = parse_json(source, source=name, max_bytes=1 << 30)
        if not isinstance(document, dict):
            raise DataError(f"{name}: expected an object, found {type(document).__name__}")
        if document.get("schema_version") != SCHEMA_VERSION:
            found = document.get("schema_version")
            raise DataError(f"{name}: schema version {found}, expected {SCHEMA_VERSION}; make the dataset again")
        found = document.pop("index_sha256", None)
        expected = sha256_bytes(canonical_json(document))
        if found != expected:
            raise IntegrityError(f"{name}: found index_sha256 {found}, expected {expected}; the index was altered")
        try:
            index = cls.model_validate({**document, "index_sha256": found})
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise DataError(f"{name}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
        content = index.content_hash()
        if content != index.dataset_hash:
            raise IntegrityError(
                f"{name}: found dataset hash {index.dataset_hash}, expected {content} from its block digests; "
                "the index was altered"
            )
        return index

    def content_hash(self) -> str:
        """The dataset hash, computed anew from the block digests, the vocabulary and the schema."""
        splits = {name: (split.units, split.rows, split.blocks) for name, split in self.splits.items()}
        return dataset_digest(splits, self.vocabulary)
