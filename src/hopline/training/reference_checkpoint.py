"""Checkpoints of the system before, as typed values: a dictionary of model, optimizer, step and config in one file.

Its optimizer state is by position, in one of four layouts: with the query encoder in groups of its own or not, and with the
encoder optimised or frozen. Here it is brought to the names of parameters, so that any other layout can take it over.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from hopline.errors import DataError
from hopline.training.optimizer import is_decayed
from hopline.training.torch_file import load_torch_file

__all__ = ["Moments", "ReferenceCheckpoint", "named_moments", "read_reference_checkpoint"]

_WRAPPERS: Final = ("module.", "_orig_mod.", "model.")
"""What wrappers of a model put before the names of its parameters."""
_ENCODER: Final = "query_encoder."
_KNOWN: Final = frozenset({"model", "optimizer", "scheduler", "scaler", "step", "total_steps", "config", "rng_state"})
_MOST_STEPS: Final = 1 << 53

Group = Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Adam's state of one parameter, float32 in the parameter's shape, after ``step`` updates."""

    step: float
    exp_avg: Tensor
    exp_avg_sq: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceCheckpoint:
    """What such a file says.

    Attributes:
        path: the file.
        weights: by name, without the prefixes of wrappers.
        optimizer: the state of its optimizer, by position and not looked at yet; see :func:`named_moments`.
        step: finished optimizer steps.
        total_steps: horizon of its schedule; None = not told.
        scaler: state of the loss scaler; empty if there was none.
        config: its config as it was saved.
        unknown: keys of the file that such a file does not have.
    """

    path: Path
    weights: Mapping[str, Tensor]
    optimizer: Any
    step: int
    total_steps: int | None
    scaler: Mapping[str, float]
    config: Mapping[str, Any]
    unknown: tuple[str, ...]


def read_reference_checkpoint(path: Path) -> ReferenceCheckpoint:
    """Read a checkpoint; nothing in it is run.

    The scheduler and the random generators need no place here: a learning rate and a draw are functions of the step.

    Raises:
        NotFoundError: there is no such file.
        DataError: it is no such checkpoint, is truncated, or would run code.
    """
    document = load_torch_file(path)
    if not isinstance(document, dict) or not {"model", "step"} <= document.keys():
        found = sorted(map(str, document)) if isinstance(document, dict) else type(document).__name__
        raise DataError(f"{path}: found {found}, expected a dictionary with the keys {', '.join(sorted(_KNOWN))}")
    config = document.get("config") or {}
    if not isinstance(config, dict):
        raise DataError(f"{path}: config: found {type(config).__name__}, expected a dictionary")
    return ReferenceCheckpoint(
        path=path,
        weights=_weights(document["model"], path),
        optimizer=document.get("optimizer"),
        step=_count(document["step"], "step", path),
        total_steps=None
        if document.get("total_steps") is None
        else _count(document["total_steps"], "total_steps", path),
        scaler=_scaler(document.get("scaler")),
        config=config,
        unknown=tuple(sorted(str(key) for key in document if key not in _KNOWN)),
    )


def named_moments(checkpoint: ReferenceCheckpoint) -> tuple[str | None, dict[str, Moments]]:
    """The state of the optimizer by the names of parameters.

    Returns:
        The layout in words, None if the file holds no optimizer; and the moments of each parameter that was ever updated.

    Raises:
        DataError: the sizes of its groups are those of none of the four layouts, or the state is not of these parameters.
    """
    found, parameters, path = checkpoint.optimizer, checkpoint.weights, checkpoint.path
    if found is None:
        return None, {}
    try:
        sizes = [[_index(place) for place in group["params"]] for group in found["param_groups"]]
        entries = {_index(place): entry for place, entry in found["state"].items()}
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DataError(
            f"{path}: optimizer: no state of an optimizer of torch ({type(error).__name__} {error})"
        ) from None
    if len(set(itertools.chain(*sizes))) != sum(map(len, sizes)):
        raise DataError(f"{path}: optimizer: a parameter is in two groups; save the file again without its optimizer")
    matches: dict[str, dict[str, Moments]] = {}
    misfit = ""
    for name, groups in _layouts(parameters):
        if [len(group) for group in groups] != [len(places) for places in sizes]:
            continue
        named = dict(zip(itertools.chain(*sizes), itertools.chain(*groups), strict=True))
        try:
            matches[name] = {
                named[place]: _moments(entry, named[place], parameters) for place, entry in entries.items()
            }
        except (KeyError, TypeError, ValueError) as error:
            misfit = f"; {error}"
        if not entries:
            break
    if len(matches) != 1:
        expected = "; ".join(f"{name}: {[len(group) for group in groups]}" for name, groups in _layouts(parameters))
        known = "several layouts" if matches else "none of the known layouts"
        raise DataError(
            f"{path}: optimizer: found groups of {[len(places) for places in sizes]} parameters, which fit {known} "
            f"({expected}){misfit}; the weights can be taken over alone: save the file again without its optimizer"
        )
    return matches.popitem()


