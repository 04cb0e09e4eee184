"""The best models of a run, in a store: ``<prefix>/step-<n>/``, each complete once its index is there."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from torch import Tensor

from hopline.config import GraphConfig
from hopline.datasets import Vocabulary
from hopline.storage import Store
from hopline.storage.folders import FolderIndex, check_files, delete_folder, put_folder
from hopline.storage.transfer import fetch_folder
from hopline.training.candidate import CandidateIndex, LoadedCandidate, read_candidate, write_candidate
from hopline.training.state import CandidateRecord

__all__ = ["Candidates", "candidate_is_whole", "fetch_candidate"]

_INDEX_KEY: Final = re.compile(rf"step-(\d+)/{re.escape(FolderIndex.FILE)}")
_TEMPORARY: Final = "hopline-candidate-"


class Candidates:
    """Candidates under one prefix of a store. Methods raise StoreError where the store refuses or is full."""

    def __init__(self, store: Store, prefix: str, config: GraphConfig, vocabulary: Vocabulary) -> None:
        self.store = store
        self.prefix = prefix
        self._config = config
        self._vocabulary = vocabulary

    def put(
        self, step: int, weights: Mapping[str, Tensor], score: float, metrics: Mapping[str, float]
    ) -> CandidateRecord:
        """Keep a model by all its weights; one of the same step is replaced."""
        with tempfile.TemporaryDirectory(prefix=_TEMPORARY) as temporary:
            folder = Path(temporary)
            sha256 = write_candidate(
                folder, weights, self._config, self._vocabulary, step=step, score=score, metrics=metrics
            )
            put_folder(self.store, self.folder(step), folder)
        return CandidateRecord(step=step, sha256=sha256, score=score)

    def delete(self, step: int) -> None:
        """Remove a candidate."""
        delete_folder(self.store, self.folder(step))

    def steps(self) -> list[int]:
        """Steps of the complete candidates, rising."""
        start = f"{self.prefix}/"
        matches = (_INDEX_KEY.fullmatch(info.key.removeprefix(start)) for info in self.store.list(start))
        return sorted(int(match[1]) for match in matches if match)

    def gone(self, records: Iterable[CandidateRecord]) -> list[int]:
        """Steps of the candidates that are not there any more, or not whole.

        Raises:
            IntegrityError: one was altered.
        """
        return [
            record.step
            for record in records
            if not candidate_is_whole(self.store, self.folder(record.step), record.sha256)
        ]

    def keep_only(self, steps: set[int]) -> None:
        """Remove every candidate but these: remains of an attempt that went another way, too."""
        for step in self.steps():
            if step not in steps:
                self.delete(step)

    def folder(self, step: int) -> str:
        """The key of the candidate's folder."""
        return f"{self.prefix}/step-{step:08d}"

    def uri(self, step: int) -> str:
        """Where the candidate of a step lies."""
        return self.store.uri(self.folder(step))


def fetch_candidate(store: Store, prefix: str, sha256: str) -> LoadedCandidate:
    """Read a candidate from a store, every byte checked against its digest, which is that of its index.

    Raises:
        NotFoundError: it is not there.
        IntegrityError: a file was altered.
        DataError: it is of another architecture version.
    """
    local = store.local_path(prefix)
    if local is not None:
        return read_candidate(local, sha256)
    key = f"{prefix}/{FolderIndex.FILE}"
    index = store.get_bytes(key, sha256=sha256)
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY) as temporary:
        folder = Path(temporary)
        (folder / FolderIndex.FILE).write_bytes(index)
        fetch_folder(store, prefix, _files(index, store.uri(key)), folder)
        return read_candidate(folder, sha256)


def candidate_is_whole(store: Store, prefix: str, sha256: str) -> bool:
    """Whether a candidate is complete: False if it, or a file of it, is gone.

    Raises:
        IntegrityError: a file was altered.
        DataError: it is of another architecture version.
    """
    key = f"{prefix}/{FolderIndex.FILE}"
    if store.head(key) is None:
        return False
    index = store.get_bytes(key, sha256=sha256)
    return check_files(store, prefix, _files(index, store.uri(key)))


def _files(index: bytes, source: str) -> list[tuple[str, str, int]]:
    return [(file.path, file.sha256, file.bytes) for file in CandidateIndex.parse(index, source=source).files]
