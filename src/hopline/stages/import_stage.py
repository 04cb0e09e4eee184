"""Bring a checkpoint of the system before into a root, as a training state that a run can begin from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from hopline.errors import NotFoundError
from hopline.progress import Event, EventSink, NullSink
from hopline.stages.results import StageResult
from hopline.stages.roots import open_root
from hopline.storage import canonical_json, sha256_bytes, sha256_file
from hopline.storage.folders import check_files
from hopline.training.checkpoint import CheckpointWriter
from hopline.training.checkpoint_store import Checkpoints
from hopline.training.distributed import ALONE
from hopline.training.reference_import import ImportedTraining, import_reference
from hopline.training.step_log import StepLog

__all__ = ["ImportResult", "import_checkpoint"]

_CONFIG_FILE: Final = "config.yaml"


class ImportResult(StageResult):
    """An imported training state."""

    init_from: str
    """What to write as training.init_from."""
    checkpoint_uri: str
    checkpoint_sha256: str
    """Of the state's index.json."""
    file_sha256: str
    """Of the file that was imported."""
    config_uri: str
    """The file's config in our terms, as YAML; the dataset section is for you to fill in."""
    step: int
    parameters: int
    num_relations: int
    """Relations that the dataset's vocabulary must have."""
    num_entities: int
    """Entities that it must have; 0 = their identity does not count."""
    optimizer_layout: str | None
    moments: int
    """Parameters whose optimizer state was taken over."""
    dropped_moments: tuple[str, ...]
    """Parameters whose optimizer state was left out, because they are not optimised any more."""
    dropped_keys: tuple[str, ...]
    """Config keys without a place here."""
    notes: tuple[str, ...]


def import_checkpoint(
    path: Path, *, root: str, overrides: Sequence[str] = (), sink: EventSink | None = None
) -> ImportResult:
    """Import a file, or find what was made of it before with the same config.

    The state lies under ``imports/<sha256 of the file>/<digest of the config>/``, complete once its index is there.

    Raises:
        NotFoundError, DataError, ConfigError: as :func:`~hopline.training.reference_import.import_reference`.
        IntegrityError: what was made of it before has been altered.
        StoreError: the root refuses or cannot be reached.
    """
    sink = sink or NullSink()
    store = open_root(root)
    imported = import_reference(path, overrides)
    file_sha256, config = sha256_file(path), imported.config.config.to_dict()
    prefix = f"imports/{file_sha256}/{sha256_bytes(canonical_json(config))[:16]}"
    states = Checkpoints(store, prefix)
    step = imported.state.step
    reused = _is_whole(states, step)
    if not reused:
        sink.emit(Event("import", "note", f"imports step {step} of {path}"))
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        store.put_bytes(f"{prefix}/{_CONFIG_FILE}", text.encode())
        _save(states, imported, sink)
    digest = states.index(step)[1]
    return ImportResult(
        init_from=f"{states.uri(step)}@sha256:{digest}",
        checkpoint_uri=states.uri(step),
        checkpoint_sha256=digest,
        file_sha256=file_sha256,
        config_uri=store.uri(f"{prefix}/{_CONFIG_FILE}"),
        step=step,
        parameters=sum(parameter.numel() for parameter in imported.model.parameters()),
        num_relations=imported.architecture.num_relations,
        num_entities=imported.architecture.num_entities,
        optimizer_layout=imported.layout,
        moments=imported.moved,
        dropped_moments=imported.dropped_moments,
        dropped_keys=imported.dropped_keys,
        notes=imported.notes,
        reused=reused,
    )


def _is_whole(states: Checkpoints, step: int) -> bool:
    """Whether the state is there with all its files. Raises IntegrityError if one was altered."""
    try:
        index, _ = states.index(step)
    except NotFoundError:
        return False
    folder = f"{states.prefix}/step-{step:08d}"
    return check_files(states.store, folder, [(file.path, file.sha256, file.bytes) for file in index.files])


def _save(states: Checkpoints, imported: ImportedTraining, sink: EventSink) -> None:
    writer = CheckpointWriter(
        states, ALONE, keep=1, warn=lambda message: sink.emit(Event("import", "warning", message))
    )
    writer.save(imported.model, imported.optimizer, imported.state, StepLog())
    failed = writer.wait()
    if failed is not None:
        raise failed
