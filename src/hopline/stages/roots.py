"""The root of a deployment, the layout under it, and the local folders that stand in for it while work is in progress."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from hopline.errors import DataError, StoreError
from hopline.storage import Store, open_store, validate_key

__all__ = [
    "CACHE_VARIABLE",
    "DEFAULT_ROOT",
    "ROOT_VARIABLE",
    "cache_folder",
    "dataset_prefix",
    "free_local",
    "open_root",
    "resolve_root",
    "run_prefix",
]

ROOT_VARIABLE: Final = "HOPLINE_ROOT"
DEFAULT_ROOT: Final = ".hopline"
CACHE_VARIABLE: Final = "HOPLINE_CACHE"


def resolve_root(root: str | None) -> str:
    """``--root``, else ``HOPLINE_ROOT``, else ``.hopline/`` in the current folder, as an absolute URI."""
    return open_root(root or os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT).base_uri


def open_root(root: str) -> Store:
    """The store of a root."""
    return open_store(root)


def dataset_prefix(dataset_hash: str) -> str:
    """Keys of a dataset begin with this."""
    return f"datasets/{dataset_hash}"


def run_prefix(run_hash: str) -> str:
    """Keys of a run begin with this."""
    return f"runs/{run_hash}"


def key_of(store: Store, uri: str) -> str:
    """The key of an object of the root, from its URI.

    Raises:
        DataError: the URI is not under the root.
    """
    start = f"{store.base_uri}/"
    if not uri.startswith(start):
        raise DataError(f"{uri}: is not under the root {store.base_uri}; give a URI of the same root")
    return validate_key(uri.removeprefix(start))


def cache_folder(*parts: str) -> Path:
    """A folder, made if needed, for copies of what a remote root holds: ``HOPLINE_CACHE``, else the user's cache.

    Raises:
        StoreError: it cannot be made.
    """
    base = os.environ.get(CACHE_VARIABLE)
    home = Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hopline"
    return make_folder(home.joinpath(*parts), f"set {CACHE_VARIABLE} to a folder that can be written")


def make_folder(folder: Path, advice: str) -> Path:
    """Make a local folder. Raises StoreError with the advice if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made: {error.strerror}; {advice}") from None
    return folder


def free_local(folder: Path) -> None:
    """Remove a local working folder, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)
