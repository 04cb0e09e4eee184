"""The leakage gate: what may not be found across splits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hopline.datasets.splits import SPLITS
from hopline.graph import ExampleColumns

__all__ = ["repeated_units", "structure_keys"]

_ROUNDS = 3


def structure_keys(columns: ExampleColumns) -> NDArray[np.uint64]:
    """A 64-bit key of each row's problem up to the names of its nodes; array work only.

    Rows that differ only in the order of nodes and edges get the same key: node colours are refined from the anchors
    (Weisfeiler and Leman), summed, and joined with the query.
    """
    values, offsets = columns.values, columns.offsets
    rows = columns.num_rows

    def owners(group: str) -> NDArray[np.int64]:
        return np.repeat(np.arange(rows), np.diff(offsets[group]))

    starts = offsets["node"][:-1]
    source = values["edge_source"] + starts[owners("edge")]
    target = values["edge_target"] + starts[owners("edge")]
    relation = values["edge_relation"].astype(np.uint64)
    colour = np.zeros(int(offsets["node"][-1]), dtype=np.uint64)
    slots = np.arange(offsets["anchor"][-1]) - np.repeat(offsets["anchor"][:-1], np.diff(offsets["anchor"]))
    np.add.at(colour, values["anchor"] + starts[owners("anchor")], _mix(slots.astype(np.uint64) + _salt(1)))
    for _ in range(_ROUNDS):
        heard = np.zeros_like(colour)
        np.add.at(heard, target, _mix(colour[source] ^ _mix(relation + _salt(2))))
        np.add.at(heard, source, _mix(colour[target] ^ _mix(relation + _salt(3))))
        colour = _mix(colour * _salt(4) + heard)
    key = np.zeros(rows, dtype=np.uint64)
    np.add.at(key, owners("node"), _mix(colour + _salt(5)))
    tokens = owners("token")
    place = np.arange(len(tokens)) - np.repeat(offsets["token"][:-1], np.diff(offsets["token"]))
    token = values["token_relation"].astype(np.uint64) * _salt(6) + values["token_branch"].astype(np.uint64)
    np.add.at(key, tokens, _mix(token + _mix(place.astype(np.uint64))))
    return _mix(key + values["kind"].astype(np.uint64))


def repeated_units(keys: Mapping[str, NDArray[np.uint64]]) -> dict[str, NDArray[np.int64]]:
    """The units of each split whose key is a unit's of an earlier split."""
    earlier = np.zeros(0, dtype=np.uint64)
    found: dict[str, NDArray[np.int64]] = {}
    for name in SPLITS:
        # Sorted arrays are several times as fast as np.isin and np.union1d, which hash.
        places = np.searchsorted(earlier, keys[name])
        inside = np.flatnonzero(places < len(earlier))
        repeated = inside[earlier[places[inside]] == keys[name][inside]]
        if len(repeated):
            found[name] = repeated
        earlier = np.sort(np.concatenate([earlier, keys[name]]))
    return found


def _salt(number: int) -> np.uint64:
    return np.uint64((0x9E3779B97F4A7C15 * (2 * number + 1)) % 2**64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64; arithmetic wraps around."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
