"""Graphs, queries and paths in words."""

from __future__ import annotations

from hopline.datasets.vocabulary import Vocabulary
from hopline.evaluation.words import facts_in_words, hops_in_words, node_names, path_hops, query_in_words
from hopline.graph import AnswerMode, Query

VOCABULARY = Vocabulary(
    relations=("parent", "brother", "owns"), entities=("anna", "bob", "carl", "dora"), identity=True
)
NAMES = ("anna", "bob", "carl", "dora")


def test_nodes_have_the_names_of_their_entities(hand) -> None:
    assert node_names(hand.graph(entities=[3, 2, -1, 0]), VOCABULARY) == ("dora", "carl", "node 2", "anna")
    assert node_names(hand.graph(), Vocabulary(relations=("r",))) == ("node 0", "node 1", "node 2", "node 3")


def test_a_path_is_read_in_the_direction_it_is_walked(hand) -> None:
    hops = path_hops((0, 2), hand.graph(), VOCABULARY, NAMES)
    assert hops_in_words(hops) == "anna —parent→ bob —brother→ carl"
    back = path_hops((3, 1, 4), hand.graph(), VOCABULARY, NAMES)
    assert hops_in_words(back) == "carl ←brother— bob ←parent— anna —owns→ dora"
    assert [hop.triple for hop in back] == [
        ("bob", "brother", "carl"),
        ("anna", "parent", "bob"),
        ("anna", "owns", "dora"),
    ]
    assert hops_in_words(()) == ""


def test_facts_are_edges_in_order(hand) -> None:
    facts = facts_in_words(hand.graph(), VOCABULARY, NAMES)
    assert facts == ("anna —parent→ bob", "bob —brother→ carl", "anna —owns→ dora")
    assert facts_in_words(hand.graph(), VOCABULARY, NAMES, limit=1) == facts[:1]


def test_queries_of_every_mode() -> None:
    def words(anchors, chains, mode):
        return query_in_words(Query(anchors, chains, mode), VOCABULARY, NAMES)

    assert words((0,), ((0, 1),), AnswerMode.ENTITIES) == "anna —parent→ · —brother→ ?"
    assert words((0,), ((3, 5),), AnswerMode.ENTITIES) == "anna ←parent— · ←owns— ?"
    assert words((0,), ((0,),), AnswerMode.COUNT) == "how many: anna —parent→ ?"
    assert words((0, 1), ((0,), (1,)), AnswerMode.AGGREGATE) == "how many: anna —parent→ ? and bob —brother→ ?"
    assert words((0, 3), ((0, 2),), AnswerMode.BOOLEAN) == "anna —parent→ · —owns→ dora ?"
    assert words((0, 3), (), AnswerMode.RELATION) == "anna —?→ dora"
