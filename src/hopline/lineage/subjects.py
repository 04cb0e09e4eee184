"""The published files and their digests: part 2 of a manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final

from hopline.errors import DataError, NotFoundError
from hopline.lineage.names import ENVELOPE, MANIFEST, validate_paths
from hopline.lineage.schema import (
    FileRecord,
    Subjects,
)
from hopline.lineage.tensorfile import FileDigest, TensorEntry, digest_tensor_file
from hopline.storage import canonical_json, sha256_file
from hopline.storage.local import os_errors

__all__ = ["combine_tensor_digests", "describe_files", "media_type", "tensors_digest"]

_MEDIA_TYPES: Final = MappingProxyType(
    {
        ".safetensors": "application/vnd.safetensors",
        ".json": "application/json",
        ".jsonl": "application/jsonl",
        ".html": "text/html",
        ".md": "text/markdown",
        ".txt": "text/plain",
        ".png": "image/png",
        ".svg": "image/svg+xml",
    }
)


def media_type(path: str) -> str:
    """Return a file's media type by its ending; the same on every machine, unlike ``mimetypes``."""
    return _MEDIA_TYPES.get(Path(path).suffix.lower(), "application/octet-stream")


def describe_files(folder: Path) -> Subjects:
    """Digest every file of a staged folder, except ``manifest.json`` and ``manifest.dsse.json``; each is read once.

    Raises:
        NotFoundError: there is no such folder, or no weights (``*.safetensors``) in it.
        DataError: a name that cannot be published, a symbolic link or a special file, or weights that are damaged.
        StoreError: a file cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFoundError(f"{folder}: there is no such folder to publish")
    paths = staged_paths(folder)
    validate_paths(paths, source=str(folder))
    weights: list[FileDigest] = []
    records = []
    for path in paths:
        file = folder / path
        if path.endswith(".safetensors"):
            found = digest_tensor_file(file)
            weights.append(found)
            sha256, size = found.sha256, found.size
        else:
            with os_errors("read", file):
                sha256, size = sha256_file(file), file.stat().st_size
        records.append(FileRecord(path=path, size=size, sha256=sha256, media_type=media_type(path)))
    if not weights:
        raise NotFoundError(f"{folder}: there are no weights to publish; expected model.safetensors")
    return Subjects(files=tuple(records), tensors_digest=combine_tensor_digests(weights, source=str(folder)))


def staged_paths(folder: Path) -> list[str]:
    """List the files under ``folder`` as sorted POSIX paths, without the manifest and its envelope.

    Raises ``DataError`` for a symbolic link or anything else that is no ordinary file or folder.
    """
    found = []
    for base, folders, files in os.walk(folder, onerror=_raise):
        for name in (*folders, *files):
            path = Path(base) / name
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise DataError(f"{path}: is a symbolic link or a special file; expected ordinary files alone")
        found += [(Path(base) / name).relative_to(folder).as_posix() for name in files]
    return sorted(path for path in found if path not in (MANIFEST, ENVELOPE))


def tensors_digest(paths: Sequence[Path]) -> str:
    """Digest the tensors of one or more safetensors files, however they are spread over files and ordered in them.

    It is the sha256 of the canonical JSON of ``[name, dtype, shape, sha256 of the little-endian bytes]`` of every tensor,
    sorted by name. So weights that were written again, or cut differently, still match, and bf16 never equals fp32.

    Raises as ``digest_tensor_file``, and ``DataError`` for a name that stands in two files.
    """
    paths = [Path(path) for path in paths]
    with ThreadPoolExecutor(max_workers=min(4, max(1, len(paths))), thread_name_prefix="digest") as pool:
        files = list(pool.map(digest_tensor_file, paths))
    return combine_tensor_digests(files, source=", ".join(map(str, paths)))


def combine_tensor_digests(files: Iterable[FileDigest], *, source: str) -> str:
    """The digest of ``tensors_digest`` from files that were read already. Raises ``DataError`` for a name in two files."""
    table: dict[str, tuple[TensorEntry, str]] = {}
    for file in files:
        for entry, digest in file.tensors:
            if entry.name in table:
                raise DataError(f"{source}: tensor {entry.name!r} stands in two files; expected each once")
            table[entry.name] = (entry, digest)
    whole = hashlib.sha256()
    whole.update(
        canonical_json(
            [[name, table[name][0].dtype, list(table[name][0].shape), table[name][1]] for name in sorted(table)]
        )
    )
    return whole.hexdigest()


def _raise(error: OSError) -> None:
    raise error
