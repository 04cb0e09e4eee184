"""Weights on disk in the field's standard form: one ``model.safetensors``, or numbered files with an index.

The names and the index are those of Hugging Face, so that its tools read them:
``model-00001-of-00003.safetensors`` and ``model.safetensors.index.json`` with ``metadata.total_size`` and ``weight_map``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopline.errors import DataError, NotFoundError
from hopline.lineage.tensorfile import read_header
from hopline.storage import parse_json
from hopline.storage.local import os_errors

if TYPE_CHECKING:
    import torch

__all__ = ["WEIGHTS", "WEIGHTS_INDEX", "read_weights", "weight_files", "write_weight_shards"]

WEIGHTS: Final = "model.safetensors"
WEIGHTS_INDEX: Final = "model.safetensors.index.json"

_SHARD: Final = re.compile(r"model-[0-9]{5}-of-[0-9]{5}\.safetensors")
_METADATA: Final = {"format": "pt"}  # one key alone: with two, the order and so the bytes differ between processes
_ENTRY_BYTES: Final = 200  # more than a header entry needs beside the name, for tensors of up to five dimensions


def write_weight_shards(tensors: Mapping[str, torch.Tensor], folder: Path, max_bytes: int = 1 << 30) -> list[Path]:
    """Write tensors into ``folder`` as one file, or as several of at most ``max_bytes`` bytes, and return the files.

    Tensors go into files in the order of their names; the same tensors give the same bytes. A tensor that is larger than
    ``max_bytes`` alone gets a file of its own. Weights that the folder held before are removed.

    Raises:
        DataError: there is no tensor, or a name that the format keeps for itself.
        StoreError: a file cannot be written.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    if not tensors or "__metadata__" in tensors:
        raise DataError(f"{folder}: expected at least one tensor to write, and none called '__metadata__'")
    groups = _groups(tensors, max_bytes)
    names = [WEIGHTS] if len(groups) == 1 else [shard_name(i, len(groups)) for i in range(len(groups))]
    with os_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if old.name in (WEIGHTS, WEIGHTS_INDEX) or _SHARD.fullmatch(old.name):
                old.unlink()
        for name, group in zip(names, groups, strict=True):
            # A copy of its own for each: the format has no two tensors over the same bytes.
            save_file(
                {key: tensors[key].detach().cpu().clone().contiguous() for key in group}, folder / name, _METADATA
            )
        if len(groups) == 1:
            return [folder / WEIGHTS]
        index = {
            "metadata": {"total_size": sum(map(_bytes, tensors.values()))},
            "weight_map": {key: name for name, group in zip(names, groups, strict=True) for key in group},
        }
        (folder / WEIGHTS_INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return [folder / name for name in names]


def shard_name(index: int, count: int) -> str:
    """The standard's name of file ``index`` (from 0) of ``count``."""
    return f"model-{index + 1:05d}-of-{count:05d}.safetensors"


def weight_files(folder: Path) -> list[Path]:
    """Return a folder's weight files, sorted, checked against its index and their own headers; no torch is needed.

    Raises:
        NotFoundError: there are no weights, or a file that the index names is missing.
        DataError: the index or a header is wrong, or they disagree.
    """
    folder = Path(folder)
    single, index = folder / WEIGHTS, folder / WEIGHTS_INDEX
    if single.exists() and index.exists():
        raise DataError(f"{folder}: holds both {WEIGHTS} and {WEIGHTS_INDEX}; expected one of them")
    if single.exists():
        read_header(single)
        return [single]
    if not index.exists():
        raise NotFoundError(f"{folder}: there are no weights; expected {WEIGHTS} or {WEIGHTS_INDEX}")
    mapping = _read_index(index)
    files = sorted(set(mapping.values()))
    for name in files:
        if not (folder / name).is_file():
            raise NotFoundError(f"{folder / name}: is missing, and {WEIGHTS_INDEX} names it")
        held = {entry.name for entry in read_header(folder / name).entries}
        if held != (wanted := {key for key, file in mapping.items() if file == name}):
            odd = min(held ^ wanted)
            raise DataError(f"{folder / name}: disagrees with {WEIGHTS_INDEX} on tensor {odd!r}; restore both")
    return [folder / name for name in files]


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read a folder's weights onto the CPU. Raises as ``weight_files``; check the files' digests before (``verify``)."""
    from safetensors.torch import load_file

    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        tensors.update(load_file(path))
    return tensors


def _groups(tensors: Mapping[str, torch.Tensor], max_bytes: int) -> list[list[str]]:
    groups: list[list[str]] = []
    room = 0
    for name in sorted(tensors):
        need = _bytes(tensors[name]) + len(json.dumps(name)) + _ENTRY_BYTES
        if not groups or need > room:
            groups.append([])
            room = max_bytes - _ENTRY_BYTES
        groups[-1].append(name)
        room -= need
    return groups


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _read_index(path: Path) -> dict[str, str]:
    with os_errors("read", path):
        data = parse_json(path.read_bytes(), source=str(path))
    mapping = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(mapping, dict) or not mapping:
        raise DataError(f"{path}: has no weight_map; expected tensor names and the files that hold them")
    for key, name in mapping.items():
        if not isinstance(name, str) or not _SHARD.fullmatch(name):
            raise DataError(
                f"{path}: tensor {key!r} is said to be in {name!r}; expected a name like {shard_name(0, 2)}"
            )
    return mapping
