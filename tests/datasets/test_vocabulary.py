"""Names of ids."""

from __future__ import annotations

import pytest

from hopline.datasets import Rule, Vocabulary
from hopline.errors import DataError

VOCABULARY = Vocabulary(
    relations=("likes", "knows"), entities=("a", "b"), rules=(Rule(relation=0, chain=(3, 1), confidence=0.5),)
)


def test_names_of_relations_and_of_their_inverses() -> None:
    assert [VOCABULARY.relation_name(r) for r in range(4)] == ["likes", "knows", "likes⁻¹", "knows⁻¹"]
    for outside in (-1, 4):
        with pytest.raises(IndexError, match=r"outside \[0, 4\)"):
            VOCABULARY.relation_name(outside)


def test_entities_count_only_with_identity() -> None:
    assert (VOCABULARY.num_relations, VOCABULARY.num_entities) == (2, 0)
    assert VOCABULARY.model_copy(update={"identity": True}).num_entities == 2


def test_json_and_back() -> None:
    assert Vocabulary.from_json(VOCABULARY.to_json()) == VOCABULARY


@pytest.mark.parametrize("text", ["", "[]", '{"relations": 3}', '{"relations": [], "more": 1}'])
def test_what_is_no_vocabulary_is_a_data_error_that_names_it(text: str) -> None:
    with pytest.raises(DataError, match=r"^models/x: no vocabulary: "):
        Vocabulary.from_json(text, source="models/x")
