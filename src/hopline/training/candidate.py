"""A candidate checkpoint as a folder of files that anybody may read: no pickle, every digest in its index.

``model.safetensors``, ``config.json``, ``vocabulary.json``, ``scores.json``, and ``index.json``, written last, with the
digest of each. The candidate's own sha256 is that of ``index.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hopline.config import ARCHITECTURE_VERSION, GraphConfig
from hopline.datasets import Vocabulary
from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.model import GraphModel, build_model
from hopline.storage import canonical_json, parse_json, sha256_bytes, sha256_file

__all__ = ["CandidateFile", "CandidateIndex", "LoadedCandidate", "read_candidate", "write_candidate"]

INDEX_FILE: Final = "index.json"
WEIGHTS_FILE: Final = "model.safetensors"
CONFIG_FILE: Final = "config.json"
VOCABULARY_FILE: Final = "vocabulary.json"
SCORES_FILE: Final = "scores.json"
_FILES: Final = frozenset({WEIGHTS_FILE, CONFIG_FILE, VOCABULARY_FILE, SCORES_FILE})
_METADATA: Final = {"format": "pt"}  # one key alone: with two, the bytes differ from process to process

Document = TypeVar("Document", bound=BaseModel)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CandidateFile(_Frozen):
    """One file of a candidate."""

    path: str
    sha256: str
    bytes: int


class CandidateIndex(_Frozen):
    """``index.json``."""

    schema_version: Literal[1] = 1
    architecture_version: str
    step: int
    files: tuple[CandidateFile, ...]

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> CandidateIndex:
        """Read an index.

        Raises:
            DataError: it is none, or the candidate is of another architecture version.
        """
        parse_json(data, source=source)  # refuses what two readers could understand in two ways
        index = _parse(cls, data, source, "index of a candidate")
        if index.architecture_version != ARCHITECTURE_VERSION:
            raise DataError(
                f"{source}: found architecture version {index.architecture_version}, expected {ARCHITECTURE_VERSION}; "
                "use the version of Hopline that trained it, or train again"
            )
        return index


@dataclass(frozen=True, slots=True)
class LoadedCandidate:
    """A candidate in memory; the model is on the CPU and in evaluation mode."""

    step: int
    model: GraphModel
    config: GraphConfig
    vocabulary: Vocabulary


def write_candidate(
    folder: Path,
    weights: Mapping[str, Tensor],
    config: GraphConfig,
    vocabulary: Vocabulary,
    *,
    step: int,
    score: float,
    metrics: Mapping[str, float],
) -> str:
    """Write a candidate's files into an existing folder, the index last, and return the sha256 of the index.

    The same weights, config and figures give the same bytes. A figure that is not a finite number is left out.
    """
    figures = {name: value for name, value in metrics.items() if math.isfinite(value)}
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}
    save_file(tensors, folder / WEIGHTS_FILE, _METADATA)
    documents = {
        CONFIG_FILE: config.to_dict(),
        VOCABULARY_FILE: vocabulary.model_dump(mode="json"),
        SCORES_FILE: {"step": step, "score": score, "metrics": figures},
    }
    for name, document in documents.items():
        (folder / name).write_bytes(canonical_json(document))
    index = CandidateIndex(
        architecture_version=ARCHITECTURE_VERSION,
        step=step,
        files=tuple(
            CandidateFile(path=name, sha256=sha256_file(folder / name), bytes=(folder / name).stat().st_size)
            for name in sorted([WEIGHTS_FILE, *documents])
        ),
    )
    data = canonical_json(index.model_dump(mode="json"))
    (folder / INDEX_FILE).write_bytes(data)
    return sha256_bytes(data)


def read_candidate(folder: Path, expected_sha256: str | None = None) -> LoadedCandidate:
    """Read a candidate, every byte checked against its index, and the index against ``expected_sha256``.

    Raises:
        NotFoundError: a file is missing.
        IntegrityError: a file is not the one of the index, or the index is not the one expected.
        DataError: the files make no model of this version.
    """
    data = _read(folder / INDEX_FILE)
    found = sha256_bytes(data)
    if expected_sha256 is not None and found != expected_sha256:
        raise IntegrityError(
            f"{folder / INDEX_FILE}: found sha256 {found}, expected {expected_sha256}; the candidate was altered or replaced"
        )
    index = CandidateIndex.parse(data, source=str(folder / INDEX_FILE))
    files = {file.path: file for file in index.files}
    if set(files) != _FILES:
        raise DataError(f"{folder / INDEX_FILE}: found files {sorted(files)}, expected {sorted(_FILES)}; train again")
    for name, file in files.items():
        _check(folder / name, file)
    config = _parse(GraphConfig, _read(folder / CONFIG_FILE), str(folder / CONFIG_FILE), "config of a model")
    vocabulary = _parse(Vocabulary, _read(folder / VOCABULARY_FILE), str(folder / VOCABULARY_FILE), "vocabulary")
    model = build_model(config, vocabulary)
    try:
        model.load_state_dict(load_file(folder / WEIGHTS_FILE))
    except (RuntimeError, SafetensorError) as error:
        what = " ".join(str(error).split())
        raise DataError(f"{folder / WEIGHTS_FILE}: the weights do not fit the config beside them: {what}") from None
    return LoadedCandidate(index.step, model.eval(), config, vocabulary)


def _parse(kind: type[Document], data: bytes, source: str, what: str) -> Document:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise DataError(
            f"{source}: no {what} of this version of Hopline: {where}: {first['msg']}; train again"
        ) from None


def _check(path: Path, file: CandidateFile) -> None:
    if not path.is_file():
        raise NotFoundError(f"{path}: is missing, and the index beside it names it")
    found, size = sha256_file(path), path.stat().st_size
    if found != file.sha256 or size != file.bytes:
        raise IntegrityError(
            f"{path}: found sha256 {found} and {size} bytes, expected {file.sha256} and {file.bytes} bytes; it was altered: "
            "remove the run's folder to train again"
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file; expected a candidate there") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
