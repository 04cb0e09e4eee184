"""Training states and candidates in folders of this machine, for training without a root store.

A folder ``step-<n>`` is made under a temporary name, synced, and given its name at the end: it is there wholly or not at
all.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from hopline.config import GraphConfig
from hopline.datasets import Vocabulary
from hopline.errors import DataError, NotFoundError
from hopline.model import GraphModel
from hopline.storage import canonical_json, parse_json, sha256_bytes, sha256_file, validate_key
from hopline.storage.local import check_content, os_errors, sync_folder
from hopline.training.candidate import INDEX_FILE, write_candidate
from hopline.training.stores import CandidateRecord

__all__ = ["LocalCandidateStore", "LocalCheckpointStore"]

_TEMPORARY: Final = ".tmp-"
_DIGESTS: Final = "digests.json"
_STEP: Final = re.compile(r"step-(\d+)")


class LocalCheckpointStore:
    """Training states under one folder; a :class:`~hopline.training.CheckpointStore`."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def committed(self) -> list[int]:
        """Steps of the states, rising."""
        return _steps(self.folder, _DIGESTS)

    def save(self, step: int, folder: Path) -> None:
        """Commit the files of ``folder`` as the state of ``step``. Raises StoreError."""

        def fill(target: Path) -> None:
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            digests = {path.relative_to(folder).as_posix(): _entry(path) for path in files}
            shutil.copytree(folder, target, dirs_exist_ok=True)
            (target / _DIGESTS).write_bytes(canonical_json(digests))

        _commit(_path(self.folder, step), fill)

    def load(self, step: int, folder: Path) -> str:
        """Copy the state of ``step`` into an empty folder, every byte checked; returns the sha256 of its digests.

        Raises:
            NotFoundError: there is no such state, or a file of it is missing.
            IntegrityError: a file was altered.
        """
        source = _path(self.folder, step)
        if not (source / _DIGESTS).is_file():
            raise NotFoundError(f"{source}: there is no training state")
        with os_errors("read", source):
            data = (source / _DIGESTS).read_bytes()
            for name, digest, size in _entries(data, str(source / _DIGESTS)):
                if not (source / name).is_file():
                    raise NotFoundError(f"{source / name}: is missing from the training state of step {step}")
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, target)
                # The copy is what will be read.
                check_content(str(source / name), sha256_file(target), target.stat().st_size, sha256=digest, size=size)
        return sha256_bytes(data)

    def delete(self, step: int) -> None:
        """Remove a state."""
        _remove(_path(self.folder, step))


class LocalCandidateStore:
    """Candidates under one folder; a :class:`~hopline.training.CandidateStore`."""

    def __init__(self, folder: Path, config: GraphConfig, vocabulary: Vocabulary) -> None:
        self.folder = Path(folder)
        self._config = config
        self._vocabulary = vocabulary

    def put(self, step: int, model: GraphModel, score: float, metrics: Mapping[str, float]) -> CandidateRecord:
        """Keep the model as a candidate. Raises StoreError."""
        path = _path(self.folder, step)

        def fill(target: Path) -> None:
            write_candidate(target, model, self._config, self._vocabulary, step=step, score=score, metrics=metrics)

        _commit(path, fill)
        return CandidateRecord(
            step=step, uri=path.absolute().as_uri(), sha256=sha256_file(path / INDEX_FILE), score=score
        )

    def delete(self, step: int) -> None:
        """Let go of a candidate."""
        _remove(_path(self.folder, step))

    def steps(self) -> list[int]:
        """Steps of the candidates, rising."""
        return _steps(self.folder, INDEX_FILE)


def _path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def _steps(folder: Path, marker: str) -> list[int]:
    with os_errors("read", folder):
        names = [path.name for path in folder.iterdir() if (path / marker).is_file()] if folder.is_dir() else []
    return sorted(int(match[1]) for match in map(_STEP.fullmatch, names) if match)


def _commit(path: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder ``path`` of what ``fill`` writes; what a killed attempt left is removed."""
    with os_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for remains in path.parent.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(remains, ignore_errors=True)
        temporary = path.parent / f"{_TEMPORARY}{secrets.token_hex(8)}"
        temporary.mkdir()
        try:
            fill(temporary)
            for entry in sorted(temporary.rglob("*"), reverse=True):
                sync_folder(entry) if entry.is_dir() else _sync_file(entry)
            sync_folder(temporary)
            _remove(path)
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync_folder(path.parent)


def _remove(path: Path) -> None:
    """Remove a folder: first its name, so that half of it is never taken for whole."""
    with os_errors("remove", path):
        if path.is_dir():
            doomed = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}")
            path.rename(doomed)
            shutil.rmtree(doomed)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _entry(path: Path) -> dict[str, Any]:
    return {"sha256": sha256_file(path), "bytes": path.stat().st_size}


def _entries(data: bytes, source: str) -> list[tuple[str, str, int]]:
    """(path, sha256, bytes) of each file. Raises DataError."""
    try:
        return [
            (validate_key(name), str(entry["sha256"]), int(entry["bytes"]))
            for name, entry in parse_json(data, source=source).items()
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DataError(f"{source}: does not list the files of a training state; remove the folder") from None
