"""``torch.distributed.checkpoint`` over a store: each process writes its own files there and reads only what it needs.

Files pass through a local folder of the process, so that no disk is shared between machines. The metadata of the format is
a pickle: it is read only after its digest, and that of every file that it leads to, was checked against the state's index.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from hopline.storage.folders import FolderFile
from hopline.training.checkpoint_store import Checkpoints

__all__ = ["LOG_FILE", "STATE_FILE", "TEMPORARY_PREFIX", "StateReader", "StateWriter"]

STATE_FILE: Final = "state.json"
LOG_FILE: Final = "steps.jsonl"
TEMPORARY_PREFIX: Final = "hopline-checkpoint-"
_METADATA: Final = ".metadata"


@dataclass(frozen=True, slots=True)
class _Stored:
    """Where a tensor lies, as the format says it, and the file that it lies in."""

    place: Any
    file: FolderFile


class StateWriter(FileSystemWriter):
    """Writes one state.

    Args:
        checkpoints: where to.
        step: of the state.
        token: names this try; the same on all processes.
        documents: the small files of the state by name; the main process adds them.
    """

    def __init__(self, checkpoints: Checkpoints, step: int, token: str, documents: Mapping[str, bytes]) -> None:
        super().__init__(token)  # the folder comes later
        self._checkpoints = checkpoints
        self._step = step
        self._token = token
        self._documents = documents

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Make the local folder: here, where an error of one process is told to all, and nobody waits for it."""
        self.path = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
        return super().prepare_local_plan(plan)

    def close(self) -> None:
        """Remove the local folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this process's tensors and store the files."""
        results = super().write_data(plan, planner).wait()
        files = {name: self._put(name) for name in sorted({result.storage_data.relative_path for result in results})}
        future: Future[list[WriteResult]] = Future()
        future.set_result(
            [
                replace(result, storage_data=_Stored(result.storage_data, files[result.storage_data.relative_path]))
                for result in results
            ]
        )
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the main process, when all have stored their files: add the rest, and commit."""
        files = {stored.file.path: stored.file for part in results for stored in (r.storage_data for r in part)}
        super().finish(metadata, [[replace(r, storage_data=r.storage_data.place) for r in part] for part in results])
        for name, data in self._documents.items():
            (Path(self.path) / name).write_bytes(data)
        others = [self._put(name) for name in (_METADATA, *self._documents)]
        self._checkpoints.commit(self._step, [*files.values(), *others])

    def _put(self, name: str) -> FolderFile:
        return self._checkpoints.put(self._step, f"{self._token}/{name}", Path(self.path) / name)


class StateReader(FileSystemReader):
    """Reads a committed state.

    Args:
        checkpoints: where from.
        step: of the state.
        folder: local, empty, of this process alone.

    Attributes:
        digest: of the state.
    """

    def __init__(self, checkpoints: Checkpoints, step: int, folder: Path) -> None:
        super().__init__(folder)
        self._checkpoints = checkpoints
        self._step = step
        self._folder = folder
        index, self.digest = checkpoints.index(step)
        self._files = {file.path.rpartition("/")[2]: file for file in index.files}

    def document(self, name: str) -> bytes:
        """A small file of the state. Raises NotFoundError, IntegrityError, KeyError."""
        return self._checkpoints.read(self._step, self._files[name])

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The metadata, fetched and checked."""
        self._fetch(_METADATA)
        return super().read_metadata(*args, **kwargs)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fetch the files that hold what this process needs, and read it from them."""
        for name in sorted({self.storage_data[item.storage_index].relative_path for item in plan.items}):
            self._fetch(name)
        return super().read_data(plan, planner)

    def _fetch(self, name: str) -> None:
        if not (self._folder / name).exists():
            self._checkpoints.fetch(self._step, self._files[name], self._folder / name)
