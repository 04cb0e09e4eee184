"""What a config would do in a root: which stages find their output there, which are redone, and why. Nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from hopline.config import ResolvedConfig
from hopline.datasets import INDEX_FILE, DatasetIndex
from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.stages.inputs import dataset_request, evaluate_request, publish_request, train_request
from hopline.stages.plan_causes import Cause, nearest_record
from hopline.stages.requests import Request, Result, read_record
from hopline.stages.results import EvaluateResult, GenerateResult, PublishResult, TrainResult
from hopline.stages.roots import dataset_prefix, key_of, open_root, run_prefix
from hopline.stages.sources import source_snapshot
from hopline.storage import Store, parse_json
from hopline.storage.folders import FolderIndex

__all__ = ["Action", "Cause", "Plan", "PlannedStage", "plan"]

Action = Literal["reuse", "redo", "stop"]
"""``stop``: the output was altered, and the stage will say so instead of making it again."""

_MANIFEST: Final = "manifest.json"
_STATE: Final = re.compile(r"/checkpoints/step-(\d+)/index\.json$")
_NOTHING: Final = TrainResult(run_uri="", run_hash="", candidates=(), steps=0, stop_reason="", reused=False)

Files = Iterable[tuple[str, int]]
"""Keys with their sizes in bytes."""


class PlannedStage(BaseModel):
    """What one stage would do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    action: Action
    because: tuple[Cause, ...] = ()
    """Why it does not find its output; empty if it does."""
    output: str | None = None
    """URI of what is reused, or lies there altered."""
    request_hash: str | None = None
    """null where an earlier stage has to make an input first."""
    compared_with: str | None = None
    """Hash of the recorded request that differs least."""
    notes: tuple[str, ...] = ()


