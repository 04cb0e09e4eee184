"""The dataset section: how its keys fit together, and what is said where they do not."""

from __future__ import annotations

import pytest

from hopline.config import DatasetConfig, resolve_config
from hopline.errors import ConfigError


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["triple_split=triple"],
            "triple_split is triple, but source is synthetic and has no triples; set it to given",
        ),
        (["query_split=signature"], "query_split is signature, but source is synthetic; set it to query or length"),
        (["graph=full"], "graph is full, but source is synthetic: every world is new; set it to sampled"),
        (
            ["source=x", "triple_split=entity", "entities=identity"],
            "triple_split is entity, so no entity of test is known from training, but entities is identity; "
            "set entities to anonymous",
        ),
        (
            ["query_split=length"],
            "query_split is length, so test gets chains of more than max_hops, 3, but test_max_hops is null; raise it above "
            "max_hops",
        ),
        (["query_split=length", "test_max_hops=3"], "but test_max_hops is 3; raise it above max_hops"),
        (
            ["valid_share=0.4", "test_share=0.6"],
            "valid_share 0.4 and test_share 0.6 leave nothing for train; lower one: together they must be below 1",
        ),
        (["triple_split=random"], "dataset.triple_split: found 'random', expected 'given', 'triple' or 'entity'"),
        (["graph=whole"], "dataset.graph: found 'whole', expected 'sampled' or 'full'"),
        (["header=yes"], "dataset.header: found True, expected 'auto', 'present' or 'absent'"),
        (["split_seed=-1"], "dataset.split_seed: found -1, expected greater than or equal to 0"),
    ],
)
def test_keys_that_do_not_fit_are_one_line(overrides: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_config("name: m\n", source="c.yaml", overrides=[f"dataset.{one}" for one in overrides])
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_hops_of_a_split() -> None:
    config = DatasetConfig(min_hops=2, max_hops=3, test_max_hops=5)
    assert [config.hop_range(name) for name in ("train", "valid", "test")] == [(2, 3), (2, 3), (2, 5)]
    assert config.model_copy(update={"query_split": "length"}).hop_range("test") == (4, 5)
    assert DatasetConfig().hop_range("test") == (1, 3)


def test_the_salt_is_the_seed_unless_it_is_given() -> None:
    assert [DatasetConfig(seed=3).salt, DatasetConfig(seed=3, split_seed=0).salt] == [3, 0]
