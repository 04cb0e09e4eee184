"""Synthetic examples: each a small graph of its own in one world, drawn from a counter, many at a time."""

from __future__ import annotations

from typing import Final

import numpy as np

from hopline.config import DatasetConfig
from hopline.datasets.convert import concat_columns, examples_from_columns, take_rows
from hopline.datasets.ragged import Bools, Ints
from hopline.datasets.splits import SPLITS
from hopline.datasets.synthetic.breaking import cut_evidence, plant_facts, with_changes
from hopline.datasets.synthetic.counters import Counters
from hopline.datasets.synthetic.findings import Findings, families, find
from hopline.datasets.synthetic.problems import Problems, make_problems
from hopline.datasets.synthetic.rows import rows_of
from hopline.datasets.synthetic.tables import WorldTables
from hopline.datasets.synthetic.wishlist import CONTRADICTED, MISSING, SUPPORTED, WishDrawer, Wishes
from hopline.datasets.world import World
from hopline.errors import DataError
from hopline.graph import ExampleColumns, ReasoningExample

__all__ = ["SyntheticExamples"]

_ATTEMPTS: Final = 256


class SyntheticExamples:
    """Draws examples of a world."""

    def __init__(self, config: DatasetConfig, world: World) -> None:
        self._config = config
        self._tables = WorldTables(world)
        self._drawer = WishDrawer(config)

    def unit(self, split: str, index: int, version: int) -> ReasoningExample:
        """One example; another ``version`` is another example in its place.

        Raises:
            DataError: the config leaves no room for it.
        """
        return examples_from_columns(self.block(split, np.array([index]), np.array([version])))[0]

    def block(self, split: str, indices: Ints, versions: Ints) -> ExampleColumns:
        """The rows of some examples, in the order given; each is the same in whatever block it is made.

        Args:
            split: chooses the counters, and the longest chain.
            indices, versions: ``[n]``, of the examples.

        Raises:
            DataError: the config leaves no room for one.
        """
        streams = SPLITS.index(split) + (versions << 8)
        wishes = self._drawer.wishes(split, indices, versions)
        left = np.arange(len(indices))
        pieces: list[_Piece] = []
        for attempt in range(1, _ATTEMPTS + 1):
            wanted = self._drawer.relaxed(wishes.take(left), attempt)
            # One family after the other, so that each is solved at once.
            order = np.argsort(families(wanted.kind, wanted.hops), kind="stable")
            left, wanted = left[order], wanted.take(order)
            counters = Counters(self._config.seed, "synthetic", streams[left], indices[left], attempt)
            done = self._attempt(wanted, counters, left, indices[left], pieces)
            left = np.sort(left[~done])
            if not len(left):
                return _in_order(pieces)
        raise DataError(
            f"synthetic: after {_ATTEMPTS} attempts no example fits dataset.max_nodes {self._config.max_nodes}, "
            f"max_hops {self._config.max_hops} and max_answers {self._config.max_answers}; raise max_nodes or lower max_hops"
        )

    def _attempt(self, wishes: Wishes, counters: Counters, units: Ints, ids: Ints, pieces: list[_Piece]) -> Bools:
        """Add the rows of those that succeed to the pieces, and say which they are."""
        config, tables = self._config, self._tables
        problems, failed = make_problems(
            tables, wishes, counters, least=config.min_nodes, most=config.max_nodes, noise=config.noise_edges
        )
        found = find(tables, problems, config.max_paths)
        done = ~failed & self._supported(problems, found)
        changed = np.flatnonzero(done & (wishes.status != SUPPORTED))
        broken = np.zeros(len(done), dtype=np.bool_)
        if len(changed):
            other, other_found, right = self._broken(problems, found, wishes.status[changed], changed, counters)
            done[changed] = right
            broken[changed] = right
            rows = rows_of(other, other_found, wishes.status[changed], ids[changed], np.zeros_like(changed))
            pieces.append((rows, np.where(right, 2 * units[changed], -1)))
        twin = broken & (wishes.status == MISSING)
        rows = rows_of(problems, found, np.full(len(done), SUPPORTED), ids, twin.astype(np.int64))
        pieces.append((rows, np.where(twin | (done & ~broken), 2 * units + twin, -1)))
        return done

    def _supported(self, problems: Problems, found: Findings) -> Bools:
        """Whether each graph answers its query, with not too much, and a candidate shows it."""
        answers = np.bincount(problems.graphs.node_graph[found.answers], minlength=len(problems))
        shown = np.zeros(len(problems), dtype=np.bool_)
        shown[found.walks.graph[found.proves]] = True
        return found.complete & shown & (answers <= self._config.max_answers)

    def _broken(
        self, problems: Problems, found: Findings, status: Ints, changed: Ints, counters: Counters
    ) -> tuple[Problems, Findings, Bools]:
        """The changed problems with evidence cut or contradicted, what they say then, and which came out right."""
        missing, contradicted = changed[status == MISSING], changed[status == CONTRADICTED]
        removed, right_cut = cut_evidence(self._tables, problems, found, missing, counters)
        planted = plant_facts(self._tables, problems, found, contradicted, counters)
        graphs = with_changes(problems.graphs, changed, removed, contradicted, planted)
        other = problems.choose(changed, graphs)
        other_found = find(self._tables, other, self._config.max_paths)
        right = other_found.complete.copy()
        right[status == MISSING] &= right_cut
        right[status == CONTRADICTED] &= planted.shown(
            problems.graphs, graphs, contradicted, np.searchsorted(changed, contradicted), other_found.walks
        )
        return other, other_found, right


_Piece = tuple[ExampleColumns, Ints]
"""Some rows, and where each comes in the end; -1 for one that is left out."""


def _in_order(pieces: list[_Piece]) -> ExampleColumns:
    columns = concat_columns([rows for rows, _ in pieces])
    places = np.concatenate([places for _, places in pieces])
    kept = np.flatnonzero(places >= 0)
    return take_rows(columns.values, columns.offsets, kept[np.argsort(places[kept])])