class Plan(BaseModel):
    """What ``hopline run`` would do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str
    config: str
    """The config file."""
    stages: tuple[PlannedStage, ...]


def plan(config: ResolvedConfig, *, root: str) -> Plan:
    """Compare a config with what is recorded in a root.

    Of outputs that are there the names and sizes of their files are looked at, not their bytes: what the stages check
    beside that is for them to find. The root is only read; a remote source is fetched into the cache, to be hashed.

    Raises:
        DataError: the source is missing or wrong, or a record is damaged.
        StoreError: the root refuses or cannot be reached.
    """
    planner = _Planner(open_root(root))
    graph, section = config.config, config.config.dataset
    dataset = planner.look(
        dataset_request(section, source_snapshot(section)),
        GenerateResult,
        lambda found: found.dataset_uri,
        planner.dataset_files,
    )
    trained = planner.look(
        train_request(graph, "" if dataset is None else dataset.dataset_hash),
        TrainResult,
        lambda found: found.run_uri,
        planner.candidate_files,
        unknown={"dataset_hash"} if dataset is None else set(),
        note=planner.begun,
    )
    chosen = planner.look(
        evaluate_request(graph, _NOTHING if trained is None else trained),
        EvaluateResult,
        lambda found: found.report_uri,
        planner.evaluation_files,
        unknown={"run_hash", "candidates"} if trained is None else set(),
    )
    known = trained is not None and chosen is not None
    planner.look(
        publish_request(
            graph,
            trained.run_hash if trained and known else "",
            chosen.checkpoint_sha256 if chosen and known else "",
            key_of(planner.store, chosen.report_uri).rpartition("/")[0] if chosen and known else "",
        ),
        PublishResult,
        lambda found: found.manifest_uri,
        planner.version_files,
        unknown=set() if known else {"run_hash", "checkpoint_sha256", "evaluation"},
        strict=True,
    )
    return Plan(root=planner.store.base_uri, config=config.source, stages=tuple(planner.stages))


class _DamagedError(Exception):
    """The file that names the others of an output is gone or altered."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Planner:
    """Looks at one stage after the other."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stages: list[PlannedStage] = []

    def look(
        self,
        request: Request,
        kind: type[Result],
        place: Callable[[Result], str],
        files: Callable[[Result], Files],
        *,
        unknown: set[str] | None = None,
        note: Callable[[Request], str | None] = lambda _: None,
        strict: bool = False,
    ) -> Result | None:
        """Plan a stage. Returns what it would return, None if that is not known before it has run.

        Args:
            request: of the stage.
            kind, place, files: its result, the URI of its output in that, and what must lie there, the last file first.
            unknown: inputs that an earlier stage has yet to make.
            note: what there is to say where nothing is recorded.
            strict: a file that is missing beside the first one is damage, and no reason to make it again.
        """
        if unknown:
            self.stages.append(self._dependent(request, unknown))
            return None
        found = read_record(self.store, request, kind)
        if found is None:
            nearest = nearest_record(self.store, request.document())
            told = note(request)
            self.stages.append(
                PlannedStage(
                    stage=request.stage,
                    action="redo",
                    because=nearest.causes,
                    request_hash=request.hash,
                    compared_with=nearest.request_hash,
                    notes=() if told is None else (told,),
                )
            )
            return None
        self.stages.append(self._recorded(request, place(found), lambda: files(found), strict))
        return found

    def _dependent(self, request: Request, unknown: set[str]) -> PlannedStage:
        """A stage after one whose result is not known. What that one has named already is not told again."""
        nearest = nearest_record(self.store, request.document(), unknown=frozenset(unknown))
        told = {(cause.kind, cause.name) for stage in self.stages for cause in stage.because}
        before = self.stages[-1]
        own = tuple(cause for cause in nearest.causes if cause.kind != "first" and (cause.kind, cause.name) not in told)
        # A run is named by what goes into it, and another run has other candidates; the rest is named by content.
        perhaps = before.stage != "train" and {cause.kind for cause in before.because} <= {"code", "source", "format"}
        same = perhaps and nearest.request_hash is not None and not own
        return PlannedStage(
            stage=request.stage,
            action="redo",
            because=(Cause(kind="depends", name=before.stage), *own),
            compared_with=nearest.request_hash,
            notes=(f"reused after all if {before.stage} makes what it made before",) if same else (),
        )

    def _recorded(self, request: Request, output: str, files: Callable[[], Files], strict: bool) -> PlannedStage:
        causes, action = self._damage(files), "reuse"
        if causes:
            altered = any(cause.kind == "altered" for cause in causes)
            action = "stop" if altered or (strict and not causes[0].name.endswith(f"/{_MANIFEST}")) else "redo"
        notes = []
        remade = [stage.stage for stage in self.stages if stage.action == "redo"]
        if action == "reuse" and remade:
            notes.append(f"if {remade[-1]} makes again what it made before")
        if request.stage == "publish":
            notes.append("the gate decides again, against the champion of that moment")
        return PlannedStage.model_validate(
            {
                "stage": request.stage,
                "action": action,
                "because": causes,
                "output": output,
                "request_hash": request.hash,
                "notes": tuple(notes),
            }
        )

    def _damage(self, files: Callable[[], Files]) -> tuple[Cause, ...]:
        """The first file of an output that is gone, or of another size; empty if all is there."""
        sizes: dict[str, int] = {}
        folder = ""
        try:
            for key, size in files():
                here = f"{key.rpartition('/')[0]}/"
                if here != folder:
                    folder, sizes = here, {info.key: info.size for info in self.store.list(here)}
                uri = self.store.uri(key)
                if key not in sizes:
                    return (Cause(kind="gone", name=uri),)
                if sizes[key] != size:
                    return (Cause(kind="altered", name=uri, before=size, now=sizes[key]),)
        except _DamagedError as damaged:
            return (damaged.cause,)
        return ()

    def dataset_files(self, found: GenerateResult) -> Iterator[tuple[str, int]]:
        """Those that the index of a dataset names."""
        prefix = dataset_prefix(found.dataset_hash)
        uri = self.store.uri(f"{prefix}/{INDEX_FILE}")
        try:
            index = DatasetIndex.load(self._index(f"{prefix}/{INDEX_FILE}"), name=uri)
        except (DataError, IntegrityError):
            raise _DamagedError(Cause(kind="altered", name=uri)) from None
        for split in index.splits.values():
            for shard in split.shards:
                yield f"{prefix}/{shard.file}", shard.bytes

    def candidate_files(self, found: TrainResult) -> Iterator[tuple[str, int]]:
        """Those that the indices of a run's candidates name."""
        for candidate in found.candidates:
            yield from self._folder(key_of(self.store, candidate.uri), candidate.sha256)

    def evaluation_files(self, found: EvaluateResult) -> Iterator[tuple[str, int]]:
        """Those that the index of an evaluation names; its folder has the digest of the index as its name."""
        prefix = key_of(self.store, found.report_uri).rpartition("/")[0]
        yield from self._folder(prefix, prefix.rpartition("/")[2])

    def version_files(self, found: PublishResult) -> Iterator[tuple[str, int]]:
        """Those that the manifest of a version names."""
        key = key_of(self.store, found.manifest_uri)
        document = parse_json(self._index(key, found.manifest_hash), source=found.manifest_uri)
        for file in document["subjects"]["files"]:
            yield f"{key.rpartition('/')[0]}/{file['path']}", file["size"]

    def begun(self, request: Request) -> str | None:
        """Whether a run was begun: it continues from its newest training state."""
        prefix = run_prefix(request.hash)
        steps = [
            int(match[1]) for info in self.store.list(f"{prefix}/checkpoints/") if (match := _STATE.search(info.key))
        ]
        return f"the run was begun, and continues from the training state of step {max(steps)}" if steps else None

    def _folder(self, prefix: str, digest: str) -> Iterator[tuple[str, int]]:
        key = f"{prefix}/{FolderIndex.FILE}"
        document: Mapping[str, Any] = parse_json(self._index(key, digest), source=self.store.uri(key))
        for file in document["files"]:
            yield f"{prefix}/{file['path']}", file["bytes"]

    def _index(self, key: str, digest: str | None = None) -> bytes:
        """The file that names the others."""
        try:
            return self.store.get_bytes(key, sha256=digest)
        except NotFoundError:
            raise _DamagedError(Cause(kind="gone", name=self.store.uri(key))) from None
        except IntegrityError:
            raise _DamagedError(Cause(kind="altered", name=self.store.uri(key))) from None
