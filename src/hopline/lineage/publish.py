"""Upload a version: its files under the manifest's hash, the manifest last: half a version is never taken for whole."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopline.errors import DataError, IntegrityError
from hopline.lineage.keys import SigningKey
from hopline.lineage.manifest import Manifest
from hopline.lineage.names import ENVELOPE, MANIFEST, validate_paths
from hopline.lineage.signing import sign_version
from hopline.lineage.subjects import staged_paths
from hopline.progress import Event, EventSink
from hopline.storage import Store, validate_key
from hopline.storage.transfer import Upload, upload_files

__all__ = ["PublishedVersion", "model_prefix", "publish_version", "sign_published", "version_prefix"]

_STAGE: Final = "publish"


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """Where a version lies. ``reused``: it was already there, whole."""

    manifest_uri: str
    manifest_hash: str
    reused: bool


def model_prefix(name: str) -> str:
    """Keys of a model - versions, champion pointer, history - begin with this and a slash. Raises ``ConfigError``."""
    return validate_key(f"models/{name}")


def version_prefix(name: str, manifest_hash: str) -> str:
    """Keys of a version's files begin with this and a slash."""
    return f"{model_prefix(name)}/{manifest_hash}"


def publish_version(
    store: Store, name: str, staged: Path, manifest: Manifest, *, keys: Sequence[SigningKey] = (), sink: EventSink
) -> PublishedVersion:
    """Publish the files of ``staged`` as the version that ``manifest`` describes; calling it again completes or finds it.

    Every file is stored only if absent, and its bytes have the digest in the manifest or nothing is stored; the envelope
    with a signature of each of ``keys`` follows, and ``manifest.json`` is written last. The same call from several processes
    at once ends with one whole version.

    Raises:
        DataError: the manifest is for another model, or the folder's files are not those of the manifest.
        IntegrityError: a file was changed since it was digested, or the version's folder in the store holds other bytes or
            other files than the manifest's, or an envelope about something else.
        StoreError: the store refuses or cannot be reached.
    """
    staged = Path(staged)
    if manifest.name != name:
        raise DataError(
            f"the manifest is of the model {manifest.name!r}, and {name!r} is to be published; build it again"
        )
    subjects = {file.path: file for file in manifest.subjects.files}
    validate_paths(subjects, source="manifest")
    if odd := sorted(set(staged_paths(staged)) ^ set(subjects)):
        where = "missing in the folder" if odd[0] in subjects else "not in the manifest"
        raise DataError(f"{staged}: {odd[0]} is {where}; stage the files again and build the manifest from them")
    data, version = manifest.to_bytes(), manifest.manifest_hash
    prefix = version_prefix(name, version)
    there = {info.key.removeprefix(f"{prefix}/"): info.size for info in store.list(f"{prefix}/")}
    if stray := sorted(set(there) - set(subjects) - {MANIFEST, ENVELOPE}):
        raise IntegrityError(
            f"{store.uri(prefix)}: holds {stray[0]}, which is no file of this version; a version never changes, so remove "
            "that file"
        )
    whole = MANIFEST in there and set(subjects) <= set(there)
    total = sum(file.size for file in subjects.values())
    sink.emit(Event(_STAGE, "note", f"{len(subjects)} files of {name} {version[:12]}", 0, total))
    sent, lock = 0, threading.Lock()

    def on_bytes(count: int) -> None:
        nonlocal sent
        with lock:
            sent += count
            sink.emit(Event(_STAGE, "progress", "", sent, total))

    uploads = [Upload(f"{prefix}/{path}", staged / path, file.sha256, file.size) for path, file in subjects.items()]
    upload_files(store, uploads, on_bytes=on_bytes)
    sign_version(store, prefix, manifest, keys)
    key = f"{prefix}/{MANIFEST}"
    store.put_bytes(key, data, if_absent=True)
    uri = store.uri(key)
    sink.emit(Event(_STAGE, "note", f"{'already published' if whole else 'published'}: {uri}"))
    return PublishedVersion(uri, version, whole)


def sign_published(store: Store, name: str, manifest_hash: str, keys: Sequence[SigningKey]) -> None:
    """Add the signatures of ``keys`` to a version that was published before, where they are missing.

    Raises as ``sign_version``, and ``NotFoundError`` or ``IntegrityError`` if the version's manifest is gone or altered.
    """
    if keys:
        prefix = version_prefix(name, manifest_hash)
        key = f"{prefix}/{MANIFEST}"
        manifest = Manifest.parse(store.get_bytes(key, sha256=manifest_hash), source=store.uri(key))
        sign_version(store, prefix, manifest, keys)
