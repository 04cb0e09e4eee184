"""Where a dataset comes from: the files of a source, located and hashed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from hopline.config import DatasetConfig
from hopline.datasets.archives import ARCHIVE_SUFFIXES
from hopline.datasets.index import SourceFile, SourceFiles
from hopline.datasets.triple_files import TRIPLE_SUFFIXES, is_triples, triple_paths
from hopline.errors import DataError
from hopline.storage import sha256_file

__all__ = [
    "PYKEEN_SETS",
    "SOURCE_SUFFIXES",
    "SYNTHETIC",
    "example_paths",
    "is_data_file",
    "is_examples",
    "naming_source",
    "snapshot_source",
    "source_paths",
    "unpacked_place",
]

SYNTHETIC: Final = "synthetic"
PYKEEN_SETS: Final = ("umls", "kinships", "nations")
EXAMPLE_SUFFIXES: Final = (".jsonl", ".jsonl.gz")
SOURCE_SUFFIXES: Final = (*EXAMPLE_SUFFIXES, *TRIPLE_SUFFIXES)
"""Names of data files end so."""

_PYKEEN: Final = "pykeen://"


def snapshot_source(
    config: DatasetConfig,
    folder: Path | None,
    *,
    known: Iterable[SourceFile] = (),
    packed_in: SourceFile | None = None,
) -> SourceFiles:
    """Locate the files of ``config.source`` and take their digests.

    Args:
        config: the dataset section.
        folder: where the source lies on this machine, for one that had to be fetched or unpacked. None: the source says
            itself.
        known: files of the folder that need not be hashed again.
        packed_in: the archive that they were in, part of the snapshot too.

    Raises:
        DataError: a file is missing, or the source cannot be reached from here.
    """
    if config.source == SYNTHETIC:
        return SourceFiles(uri=SYNTHETIC)
    place = folder if folder is not None else _locate(config.source)
    hashed = {file.path: file for file in known}
    with naming_source(SourceFiles(uri=config.source, folder=place)):
        paths = source_paths(place, config)
        try:
            files = tuple(hashed.get(path.name) or _digested(path) for path in paths)
        except OSError as error:
            raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from None
    archive = () if packed_in is None else (packed_in,)
    return SourceFiles(uri=config.source, files=(*archive, *files), folder=place)


def source_paths(place: Path, config: DatasetConfig) -> tuple[Path, ...]:
    """The data files of a source on this machine. DataError if they are not there."""
    if is_examples(place):
        return example_paths(place)
    if place.is_file() and not is_triples(place):
        raise DataError(f"{place}: no data file by its name; expected one that ends in {', '.join(SOURCE_SUFFIXES)}")
    if not place.exists():
        raise DataError(
            f"{place}: no such folder; dataset.source is 'synthetic', pykeen://umls, a folder or file of triples, an "
            "examples.jsonl, or an archive of one of these"
        )
    return tuple(triple_paths(place, given=config.triple_split == "given").values())


def is_examples(place: Path) -> bool:
    """Whether a source is a file of examples, or a folder of them, rather than one of triples.

    Raises:
        DataError: it is a folder with both.
    """
    if not place.is_dir():
        return place.name.endswith(EXAMPLE_SUFFIXES)
    examples = _examples_in(place)
    if examples and (triples := next((path for path in sorted(place.iterdir()) if is_triples(path)), None)):
        raise DataError(
            f"{place}: holds examples ({examples[0].name}) and triples ({triples.name}); keep one kind there"
        )
    return bool(examples)


def example_paths(place: Path) -> tuple[Path, ...]:
    """The files of examples of a source: itself, or those in the folder, by name. DataError if there is none."""
    if place.is_dir():
        return _examples_in(place)
    if not place.is_file():
        raise DataError(f"{place}: no such file; dataset.source names a file of examples")
    return (place,)


def is_data_file(path: str) -> bool:
    """Whether a path is that of a data file that somebody put there on purpose; ``.`` and ``__MACOSX`` hide the others."""
    *folders, name = path.split("/")
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in (*folders, name))
    return name.endswith(SOURCE_SUFFIXES) and not hidden


def unpacked_place(folder: Path, members: Sequence[str], name: str) -> Path:
    """The folder with the data files, of an archive that was unpacked.

    Raises:
        DataError: there are none, or they are in several folders.
    """
    parents = sorted({member.rpartition("/")[0] for member in members})
    if not parents:
        raise DataError(f"{name}: no data files in it; expected names that end in {', '.join(SOURCE_SUFFIXES)}")
    if len(parents) > 1:
        found = ", ".join(f"'{parent or '.'}'" for parent in parents[:3])
        raise DataError(f"{name}: data files in several folders ({found}); pack one of them")
    return folder / parents[0]


@contextmanager
def naming_source(source: SourceFiles) -> Iterator[None]:
    """Make errors name a file as the person did who gave the source, not as the copy of it on this machine."""
    try:
        yield
    except DataError as error:
        if "://" not in source.uri and not source.uri.endswith(ARCHIVE_SUFFIXES):
            raise
        raise DataError(str(error).replace(str(source.folder), source.uri.rstrip("/"))) from None


def _examples_in(folder: Path) -> tuple[Path, ...]:
    names = (path for path in folder.iterdir() if path.name.endswith(EXAMPLE_SUFFIXES) and path.is_file())
    return tuple(sorted(path for path in names if not path.name.startswith(".")))


def _digested(path: Path) -> SourceFile:
    return SourceFile(path=path.name, bytes=path.stat().st_size, sha256=sha256_file(path))


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
    if source.endswith(ARCHIVE_SUFFIXES):
        raise DataError(f"{source}: has to be unpacked on this machine first; this call was given no folder for it")
    if scheme == "file":
        return Path(unquote(urlsplit(source).path))
    if scheme and "://" in source:
        raise DataError(f"{source}: has to be fetched to this machine first; this call was given no folder for it")
    return Path(source).expanduser()
