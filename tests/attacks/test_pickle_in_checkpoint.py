"""A checkpoint that carries code, given to ``hopline import-checkpoint``: refused in one line, and nothing was run.

Each of these files is a working attack: read with ``pickle`` or ``torch.load(weights_only=False)`` it makes a file. The
first test proves that, so that the others cannot pass because an attack was none.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.stages.workbench import hopline
from tests.training.reference_file import make_document


class Code:
    """Unpickles to the result of a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def touch(mark: Path) -> Code:
    return Code(os.system, f"touch '{mark}'")


def in_the_config(mark: Path, path: Path) -> None:
    document = make_document()
    document["config"]["hook"] = touch(mark)
    torch.save(document, path)


def in_the_weights(mark: Path, path: Path) -> None:
    torch.save(make_document() | {"model": {"entities.out.bias": touch(mark)}}, path)


def by_a_builtin(mark: Path, path: Path) -> None:
    torch.save(make_document() | {"rng_state": Code(eval, f"__import__('pathlib').Path({str(mark)!r}).touch()")}, path)


def as_a_bare_pickle(protocol: int) -> Callable[[Path, Path], None]:
    def make(mark: Path, path: Path) -> None:
        path.write_bytes(pickle.dumps({"model": touch(mark)}, protocol=protocol))

    return make


def by_names_from_the_memo(mark: Path, path: Path) -> None:
    """The texts that come last before the look-up are harmless; what is looked up is fetched from the memo."""
    command = f"touch '{mark}'".encode()
    pickled = (
        b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94"  # memo 0 and 1
        b"\x8c\x0bcollections\x8c\x0bOrderedDict00"  # read by whoever looks at the last two texts; dropped
        b"00h\x00h\x01\x93" + b"X" + len(command).to_bytes(4, "little") + command + b"\x85R."
    )
    _archive(path, {"archive/data.pkl": pickled, "archive/version": b"3\n", "archive/byteorder": b"little"})


def in_a_second_pickle(mark: Path, path: Path) -> None:
    """Two files with the name that torch reads; a reader that checks the first and runs the last is lost."""
    torch.save(make_document(), path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/data.pkl", pickle.dumps(touch(mark), protocol=2))


def _archive(path: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


ATTACKS = {
    "in the config": in_the_config,
    "in the weights": in_the_weights,
    "by a builtin": by_a_builtin,
    "by names from the memo": by_names_from_the_memo,
    "in a second pickle": in_a_second_pickle,
    **{f"as a bare pickle, protocol {p}": as_a_bare_pickle(p) for p in range(pickle.HIGHEST_PROTOCOL + 1)},
}


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "in a second pickle"])
def test_the_attacks_work_where_nobody_is_careful(name: str, tmp_path: Path) -> None:
    mark, path = tmp_path / "taken over", tmp_path / "old.pt"
    ATTACKS[name](mark, path)
    if zipfile.is_zipfile(path):
        torch.load(path, weights_only=False)
    else:
        pickle.loads(path.read_bytes())
    assert mark.exists()


@pytest.mark.parametrize("name", ATTACKS)
def test_code_is_refused_and_not_run(name: str, tmp_path: Path) -> None:
    """G47: one line that names what the file would call; no file is made, no traceback shown, the root untouched."""
    mark, path, root = tmp_path / "taken over", tmp_path / "old.pt", tmp_path / "root"
    ATTACKS[name](mark, path)
    error = hopline("import-checkpoint", path, "--root", root).error
    assert not mark.exists()
    assert str(path) in error
    if name == "in a second pickle":
        assert "found 2 files data.pkl inside" in error
    elif name == "by a builtin":
        assert "would call '__builtin__.eval'" in error or "would call 'builtins.eval'" in error
    elif name == "by names from the memo":
        assert "would call" in error
    else:
        assert "would call 'posix.system'" in error
    assert not root.exists() or not any(root.iterdir())


def test_an_archive_that_unpacks_to_more_than_it_is(tmp_path: Path) -> None:
    """A few kilobytes that would become a hundred megabytes."""
    path = tmp_path / "old.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("archive/data.pkl", *(f"archive/data/{n}" for n in range(8))):
            archive.writestr(name, bytes(1 << 24))
    assert path.stat().st_size < 500_000
    assert "unpacks to more than its own" in hopline("import-checkpoint", path, "--root", tmp_path / "root").error


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20)])
def test_a_tensor_that_claims_more_than_its_bytes(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Strides of 0 make terabytes of one number, for whoever copies it."""
    document = make_document()
    document["model"]["entities.out.bias"] = torch.zeros(()).expand(shape)
    torch.save(document, tmp_path / "old.pt")
    error = hopline("import-checkpoint", tmp_path / "old.pt", "--root", tmp_path / "root").error
    assert f"model.entities.out.bias claims the shape {list(shape)} over 4 bytes" in error


def test_a_storage_that_would_have_to_grow(tmp_path: Path) -> None:
    """A shape beyond its storage makes a careless reader ask for the memory."""
    storage = torch.storage.TypedStorage(
        wrap_storage=torch.zeros(3).untyped_storage(), dtype=torch.float32, _internal=True
    )
    grown = Code(torch._utils._rebuild_tensor_v2, storage, 0, (1 << 40,), (1,), False, {})
    torch.save(make_document() | {"rng_state": grown}, tmp_path / "old.pt")
    error = hopline("import-checkpoint", tmp_path / "old.pt", "--root", tmp_path / "root").error
    assert "storage that is not resizable" in error


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_a_truncated_file(share: float, tmp_path: Path) -> None:
    torch.save(make_document(), tmp_path / "whole.pt")
    whole = (tmp_path / "whole.pt").read_bytes()
    path = tmp_path / "old.pt"
    path.write_bytes(whole[: int(len(whole) * share)])
    error = hopline("import-checkpoint", path, "--root", tmp_path / "root").error
    assert "is truncated or damaged" in error or "found no archive of torch.save" in error


def test_rubbish_in_the_place_of_a_pickle(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    for pickled in (b"", b"\x80\x02", b"hello", bytes(range(256)), b"\x80\x02}q\x00."):
        _archive(path, {"archive/data.pkl": pickled, "archive/version": b"3\n", "archive/byteorder": b"little"})
        assert str(path) in hopline("import-checkpoint", path, "--root", tmp_path / "root").error


def test_a_name_that_is_no_file(tmp_path: Path) -> None:
    assert "no such file" in hopline("import-checkpoint", tmp_path / "none.pt", "--root", tmp_path).error
    assert "cannot be read" in hopline("import-checkpoint", tmp_path, "--root", tmp_path / "root").error
