"""Files of ``torch.save`` that somebody else wrote, read without running what they may carry.

Three locks, one behind the other: the archive is what ``torch.save`` writes and unpacks to no more than its own size; its
pickle names nothing but tensors and plain containers, found by reading its opcodes and not by running them; and then
``torch.load`` runs it with ``weights_only=True``, which can call nothing else either.
"""

from __future__ import annotations

import itertools
import pickle
import pickletools
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from hopline.errors import DataError, NotFoundError

__all__ = ["load_torch_file"]

_MOST_PICKLE_BYTES: Final = 64 << 20
"""Of the pickle, which holds names and shapes; the numbers lie beside it."""
_MOST_VALUES: Final = 1_000_000
_DEEPEST: Final = 32
_STORAGES: Final = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_HARMLESS: Final = frozenset(
    {
        "collections.OrderedDict",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter",
        "torch.Size",
        *(f"torch.{name}Storage" for name in _STORAGES),
    }
)
_TEXTS: Final = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE")
_NEVER_WRITTEN: Final = ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4")
"""Opcodes that look a function up, and that ``torch.save`` does not use."""


def load_torch_file(path: Path) -> Any:
    """The object of a file of ``torch.save``; its tensors are on the CPU and mapped from the file, not copied.

    Raises:
        NotFoundError: there is no such file.
        DataError: it cannot be read, is no such file, is truncated, would run code, or holds a tensor that is larger than
            its bytes.
    """
    pickled = _read_pickle(path)
    try:
        _refuse_code(pickled, path)
        # Mapped storages have the size that they have in the file: none can be made to grow.
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (
        RuntimeError,
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:
        raise DataError(
            f"{path}: cannot be read as a torch checkpoint: {_one_line(error)}; copy it again, or do not trust it"
        ) from None
    _refuse_absurd(loaded, path)
    return loaded


def _read_pickle(path: Path) -> bytes:
    """The pickle inside the archive. Nothing of it has been run."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                file.seek(0)
                _refuse_other(file.read(_MOST_PICKLE_BYTES), path)
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
                if sum(entry.file_size for entry in entries) > size:
                    raise DataError(
                        f"{path}: unpacks to more than its own {size} bytes; torch.save packs nothing: do not trust it"
                    )
                pickles = [entry for entry in entries if entry.filename.rpartition("/")[2] == "data.pkl"]
                if len(pickles) != 1:
                    raise DataError(
                        f"{path}: found {len(pickles)} files data.pkl inside, expected 1 as torch.save writes it"
                    )
                if pickles[0].file_size > _MOST_PICKLE_BYTES:
                    raise DataError(
                        f"{path}: its pickle has {pickles[0].file_size} bytes, expected at most {_MOST_PICKLE_BYTES}; "
                        "tensors lie beside it in a file of torch.save"
                    )
                return archive.read(pickles[0])
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file; expected a checkpoint of torch.save") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise DataError(f"{path}: is truncated or damaged ({_one_line(error)}); copy it again") from None


def _refuse_other(data: bytes, path: Path) -> NoReturn:
    """A file that is no archive: a bare pickle that carries code is called what it is."""
    with suppress(ValueError):
        _refuse_code(data, path)
    raise DataError(
        f"{path}: found no archive of torch.save, expected one; a file of torch before 1.6 has to be loaded and saved again "
        "there"
    )


def _refuse_code(pickled: bytes, path: Path) -> None:
    """Look for anything that a checkpoint does not need, opcode by opcode.

    Raises:
        DataError: there is something; the message names it.
        ValueError: the opcodes are none.
    """
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(pickled):
        name = None
        if opcode.name in _TEXTS:
            texts = [*texts[-1:], str(argument)]
        elif opcode.name in ("GLOBAL", "INST"):
            name = str(argument).replace(" ", ".")
        elif opcode.name in _NEVER_WRITTEN:  # what they name cannot be known without running the rest
            name = ".".join(texts) if argument is None else f"extension {argument}"
        if name is not None and (name not in _HARMLESS or opcode.name in _NEVER_WRITTEN):
            raise DataError(
                f"{path}: its pickle would call '{name}', and only tensors and plain values are read; nothing was run: do "
                "not trust this file, or save it again with weights and numbers alone"
            )


def _refuse_absurd(loaded: Any, path: Path) -> None:
    """A tensor may claim any size over few bytes, by strides of 0; what reads it would ask for that much memory. A list may
    hold another ten times, and that another: what goes through it would never end.
    """
    waiting = [(loaded, "", 0)]
    for visited in itertools.count():
        if not waiting:
            return
        value, name, depth = waiting.pop()
        if visited > _MOST_VALUES or depth > _DEEPEST:
            raise DataError(
                f"{path}: holds too many values, or too deep ones, for a checkpoint; do not trust this file"
            )
        if isinstance(value, torch.Tensor):
            there = value.untyped_storage().nbytes()
            if value.numel() * value.element_size() > there:
                raise DataError(
                    f"{path}: {name} claims the shape {list(value.shape)} over {there} bytes; do not trust this file, or "
                    "save the tensor again after .contiguous()"
                )
        elif isinstance(value, dict):
            waiting += [(item, f"{name}.{key}" if name else str(key), depth + 1) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(item, f"{name}.{place}", depth + 1) for place, item in enumerate(value)]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
