"""The dataset stage: from a source and a config section to an immutable dataset named by its content."""

from __future__ import annotations

from pathlib import Path

from hopline.config import DatasetConfig, ResolvedConfig
from hopline.datasets import SPLITS, Dataset, DatasetIndex, build_dataset
from hopline.datasets.index import INDEX_FILE
from hopline.datasets.splits import split_rule
from hopline.errors import IntegrityError
from hopline.progress import Event, EventSink, NullSink
from hopline.stages.inputs import dataset_request
from hopline.stages.requests import read_record, write_record
from hopline.stages.results import GenerateResult
from hopline.stages.roots import dataset_prefix, free_local, open_root
from hopline.stages.shard_cache import CachedShards
from hopline.stages.sources import source_snapshot
from hopline.stages.work import exclusive, work_folder
from hopline.storage import Store
from hopline.storage.folders import check_files, put_folder

__all__ = ["generate", "open_dataset", "read_index", "split_rule_of"]


def generate(config: ResolvedConfig, *, root: str, sink: EventSink | None = None) -> GenerateResult:
    """Make the dataset that ``config.dataset`` describes, or find it.

    Raises:
        DataError: the source is missing or wrong.
        IntegrityError: the dataset that was made before has been altered.
        StoreError: the root refuses or cannot be reached.
    """
    sink = sink or NullSink()
    store = open_root(root)
    section = config.config.dataset
    source = source_snapshot(section)
    request = dataset_request(section, source)
    with exclusive(store, request, sink):
        sink.emit(Event("generate", "start", f"dataset from {section.source}"))
        found = read_record(store, request, GenerateResult)
        if found is not None and _verified(store, found.dataset_hash):
            sink.emit(Event("generate", "done", f"reused dataset {found.dataset_hash[:12]}"))
            return found
        work = work_folder(store, request)
        index = build_dataset(section, work, source=source, sink=sink)
        for warning in _warnings(index):
            sink.emit(Event("generate", "warning", warning))
        _commit(store, work, index)
        result = GenerateResult(
            dataset_uri=store.uri(dataset_prefix(index.dataset_hash)),
            dataset_hash=index.dataset_hash,
            examples={name: index.splits[name].units for name in SPLITS},
            reused=False,
        )
        write_record(store, request, result)
        free_local(work)
        sink.emit(Event("generate", "done", f"dataset {index.dataset_hash[:12]}"))
        return result


def open_dataset(root: str, dataset_hash: str, *, sink: EventSink | None = None, stage: str = "train") -> Dataset:
    """Open a dataset of the root; every byte is checked. The shards of a remote root go through the cache of this machine.

    Args:
        root: URI.
        dataset_hash: names the dataset.
        sink, stage: who is told of a transfer, and on whose behalf.

    Raises:
        NotFoundError: there is none of that hash.
        IntegrityError: the index was altered. A shard that is missing or altered is found when its split is asked for.
    """
    store = open_root(root)
    prefix = dataset_prefix(dataset_hash)
    local = store.local_path(prefix)
    if local is not None:
        return Dataset.open(local, expected_hash=dataset_hash)
    index = read_index(store, dataset_hash)
    return Dataset(index, CachedShards(store, prefix, sink=sink, stage=stage), name=store.uri(prefix))


def read_index(store: Store, dataset_hash: str) -> DatasetIndex:
    """The index of a dataset of the root.

    Raises:
        NotFoundError: there is none of that hash.
        IntegrityError: it was altered.
    """
    key = f"{dataset_prefix(dataset_hash)}/{INDEX_FILE}"
    index = DatasetIndex.load(store.get_bytes(key), name=store.uri(key))
    if index.dataset_hash != dataset_hash:
        raise IntegrityError(
            f"{store.uri(key)}: found dataset hash {index.dataset_hash}, expected {dataset_hash}; "
            "the index was altered: remove the folder to make the dataset again"
        )
    return index


def split_rule_of(index: DatasetIndex) -> str:
    """How a dataset was divided, in words."""
    from_examples = index.source.files != () and index.vocabulary.entities is None
    return split_rule(DatasetConfig.model_validate(index.config), from_examples=from_examples)


def _verified(store: Store, dataset_hash: str) -> bool:
    """Whether a recorded dataset is complete. A file that is gone means no; one that was altered is an error."""
    prefix = dataset_prefix(dataset_hash)
    if store.head(f"{prefix}/{INDEX_FILE}") is None:
        return False
    index = read_index(store, dataset_hash)
    shards = [shard for split in index.splits.values() for shard in split.shards]
    return check_files(store, prefix, [(shard.file, shard.sha256, shard.bytes) for shard in shards])


def _warnings(index: DatasetIndex) -> tuple[str, ...]:
    """What was left out of the source, and what is asked in two splits; the index has it all."""
    repeated = index.leakage.duplicate_queries
    if not repeated:
        return index.imported.warnings() if index.imported is not None else ()
    asked = f"{repeated} examples ask what an earlier split asks, up to the names of nodes"
    return (*(index.imported.warnings() if index.imported is not None else ()), asked)


def _commit(store: Store, work: Path, index: DatasetIndex) -> None:
    """Bring a finished dataset into the store under its hash; a local one is moved, not copied."""
    prefix = dataset_prefix(index.dataset_hash)
    target = store.local_path(prefix)
    if target is not None and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        work.rename(target)
        return
    put_folder(store, prefix, work)