def _weights(found: Any, path: Path) -> dict[str, Tensor]:
    if not isinstance(found, dict) or not found or not all(isinstance(name, str) for name in found):
        raise DataError(f"{path}: model: found {type(found).__name__}, expected tensors by name")
    weights: dict[str, Tensor] = {}
    for name, tensor in found.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            what = str(tensor.dtype) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise DataError(f"{path}: model.{name}: found {what}, expected a tensor of floating-point numbers")
        if not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{path}: model.{name}: holds numbers that are not finite; take an earlier checkpoint")
        weights[_unwrapped(name)] = tensor.detach()
    if len(weights) != len(found):
        raise DataError(f"{path}: model: two names are the same without {' or '.join(_WRAPPERS)}; keep one model")
    return weights


def _unwrapped(name: str) -> str:
    while (prefix := next((p for p in _WRAPPERS if name.startswith(p)), None)) is not None:
        name = name.removeprefix(prefix)
    return name


def _count(value: Any, key: str, path: Path) -> int:
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _MOST_STEPS:
        raise DataError(f"{path}: {key}: found {str(value)[:60]}, expected a count of steps")
    return number


def _scaler(found: Any) -> dict[str, float]:
    if not isinstance(found, dict):
        return {}
    return {
        str(name): value
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _layouts(parameters: Mapping[str, Tensor]) -> Iterator[tuple[str, list[Group]]]:
    """Names and groups of the layouts; groups without parameters are left out, and equal layouts given once.

    Which of the two parts came first where they are split is not known, so both orders are tried.
    """
    encoder = [name for name in parameters if name.startswith(_ENCODER)]
    others = [name for name in parameters if not name.startswith(_ENCODER)]
    layouts = {
        "query encoder with the rest": [list(parameters)],
        "query encoder split off, first": [encoder, others],
        "query encoder split off, last": [others, encoder],
        "query encoder frozen": [others],
    }
    seen: list[list[Group]] = []
    for name, parts in layouts.items():
        groups: list[Group] = []
        for part in parts:
            split: dict[bool, list[str]] = {True: [], False: []}
            for parameter in part:
                split[is_decayed(parameter, parameters[parameter].ndim)].append(parameter)
            groups += [group for group in split.values() if group]
        if groups not in seen:
            seen.append(groups)
            yield name, groups


def _moments(entry: Any, name: str, parameters: Mapping[str, Tensor]) -> Moments:
    """Raises KeyError, TypeError, ValueError if they are not those of the parameter."""
    shape = parameters[name].shape
    tensors = [entry["exp_avg"], entry["exp_avg_sq"]]
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            raise TypeError(f"the moments of {name} are no floating-point numbers")
        if tensor.shape != shape:
            raise ValueError(f"{name} has the shape {list(shape)}, and its moments {list(tensor.shape)}")
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"the moments of {name} are not finite")
    step = float(entry["step"])
    if not 0 <= step < _MOST_STEPS:
        raise ValueError(f"{name} was updated {step} times")
    return Moments(step, tensors[0].float(), tensors[1].float())


def _index(place: Any) -> int:
    if isinstance(place, bool) or not isinstance(place, int):
        raise TypeError(f"a parameter is called {place!r}")
    return place
