"""Which split a query belongs to, and what a generated example should be."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest

from hopline.config import DatasetConfig, KindShares
from hopline.datasets.draws import Draws, philox_key
from hopline.datasets.splits import SPLITS, NameSplits, QuerySplits, is_calibration, split_rule
from hopline.datasets.wishes import Wish, WishList
from hopline.graph import AnswerMode, QueryKind, Status


def wishes(config: DatasetConfig, split: str = "train", count: int = 3000) -> list[Wish]:
    key = philox_key(0, "wishes")
    made = WishList(config)
    return [made.wish(Draws(key, 0, index), split) for index in range(count)]


def splitter(**keys: Any) -> QuerySplits:
    return QuerySplits(DatasetConfig(source="somewhere", **keys), 4)


def test_seven_tenths_of_all_queries_are_for_training() -> None:
    splits = splitter()
    counts = Counter(splits.split(splits.key(number)) for number in range(20_000))
    assert set(counts) == set(SPLITS)
    assert counts["train"] == pytest.approx(14_000, rel=0.03)
    assert counts["test"] == pytest.approx(2_000, rel=0.1)


def test_a_seed_is_another_division() -> None:
    a, b = splitter(), splitter(seed=1)
    assert [a.split(a.key(n)) for n in range(200)] != [b.split(b.key(n)) for n in range(200)]
    assert a.key(1, 2) == splitter().key(1, 2) != a.key(2, 1)


def holders(splits: QuerySplits, key: int, *chains: tuple[int, ...]) -> list[str]:
    return [name for name in SPLITS if splits.holds(name, key, chains)]


def test_by_query_the_key_alone_decides() -> None:
    splits = splitter()
    for number in range(200):
        key = splits.key(number)
        assert holders(splits, key, (number % 8,) * 3) == [splits.split(key)]


def test_by_signature_a_composition_is_in_one_split_whoever_asks() -> None:
    splits = splitter(query_split="signature")
    found = Counter()
    for chain in product(range(8), repeat=2):
        back = tuple((relation + 4) % 8 for relation in reversed(chain))
        (split,) = holders(splits, 0, chain)
        assert holders(splits, 2**63, back, (1,)) == [split], "read backwards, beside one relation, under another key"
        found[split] += 1
    assert set(found) == set(SPLITS)
    key = splits.key(7)
    assert holders(splits, key, (3,)) == holders(splits, key) == [splits.split(key)], "one relation is no composition"
    chains = {
        split: next(c for c in product(range(8), repeat=3) if holders(splits, 0, c) == [split]) for split in SPLITS
    }
    assert holders(splits, 0, chains["train"], chains["test"]) == [], "two compositions of two splits"
    assert holders(splits, 0, chains["test"], chains["test"]) == ["test"]


def test_by_length_test_has_the_long_chains_and_no_others() -> None:
    splits = splitter(query_split="length", max_hops=3, test_max_hops=10)
    short = Counter(name for number in range(400) for name in holders(splits, splits.key(number), (1, 2, 3)))
    assert set(short) == {"train", "valid", "calibration"}
    assert all(holders(splits, splits.key(number), (1,) * 4) == ["test"] for number in range(100))
    asked = Counter(name for number in range(400) for name in holders(splits, splits.key(number)))
    assert set(asked) == set(SPLITS), "a relation query has no chain"


def test_where_splits_share_no_entity_the_key_only_tells_calibration_from_valid() -> None:
    splits = splitter(triple_split="entity")
    for number in range(100):
        found = holders(splits, splits.key(number), (1, 2))
        assert found in (["train", "valid", "test"], ["train", "calibration", "test"])


def test_names_are_hashed_with_their_bounds() -> None:
    names = NameSplits(DatasetConfig(valid_share=0.2, test_share=0.3), "triple")
    counts = Counter(names.split(f"e{number}", "likes", "b") for number in range(6000))
    assert counts["valid"] == pytest.approx(1200, rel=0.1)
    assert counts["test"] == pytest.approx(1800, rel=0.1)
    assert names.number("ab", "c") != names.number("a", "bc") != names.number("abc")
    assert names.number("ab", "c") != NameSplits(DatasetConfig(), "entity").number("ab", "c")
    assert names.of_triple("x", "likes", "y") == names.of_triple("y", "likes", "x")


def test_calibration_takes_its_share() -> None:
    taken = sum(is_calibration(0, 0.25, number) for number in range(8000))
    assert taken == pytest.approx(2000, rel=0.08)
    assert not any(is_calibration(0, 0.0, number) for number in range(100))
    assert all(is_calibration(0, 1.0, number) for number in range(100))


def test_wishes_follow_the_shares() -> None:
    config = DatasetConfig(kinds=KindShares(count=0), missing_share=0.3, contradicted_share=0.2)
    made = wishes(config)
    kinds = Counter(wish.kind for wish in made)
    assert QueryKind.COUNT not in kinds
    assert kinds[QueryKind.MULTI_HOP] == pytest.approx(1714, rel=0.1)
    assert kinds[QueryKind.RELATION] == pytest.approx(429, rel=0.2)
    statuses = Counter(wish.status for wish in made)
    assert statuses[Status.MISSING] == pytest.approx(900, rel=0.12)
    assert statuses[Status.CONTRADICTED] == pytest.approx(600, rel=0.12)
    assert QueryKind.LINK not in {wish.kind for wish in made}


def test_hops_are_those_of_the_config_and_longer_in_test() -> None:
    config = DatasetConfig(min_hops=2, max_hops=3, test_max_hops=6)
    assert {wish.hops for wish in wishes(config)} == {2, 3}
    assert {wish.hops for wish in wishes(config, "test")} == {2, 3, 4, 5, 6}


def test_by_length_test_begins_where_training_ends() -> None:
    config = DatasetConfig(min_hops=2, max_hops=3, test_max_hops=6, query_split="length")
    assert {wish.hops for wish in wishes(config)} == {2, 3}
    assert {wish.hops for wish in wishes(config, "test")} == {4, 5, 6}


def test_an_entity_query_of_one_hop_is_left_to_link() -> None:
    multi_hop = [wish for wish in wishes(DatasetConfig()) if wish.kind is QueryKind.MULTI_HOP]
    assert {wish.hops for wish in multi_hop} == {2, 3}
    assert {wish.hops for wish in wishes(DatasetConfig(max_hops=1)) if wish.kind is QueryKind.MULTI_HOP} == {1}


def test_a_wish_is_given_up_step_by_step() -> None:
    made = WishList(DatasetConfig())
    wish = Wish(QueryKind.RELATION, 2, 1, Status.MISSING)
    assert wish.relaxed(10, made) is wish
    assert wish.relaxed(100, made) == Wish(QueryKind.RELATION, 2, 1, Status.SUPPORTED)
    assert wish.relaxed(200, made).kind is QueryKind.MULTI_HOP
    assert wish.relaxed(200, made).mode is AnswerMode.ENTITIES
    assert wish.relaxed(400, made).kind is QueryKind.COUNT


@pytest.mark.parametrize(
    ("keys", "from_examples", "said"),
    [
        ({}, False, "examples are drawn for each split by a counter"),
        ({"query_split": "length", "test_max_hops": 9}, False, "test has longer chains than the others"),
        (
            {"source": "x"},
            False,
            "triples keep the split of their file; a generated query is divided by a salted hash of",
        ),
        (
            {"source": "x", "triple_split": "entity", "query_split": "signature"},
            False,
            "both of its entities; a generated ",
        ),
        ({"source": "x", "triple_split": "triple"}, False, "a triple and its reverse together"),
        (
            {"source": "x", "query_split": "signature"},
            True,
            "any other is divided by a salted hash of its chain of relations",
        ),
    ],
)
def test_the_rule_in_words(keys: dict[str, Any], from_examples: bool, said: str) -> None:
    assert said in split_rule(DatasetConfig(**keys), from_examples=from_examples)
