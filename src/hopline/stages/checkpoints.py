"""Training states and candidates of a run in the root store, behind the protocols that the trainer knows."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from hopline.config import GraphConfig
from hopline.datasets import Vocabulary
from hopline.model import GraphModel
from hopline.stages.results import CandidateResult
from hopline.stages.roots import key_of, run_prefix
from hopline.storage import Store, sha256_bytes
from hopline.storage.folders import FolderIndex, check_files, delete_folder, put_folder
from hopline.storage.transfer import fetch_folder
from hopline.training import CandidateIndex, CandidateRecord, LoadedCandidate, read_candidate, write_candidate

__all__ = ["StoreCandidates", "StoreCheckpoints", "candidate_is_there", "fetch_candidate"]

_STEP: Final = re.compile(rf"/step-(\d+)/{re.escape(FolderIndex.FILE)}$")


class StoreCheckpoints:
    """Training states under ``runs/<run_hash>/checkpoints/step-<n>/``, committed by an index that is written last."""

    def __init__(self, store: Store, run_hash: str, candidates: StoreCandidates) -> None:
        self._store = store
        self._prefix = f"{run_prefix(run_hash)}/checkpoints"
        self._candidates = candidates

    def committed(self) -> list[int]:
        """Steps of the committed states, rising."""
        return _steps(self._store, self._prefix)

    def save(self, step: int, folder: Path) -> None:
        """Commit a local folder as the state of ``step``."""
        (folder / FolderIndex.FILE).write_bytes(FolderIndex.of_folder(folder).to_bytes())
        put_folder(self._store, self._key(step), folder)
        self._candidates.prune()

    def load(self, step: int, folder: Path) -> str:
        """Fetch the state of ``step`` into an empty local folder, every byte checked; the digest of its index."""
        key = f"{self._key(step)}/{FolderIndex.FILE}"
        data = self._store.get_bytes(key)
        index = FolderIndex.parse(data, source=self._store.uri(key))
        fetch_folder(self._store, self._key(step), [(f.path, f.sha256, f.bytes) for f in index.files], folder)
        return sha256_bytes(data)

    def delete(self, step: int) -> None:
        """Remove a state."""
        delete_folder(self._store, self._key(step))

    def _key(self, step: int) -> str:
        return f"{self._prefix}/step-{step:08d}"


class StoreCandidates:
    """Candidates under ``runs/<run_hash>/candidates/step-<n>/``.

    A candidate that fell out of the best is removed only when the next training state is committed: a run that continues
    from the state before still finds what that state remembers.
    """

    def __init__(self, store: Store, run_hash: str, config: GraphConfig, vocabulary: Vocabulary) -> None:
        self._store = store
        self._prefix = f"{run_prefix(run_hash)}/candidates"
        self._config = config
        self._vocabulary = vocabulary
        self._dropped: set[int] = set()

    def put(self, step: int, model: GraphModel, score: float, metrics: Mapping[str, float]) -> CandidateRecord:
        """Keep the model as a candidate."""
        self._dropped.discard(step)
        key = self._key(step)
        with tempfile.TemporaryDirectory(prefix="hopline-candidate-") as temporary:
            folder = Path(temporary)
            sha256 = write_candidate(
                folder, model, self._config, self._vocabulary, step=step, score=score, metrics=metrics
            )
            put_folder(self._store, key, folder)
        return CandidateRecord(step=step, uri=self.uri(step), sha256=sha256, score=score)

    def uri(self, step: int) -> str:
        """Where the candidate of a step lies."""
        return self._store.uri(self._key(step))

    def delete(self, step: int) -> None:
        """Let go of a candidate."""
        self._dropped.add(step)

    def gone(self, records: Iterable[CandidateRecord]) -> list[int]:
        """Steps of the candidates that are not there any more, or not whole.

        Raises:
            IntegrityError: one was altered.
        """
        return [
            record.step
            for record in records
            if not candidate_is_there(
                self._store,
                CandidateResult(step=record.step, uri=self.uri(record.step), sha256=record.sha256, score=record.score),
            )
        ]

    def prune(self) -> None:
        """Remove what was let go."""
        for step in sorted(self._dropped):
            delete_folder(self._store, self._key(step))
        self._dropped.clear()

    def keep_only(self, steps: set[int]) -> None:
        """Remove every candidate but these: remains of an attempt that went another way, too."""
        self._dropped |= set(_steps(self._store, self._prefix)) - steps
        self.prune()

    def _key(self, step: int) -> str:
        return f"{self._prefix}/step-{step:08d}"


def fetch_candidate(store: Store, candidate: CandidateResult) -> LoadedCandidate:
    """Read a candidate from the store, every byte checked against its digest.

    Raises:
        NotFoundError: it is not there.
        IntegrityError: a file was altered.
        DataError: it is of another architecture version.
    """
    prefix = key_of(store, candidate.uri)
    local = store.local_path(prefix)
    if local is not None:
        return read_candidate(local, candidate.sha256)
    key = f"{prefix}/{FolderIndex.FILE}"
    index = store.get_bytes(key, sha256=candidate.sha256)
    with tempfile.TemporaryDirectory(prefix="hopline-candidate-") as temporary:
        folder = Path(temporary)
        (folder / FolderIndex.FILE).write_bytes(index)
        fetch_folder(store, prefix, _files(index, store.uri(key)), folder)
        return read_candidate(folder, candidate.sha256)


def _files(index: bytes, source: str) -> list[tuple[str, str, int]]:
    return [(file.path, file.sha256, file.bytes) for file in CandidateIndex.parse(index, source=source).files]


def _steps(store: Store, prefix: str) -> list[int]:
    """Steps of the complete folders ``step-<n>`` under ``prefix``, rising."""
    matches = (_STEP.search(info.key) for info in store.list(f"{prefix}/step-"))
    return sorted(int(match[1]) for match in matches if match)


def candidate_is_there(store: Store, candidate: CandidateResult) -> bool:
    """Whether a recorded candidate is complete: False if it, or a file of it, is gone.

    Raises:
        IntegrityError: a file was altered.
        DataError: it is of another architecture version.
    """
    prefix = key_of(store, candidate.uri)
    key = f"{prefix}/{FolderIndex.FILE}"
    if store.head(key) is None:
        return False
    index = store.get_bytes(key, sha256=candidate.sha256)
    return check_files(store, prefix, _files(index, store.uri(key)))
