"""The mapped shards of a split as one: rows anywhere in them are gathered at once, however many shards there are."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hopline.datasets.shards import Shard
from hopline.graph import COLUMNS, GROUPS, ExampleColumns

__all__ = ["MappedShards"]

Ints = NDArray[np.int64]

_ROW_GROUPS: Final[tuple[str, ...]] = tuple(group for group in GROUPS if group != "step")
_GROUP_NUMBER: Final = {group: number for number, group in enumerate(_ROW_GROUPS)}
_PATH: Final = _GROUP_NUMBER["path"]
_WORD: Final = 8
_LINE: Final = 64
"""Bytes of a cache line."""
_LONG: Final = 2048
"""Values that are worth two walks."""


class MappedShards:
    """Gathers rows of many shards.

    numpy takes from one array at a time, and a random batch touches about as many shards as it has rows. But all shards lie
    in one address space: for each dtype one array spans every map of the split, and where a column of a shard begins is an
    index into it. Only that makes the cost of a batch independent of the number of shards. Of the spanning arrays only what
    belongs to a column is ever read: :func:`~hopline.datasets.shards.open_shard` checks that offsets stay inside their
    values, and rows are checked here.

    Args:
        shards: what ``open_shard`` gave.
    """

    def __init__(self, shards: Iterable[Shard]) -> None:
        # One column keeps the whole map of its shard alive.
        self._maps = []
        values: list[list[int]] = []
        offsets: list[list[int]] = []
        rows = []
        end = 0
        for shard in shards:
            self._maps.append(shard.values["example_id"])
            rows.append(shard.num_rows)
            arrays = [*shard.values.values(), *shard.offsets.values()]
            values.append([_address(shard.values[name]) for name in COLUMNS])
            offsets.append([_address(shard.offsets[group]) for group in GROUPS])
            end = max(end, *(_address(array) + array.nbytes for array in arrays))
        self.num_rows: Ints = np.array(rows, dtype=np.int64)
        """Rows of each shard."""
        places = np.array(values, dtype=np.int64).reshape(-1, len(COLUMNS)).T
        starts = np.array(offsets, dtype=np.int64).reshape(-1, len(GROUPS)).T
        used = np.concatenate([places[places > 0], starts[starts > 0]])
        base = int(used.min()) // _WORD * _WORD if len(used) else 0
        words = -(-(end - base) // _WORD)
        spans = {np.dtype(kind): _span(base, words, kind) for kind in ("<i1", "<i4", "<i8")}
        self._ints = spans[np.dtype("<i4")]
        self._columns = [(name, spec.group, spans[np.dtype(spec.dtype)]) for name, spec in COLUMNS.items()]
        sizes = np.array([[np.dtype(spec.dtype).itemsize] for spec in COLUMNS.values()])
        self._places: Ints = (places - base) // sizes  # [columns, shards]
        starts = (starts - base) // np.dtype("<i4").itemsize
        self._offsets: Ints = np.ascontiguousarray(
            starts[[number for number, group in enumerate(GROUPS) if group != "step"]]
        )
        self._step_offsets: Ints = starts[GROUPS.index("step")]

    def column(self, name: str, shard: int) -> Any:
        """A column of the group ``row`` of one shard, mapped."""
        number, span = next((i, span) for i, (column, _, span) in enumerate(self._columns) if column == name)
        start = self._places[number, shard]
        return span[start : start + self.num_rows[shard]]

    def lengths(self, group: str, shard: Ints, first: Ints, last: Ints) -> Ints:
        """How many values of a group the rows from ``first`` up to ``last`` of some shards have; all int64 ``[.]``."""
        at = self._offsets[_GROUP_NUMBER[group]][shard]
        lengths: Ints = (self._ints.take(at + last) - self._ints.take(at + first)).astype(np.int64)
        return lengths

    def take(self, shard: Ints, rows: Ints) -> ExampleColumns:
        """Some rows, in the order given, as new columns.

        Args:
            shard, rows: int64 ``[rows]``: where each row is, and its number there.

        Raises:
            IndexError: there is no such row.
        """
        if len(rows) and (rows.min() < 0 or (rows >= self.num_rows[shard]).any()):
            raise IndexError("a row is outside its shard")
        starts, lengths, ends = self._gathered(self._offsets[:, shard] + rows)  # [groups, rows]
        before = starts - ends[:, :-1]
        paths = np.arange(ends[_PATH, -1]) + np.repeat(self._step_offsets[shard] + before[_PATH], lengths[_PATH])
        step_starts, step_lengths, step_ends = self._gathered(paths)
        offsets: dict[str, Ints] = dict(zip(_ROW_GROUPS, ends, strict=True)) | {"step": step_ends}

        positions = np.arange(max(int(ends[:, -1].max()), int(step_ends[-1])))
        values: dict[str, NDArray[np.signedinteger[Any]]] = {}
        for (name, group, span), place in zip(self._columns, self._places[:, shard], strict=True):
            if group == "row":
                values[name] = span.take(place + rows)
                continue
            if group == "step":
                at = np.repeat(np.repeat(place, lengths[_PATH]) + step_starts - step_ends[:-1], step_lengths)
            else:
                at = np.repeat(place + before[_GROUP_NUMBER[group]], lengths[_GROUP_NUMBER[group]])
            at += positions[: len(at)]
            if len(at) > _LONG:
                # One value of each cache line first: the waits for memory overlap, which those of a plain walk do not.
                span.take(at[:: _LINE // span.itemsize])
            values[name] = span.take(at)
        return ExampleColumns(values, {group: offsets[group] for group in GROUPS})

    def _gathered(self, at: Ints) -> tuple[Ints, Ints, Ints]:
        """Where values begin whose offsets are at ``at``, how many they are, and the offsets of them put together."""
        starts = self._ints.take(at).astype(np.int64)
        lengths = self._ints.take(at + 1) - starts
        ends = np.zeros((*at.shape[:-1], at.shape[-1] + 1), dtype=np.int64)
        np.cumsum(lengths, axis=-1, out=ends[..., 1:])
        return starts, lengths, ends


def _address(array: NDArray[Any]) -> int:
    """Where an array begins; 0 if it is empty, for then it may be anywhere."""
    return int(array.__array_interface__["data"][0]) if array.size else 0


def _span(base: int, words: int, kind: str) -> NDArray[Any]:
    """All addresses from ``base`` on as an array."""
    if not words:
        return np.zeros(0, dtype=kind)
    span: NDArray[Any] = np.ctypeslib.as_array((ctypes.c_int64 * words).from_address(base)).view(kind)
    span.flags.writeable = False
    return span
