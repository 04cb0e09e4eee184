"""Where a dataset comes from: the files of a source, located and hashed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from hopline.config import DatasetConfig
from hopline.datasets.index import SourceFile, SourceFiles
from hopline.datasets.triples import TRIPLE_FILES, triple_file
from hopline.errors import DataError
from hopline.storage import sha256_file

__all__ = ["PYKEEN_SETS", "SYNTHETIC", "is_examples", "snapshot_source"]

SYNTHETIC: Final = "synthetic"
PYKEEN_SETS: Final = ("umls", "kinships", "nations")
_PYKEEN: Final = "pykeen://"


def snapshot_source(config: DatasetConfig, folder: Path | None) -> SourceFiles:
    """Locate the files of ``config.source`` and take their digests.

    Args:
        config: the dataset section.
        folder: where the source lies on this machine, for a source that had to be fetched; a folder of triples or an
            ``examples.jsonl``. None: the source says itself.

    Raises:
        DataError: a file is missing, or the source cannot be reached from here.
    """
    if config.source == SYNTHETIC:
        return SourceFiles(uri=SYNTHETIC)
    place = folder if folder is not None else _locate(config.source)
    if is_examples(place):
        if not place.is_file():
            raise DataError(f"{place}: no such file; dataset.source names a file of examples")
        files = [place]
    else:
        if not place.is_dir():
            raise DataError(
                f"{place}: no such folder; dataset.source is 'synthetic', pykeen://umls, a folder of triples or an "
                "examples.jsonl"
            )
        files = [triple_file(place, name) for name in TRIPLE_FILES]
    try:
        infos = tuple(SourceFile(path=file.name, bytes=file.stat().st_size, sha256=sha256_file(file)) for file in files)
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from None
    return SourceFiles(uri=config.source, files=infos, folder=place)


def is_examples(place: Path) -> bool:
    """Whether a source is a file of examples rather than a folder of triples."""
    return place.suffix == ".jsonl"


def _locate(source: str) -> Path:
    if source.startswith(_PYKEEN):
        name = source.removeprefix(_PYKEEN)
        if name not in PYKEEN_SETS:
            known = ", ".join(_PYKEEN + known for known in PYKEEN_SETS)
            raise DataError(f"{source}: no such set in pykeen; there are {known}")
        # Found, not imported: only its data files are wanted, and importing it takes seconds.
        spec = importlib.util.find_spec("pykeen")
        if spec is None or not spec.submodule_search_locations:
            raise DataError(f"{source}: pykeen is not installed; pip install --no-deps pykeen==1.11.1")
        return Path(spec.submodule_search_locations[0]) / "datasets" / name
    scheme = urlsplit(source).scheme
    if scheme == "file":
        return Path(unquote(urlsplit(source).path))
    if scheme and "://" in source:
        raise DataError(f"{source}: has to be fetched to this machine first; this call was given no folder for it")
    return Path(source)
