"""Rules looked up in both directions, and composed."""

from __future__ import annotations

from hopline.datasets import Rule, RuleBook, Vocabulary
from hopline.datasets.rulebook import invert_chain

R = 4


def test_a_chain_inverted_leads_back() -> None:
    assert invert_chain((0, 5), R) == (1, 4)
    assert invert_chain(invert_chain((0, 5, 3), R), R) == (0, 5, 3)


def test_rules_hold_in_both_reading_directions() -> None:
    book = RuleBook([Rule(relation=2, chain=(0, 1), confidence=0.5)], R)
    assert book.chains_for(2) == (((0, 1), 0.5),)
    assert book.chains_for(6) == (((5, 4), 0.5),)
    assert book.chains_for(3) == ()
    assert book.leads_to(6, (5, 4))
    assert not book.leads_to(2, (1, 0))
    assert book.conclusions((0, 1)) == {2: 0.5}
    assert book.conclusions((1, 0)) == {}
    assert book.longest == 2


def test_rules_given_for_the_inverse_are_kept_as_they_are() -> None:
    book = RuleBook([Rule(relation=2, chain=(0,), confidence=0.5), Rule(relation=6, chain=(1,), confidence=0.25)], R)
    assert book.chains_for(6) == (((1,), 0.25),)


def test_the_best_rule_comes_first() -> None:
    rules = [Rule(relation=0, chain=(c,), confidence=p) for c, p in ((1, 0.2), (2, 0.9), (3, 0.9))]
    assert [chain for chain, _ in RuleBook(rules, R).chains_for(0)] == [(2,), (3,), (1,)]


def test_composing_rules_reduce_chains_of_any_length() -> None:
    """r0 = r1 r2, r1 = r2 r2, and r3 is the inverse of r1."""
    rules = [
        Rule(relation=0, chain=(1, 2), confidence=1.0),
        Rule(relation=1, chain=(2, 2), confidence=1.0),
        Rule(relation=1, chain=(3 + R,), confidence=1.0),
    ]
    book = RuleBook(rules, R, composes=True)
    assert book.conclusions((2, 2, 2)) == {0: 1.0}
    assert book.conclusions((7, 2)) == {0: 1.0}
    assert set(book.conclusions((6, 6, 6))) == {4}
    assert book.conclusions((2, 0)) == {}
    assert RuleBook(rules, R).conclusions((2, 2, 2)) == {}


def test_the_rules_of_a_vocabulary_compose_if_it_says_so() -> None:
    rules = (Rule(relation=0, chain=(1, 2), confidence=1.0),)
    vocabulary = Vocabulary(relations=("a", "b", "c", "d"), rules=rules, rules_compose=True)
    assert RuleBook.of(vocabulary).composes
    assert RuleBook.of(vocabulary).num_relations == 4
