"""Where a dataset's source files are, as a local folder or file: fetched from a store, unpacked from an archive."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError

from hopline.config import DatasetConfig
from hopline.datasets import SourceFile, SourceFiles, snapshot_source
from hopline.datasets.archives import ARCHIVE_SUFFIXES, unpack
from hopline.datasets.source import SOURCE_SUFFIXES, is_data_file, unpacked_place
from hopline.errors import DataError, NotFoundError, StoreError
from hopline.stages.roots import cache_folder, free_local
from hopline.storage import Store, canonical_json, open_object, open_store, sha256_bytes, sha256_file

__all__ = ["source_snapshot"]

_MARKER: Final = ".files.json"
"""Written last into a folder of the cache: the digest of every file in it."""
_KEPT_SECONDS: Final = 7 * 24 * 3600
"""A copy that was not used for so long is removed."""
_TRANSFERS: Final = 8
_FILES: Final = TypeAdapter(tuple[SourceFile, ...])


def source_snapshot(section: DatasetConfig) -> SourceFiles:
    """The files of ``dataset.source`` on this machine, with the digest of each: what decides a dataset beside its config.

    A remote source is listed, and fetched into the cache if it is not what was fetched before; an archive is unpacked there.
    Files are hashed while they are fetched or unpacked where that is possible, and once otherwise.

    Raises:
        DataError: the source is a URI of another kind, or what is there is no source.
        NotFoundError: a remote source holds nothing.
        StoreError: a store refuses or cannot be reached, or the cache cannot be written.
    """
    source = section.source
    if source == "synthetic" or source.startswith("pykeen://"):
        return snapshot_source(section, None)
    if "://" in source and not source.startswith(("file://", "s3://")):
        raise DataError(
            f"{source}: no source can be read there; dataset.source is 'synthetic', pykeen://umls, or the path, file:// or "
            "s3:// URI of a folder or file of triples, an examples.jsonl, or an archive of one of these"
        )
    known: tuple[SourceFile, ...] = ()
    if source.startswith("s3://"):
        place, known = _fetched(source)
    else:
        place = Path(unquote(source.removeprefix("file://")) if source.startswith("file://") else source).expanduser()
    if not place.name.endswith(ARCHIVE_SUFFIXES) or place.is_dir():
        return snapshot_source(section, place, known=known)
    archive = known[0] if known else _hashed(place, source)
    folder, members = _unpacked(place, archive, source)
    return snapshot_source(section, folder, known=members, packed_in=archive)


def _fetched(source: str) -> tuple[Path, tuple[SourceFile, ...]]:
    """The local copy of a remote object, or of the data files right under a prefix."""
    single = source.endswith((*SOURCE_SUFFIXES, *ARCHIVE_SUFFIXES))
    if single:
        store, key = open_object(source)
        info = store.head(key)
        infos = [] if info is None else [info]
    else:
        store = open_store(source)
        infos = [info for info in store.list() if "/" not in info.key and is_data_file(info.key)]
    if not infos:
        raise NotFoundError(
            f"{source}: no such object"
            if single
            else f"{source}: no data files there; expected train.txt, valid.txt and test.txt, or names that end in "
            f"{', '.join(SOURCE_SUFFIXES)}"
        )
    listing = [[info.key, info.size, info.etag, info.sha256] for info in infos]

    def fetch(folder: Path) -> Iterable[SourceFile]:
        with ThreadPoolExecutor(max_workers=min(_TRANSFERS, len(infos)), thread_name_prefix="source") as pool:
            return tuple(pool.map(lambda info: _fetch(store, info.key, folder / info.key), infos))

    folder, files = _cached(sha256_bytes(canonical_json([source, listing])), fetch)
    return (folder / infos[0].key if single else folder), files


def _fetch(store: Store, key: str, path: Path) -> SourceFile:
    """Fetch one object. A store that knows its digest has it checked on the way, and it is not hashed again."""
    info = store.head(key)
    digest = None if info is None else info.sha256
    store.get_file(key, path, sha256=digest, size=None if info is None else info.size)
    return SourceFile(path=key, bytes=path.stat().st_size, sha256=digest or sha256_file(path))


def _hashed(archive: Path, source: str) -> SourceFile:
    try:
        return SourceFile(path=archive.name, bytes=archive.stat().st_size, sha256=sha256_file(archive))
    except FileNotFoundError:
        raise DataError(f"{source}: no such file; expected an archive of triples or examples") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror}") from None


def _unpacked(place: Path, archive: SourceFile, source: str) -> tuple[Path, tuple[SourceFile, ...]]:
    """The folder of the data files in an archive, and what they are."""

    def extract(folder: Path) -> Iterable[SourceFile]:
        return unpack(place, folder, wanted=is_data_file, name=source)

    folder, members = _cached(archive.sha256, extract)
    inner = unpacked_place(folder, [member.path for member in members], source)
    return inner, tuple(member.model_copy(update={"path": member.path.rpartition("/")[2]}) for member in members)


def _cached(name: str, fill: Callable[[Path], Iterable[SourceFile]]) -> tuple[Path, tuple[SourceFile, ...]]:
    """A folder of the cache that ``fill`` has filled, and the files in it, with their paths there.

    It is filled under another name and appears when it is whole, so that several processes can do this at once.
    """
    home = cache_folder("sources")
    folder = home / name
    try:
        files = _read_marker(folder)
        if files is None:
            _remove_unused(home)
            with tempfile.TemporaryDirectory(dir=home, prefix=".part-") as temporary:
                filling = Path(temporary) / name
                filling.mkdir()
                files = tuple(fill(filling))
                (filling / _MARKER).write_bytes(_FILES.dump_json(files))
                free_local(folder)
                try:
                    filling.rename(folder)
                except OSError:
                    if _read_marker(folder) is None:
                        raise
        os.utime(folder)
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder}: cannot be written: {error.strerror or error}; set HOPLINE_CACHE to a folder "
            "with room"
        ) from None
    return folder, files


def _read_marker(folder: Path) -> tuple[SourceFile, ...] | None:
    """What a folder of the cache holds; None if it is not there, or not whole."""
    try:
        files = _FILES.validate_json((folder / _MARKER).read_bytes())
        whole = all((folder / file.path).stat().st_size == file.bytes for file in files)
    except (FileNotFoundError, ValidationError):
        return None
    return files if whole else None


def _remove_unused(home: Path) -> None:
    """Remove the copies that nobody has used for a week, so that a prefix that changes does not fill the disk."""
    oldest = time.time() - _KEPT_SECONDS
    for folder in home.iterdir():
        if folder.is_dir() and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)
