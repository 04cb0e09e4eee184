"""Wishes for many examples follow the shares of the config."""

from __future__ import annotations

import numpy as np
import pytest

from hopline.config import DatasetConfig, KindShares
from hopline.datasets.synthetic.wishlist import (
    CONTRADICTED,
    KIND_AFTER,
    LINK,
    MISSING,
    MULTI_HOP,
    PLAIN_AFTER,
    RELATION,
    SUPPORTED,
    WishDrawer,
    Wishes,
)  # fmt: skip
from hopline.graph import KINDS, QueryKind


def wishes(config: DatasetConfig, split: str = "train", count: int = 6000) -> Wishes:
    return WishDrawer(config).wishes(split, np.arange(count), np.zeros(count, dtype=np.int64))


def test_kinds_and_statuses_follow_the_shares() -> None:
    made = wishes(DatasetConfig(kinds=KindShares(count=0), missing_share=0.3, contradicted_share=0.2))
    kinds, statuses = np.bincount(made.kind, minlength=6) / 6000, np.bincount(made.status, minlength=3) / 6000
    assert kinds[KINDS.index(QueryKind.COUNT)] == 0
    assert kinds[[MULTI_HOP, LINK]] == pytest.approx([0.5, 0.125], abs=0.003)
    assert statuses[[SUPPORTED, MISSING, CONTRADICTED]] == pytest.approx([0.5, 0.3, 0.2], abs=0.003)
    everything = wishes(DatasetConfig(missing_share=0.9, contradicted_share=0.9))
    assert set(everything.status.tolist()) == {MISSING, CONTRADICTED}


@pytest.mark.parametrize("seed", range(6))
def test_a_small_split_holds_every_combination_in_its_share(seed: int) -> None:
    """Drawn at random, 33 relation queries of 300 would have 17 of one hop give or take 4; here give or take 3 at most."""
    config = DatasetConfig(seed=seed, max_hops=2)
    made = wishes(config, "test", 300)
    assert np.bincount(made.kind, minlength=6) == pytest.approx(np.array([1, 4, 1, 1, 1, 1]) * 300 / 9, abs=2.5)
    for kind in range(6):
        hops = made.hops[made.kind == kind]
        if kind != MULTI_HOP:
            assert np.sum(hops == 1) == pytest.approx(300 / 9 / 2, abs=3.5)
        assert np.sum(made.status[made.kind == kind] == MISSING) == pytest.approx(0.15 * len(hops), abs=3.5)
    assert np.sum((made.hops == 1) & (made.second_hops == 2)) > 0


def test_splits_versions_and_seeds_differ() -> None:
    def kinds(seed: int, split: str, version: int) -> list[int]:
        drawer, count = WishDrawer(DatasetConfig(seed=seed)), 200
        return drawer.wishes(split, np.arange(count), np.full(count, version)).kind.tolist()

    made = [kinds(0, "train", 0), kinds(0, "valid", 0), kinds(0, "train", 1), kinds(1, "train", 0)]
    assert len({tuple(kinds) for kinds in made}) == 4
    some = WishDrawer(DatasetConfig()).wishes("train", np.array([150, 7]), np.zeros(2, dtype=np.int64))
    assert some.kind.tolist() == [made[0][150], made[0][7]]


def test_hops_are_those_of_the_config_and_longer_in_test() -> None:
    config = DatasetConfig(min_hops=2, max_hops=3, test_max_hops=6)
    assert set(wishes(config).hops.tolist()) == set(wishes(config).second_hops.tolist()) == {2, 3}
    assert set(wishes(config, "test").hops.tolist()) == {2, 3, 4, 5, 6}


def test_an_entity_query_of_one_hop_is_left_to_link() -> None:
    for most, expected in ((3, {2, 3}), (1, {1})):
        made = wishes(DatasetConfig(max_hops=most))
        assert set(made.hops[made.kind == MULTI_HOP].tolist()) == expected


def test_a_wish_is_given_up_step_by_step() -> None:
    drawer = WishDrawer(DatasetConfig())
    wish = Wishes(*(np.array([value]) for value in (RELATION, 1, 1, MISSING)))
    assert drawer.relaxed(wish, PLAIN_AFTER - 1) is wish
    plain = drawer.relaxed(wish, PLAIN_AFTER)
    assert (plain.kind[0], plain.hops[0], plain.status[0]) == (RELATION, 1, SUPPORTED)
    assert drawer.relaxed(wish, KIND_AFTER).kind[0] == LINK
    last = drawer.relaxed(wish, 2 * KIND_AFTER)
    assert (last.kind[0], last.hops[0]) == (MULTI_HOP, 2)
