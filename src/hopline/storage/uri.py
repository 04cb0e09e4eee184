"""URIs: which store a string means, and how a URI is put together and taken apart."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote

from hopline.errors import ConfigError
from hopline.storage.file import FileStore
from hopline.storage.keys import validate_key
from hopline.storage.store import Store

__all__ = ["join_uri", "open_object", "open_store", "split_uri"]

_ACCEPTED = "accepted are s3://bucket/prefix, file:///absolute/folder and a local path"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:s3|file|https?):", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def open_store(uri: str) -> Store:
    """Return the store at ``uri``: ``file:///abs``, a local path (relative or absolute), or ``s3://bucket/prefix``.

    Nothing is contacted or created yet. Raises ``ConfigError`` for anything else, saying what is accepted.
    """
    scheme = _scheme(uri)
    if scheme == "s3":
        from hopline.storage.s3 import S3Store  # boto3 takes a while to import, and a local run never needs it

        bucket, prefix = _s3_parts(uri)
        return S3Store(bucket, prefix)
    return FileStore(_file_path(uri) if scheme == "file" else Path(uri).expanduser())


def split_uri(uri: str) -> tuple[str, str]:
    """Split an object's URI into the URI of its folder (a store) and its name there (a key). Raises ``ConfigError``."""
    scheme = _scheme(uri)
    if scheme == "s3":
        bucket, path = _s3_parts(uri)
        folder, _, name = path.rpartition("/")
        base = f"s3://{bucket}/{folder}" if folder else f"s3://{bucket}"
    elif scheme == "file":
        location = _file_path(uri)
        base, name = _file_uri(location.parent), location.name
    else:
        base, name = str(Path(uri).parent), Path(uri).name
    if not name or uri.endswith("/"):
        raise ConfigError(
            f"{uri!r} names a folder; expected the URI of one object, such as s3://bucket/models/m/manifest.json"
        )
    return base, validate_key(name)


def open_object(uri: str) -> tuple[Store, str]:
    """Return the store of an object's folder, and the object's key in it. Raises ``ConfigError``."""
    base, key = split_uri(uri)
    return open_store(base), key


def join_uri(base: str, *parts: str) -> str:
    """Return the URI of the key ``parts`` (each one or more segments) under ``base``. Raises ``ConfigError``."""
    key = "/".join(part.strip("/") for part in parts)
    if key:
        validate_key(key)
    scheme = _scheme(base)
    if scheme == "file":
        key = quote(key)
    start = f"{scheme}://" if scheme else ""
    root = start + base[len(start) :].rstrip("/")
    if not key:
        return root if len(root) > len(start) else f"{root}/"
    return f"{root}/{key}"


def _scheme(uri: str) -> str | None:
    if not uri or _CONTROL.search(uri):
        raise ConfigError(f"{uri!r} is not a location; {_ACCEPTED}")
    found = _SCHEME.match(uri)
    if found is None:
        return None
    for scheme in ("s3", "file"):
        if found.group() == f"{scheme}://":
            return scheme
    raise ConfigError(f"{uri!r} is not a location that can be opened; {_ACCEPTED}")


def _s3_parts(uri: str) -> tuple[str, str]:
    bucket, _, path = uri.removeprefix("s3://").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError(f"{uri!r}: {bucket!r} is not a bucket name; expected s3://bucket/prefix")
    path = path.rstrip("/")
    if path:
        validate_key(path)
    return bucket, path


def _file_path(uri: str) -> Path:
    path = unquote(uri.removeprefix("file://").removeprefix("localhost"), errors="surrogateescape")
    if not path.startswith("/"):
        raise ConfigError(f"{uri!r}: a file URI has three slashes and an absolute path, as in file:///data/hopline")
    if _CONTROL.search(path):
        raise ConfigError(f"{uri!r} holds an escaped control character; {_ACCEPTED}")
    return Path(path)


def _file_uri(path: Path) -> str:
    return path.as_uri()
