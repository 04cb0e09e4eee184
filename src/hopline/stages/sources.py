"""Where a dataset's source files are, as a local folder or file."""

from __future__ import annotations

from pathlib import Path

from hopline.errors import DataError, NotFoundError
from hopline.stages.roots import cache_folder
from hopline.storage import open_object, open_store, sha256_bytes

__all__ = ["local_source"]


def local_source(source: str) -> Path | None:
    """The local path of ``dataset.source``; objects of a remote source are copied into the cache first.

    None where the source is no location: ``synthetic`` and the data sets of an installed package.

    Raises:
        DataError: the source is a URI of another kind.
        NotFoundError: a remote source holds nothing.
    """
    if source == "synthetic" or source.startswith("pykeen://"):
        return None
    if "://" in source and not source.startswith(("file://", "s3://")):
        raise DataError(
            f"{source}: no source can be read there; dataset.source is 'synthetic', pykeen://umls, or a folder of triples "
            "or an examples.jsonl as a path, file:// or s3:// URI"
        )
    if not source.startswith("s3://"):
        return Path(source.removeprefix("file://")).expanduser()
    folder = cache_folder("sources", sha256_bytes(source.encode()))
    if source.endswith(".jsonl"):
        store, key = open_object(source)
        store.get_file(key, folder / key, sha256=None)
        return folder / key
    store = open_store(source)
    infos = [info for info in store.list() if "/" not in info.key]
    if not infos:
        raise NotFoundError(f"{source}: no objects there; expected train.txt, valid.txt and test.txt")
    for path in folder.iterdir():
        path.unlink()
    for info in infos:
        store.get_file(info.key, folder / info.key, sha256=info.sha256, size=info.size)
    return folder
