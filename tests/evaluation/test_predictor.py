"""Answers to single queries from a model whose outputs are known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import DataError
from hopline.evaluation import Calibration, Predictor
from hopline.graph import QueryKind

VOCABULARY = Vocabulary(
    relations=("parent", "brother", "owns"),
    entities=("anna", "bob", "carl", "dora", "emil", "fred", "gina"),
    identity=True,
)
NAMES = ("anna", "bob", "carl", "dora")


def knows(**outputs):
    """Outputs that do not come from labels, which a predictor takes off."""

    def change(batch, output):
        return {name: torch.tensor(value).repeat(batch.num_graphs, *[1] * (torch.tensor(value).dim() - 1))
                for name, value in outputs.items()}  # fmt: skip

    return change


def ask(hand, kind, fields=None, *, names=NAMES, vocabulary=VOCABULARY, calibration=None, top=10, **outputs):
    predictor = Predictor(hand.HandModel(knows(**outputs)), vocabulary, calibration=calibration)
    (answer,) = predictor.answer([hand.example(kind, 7, **(fields or {}))], names=[names], top=top)
    return answer


def test_a_set_is_what_lies_above_zero(hand) -> None:
    answer = ask(
        hand, QueryKind.MULTI_HOP, entity_logits=[-3.0, -1.0, 2.0, 1.0], selection_logits=[3.0, 0.5],
        confidence_logit=[1.0], calibration=Calibration(temperature=2.0, bias=0.25),
    )  # fmt: skip
    assert [given.name for given in answer.answers] == ["carl", "dora"]
    assert answer.answers[0].probability == pytest.approx(1 / (1 + math.exp(-2)))
    assert [given.name for given in answer.others] == ["bob", "anna"]
    assert answer.status == "supported"
    assert answer.status_probability == pytest.approx(math.exp(4) / (math.exp(4) + 2))
    assert answer.confidence == pytest.approx(1 / (1 + math.exp(-0.75)))
    assert answer.evidence_words == "anna —parent→ bob —brother→ carl"
    assert [hop.triple for hop in answer.evidence] == [("anna", "parent", "bob"), ("bob", "brother", "carl")]


def test_an_unsupported_query_gets_no_set_and_no_evidence(hand) -> None:
    answer = ask(
        hand, QueryKind.MULTI_HOP, entity_logits=[-3.0, -1.0, 2.0, 1.0], contradiction_logits=[[0.0, 3.0, 0.0]]
    )  # fmt: skip
    assert answer.answers == ()
    assert [given.name for given in answer.others] == ["carl", "dora", "bob"]
    assert answer.status == "missing"
    assert answer.evidence == ()


def test_evidence_prefers_a_path_to_an_accepted_answer(hand) -> None:
    outputs = {"entity_logits": [-3.0, -1.0, 2.0, -1.0], "selection_logits": [1.5, 9.0]}
    assert ask(hand, QueryKind.MULTI_HOP, **outputs).evidence_words == "anna —parent→ bob —brother→ carl"
    outputs["selection_logits"] = [0.5, 9.0]
    assert ask(hand, QueryKind.MULTI_HOP, **outputs).evidence_words == "anna —owns→ dora"
    outputs["selection_logits"] = [0.5, 0.5]
    assert ask(hand, QueryKind.MULTI_HOP, **outputs).evidence == ()


def test_links_rank_all_entities_by_name(hand) -> None:
    scores = [0.0, 1.0, 0.0, 0.0, 3.0, 0.0, 2.0]
    answer = ask(
        hand, QueryKind.LINK, names=None or NAMES, top=2, ranking_logits=[scores], ranking_graph=[0],
        entity_logits=[-5.0] * 4,
    )  # fmt: skip
    assert [given.name for given in answer.answers] == ["emil", "gina"]
    assert answer.answers[0].probability == pytest.approx(math.exp(3) / sum(map(math.exp, scores)))


def test_links_rank_the_nodes_of_an_anonymous_graph(hand) -> None:
    vocabulary = Vocabulary(relations=VOCABULARY.relations)
    answer = ask(
        hand, QueryKind.LINK, vocabulary=vocabulary, entity_logits=[-3.0, 1.0, 2.0, -1.0], selection_logits=[2.0, 3.0]
    )
    assert [given.name for given in answer.answers] == ["carl", "bob", "dora", "anna"]
    assert answer.evidence_words.endswith("carl")


def test_counts_relations_and_booleans(hand) -> None:
    count = ask(hand, QueryKind.AGGREGATE, count_logits=[[0.0, 1.0, 5.0, 2.0]])
    assert (count.count, count.relation, count.boolean) == (2, None, None)
    assert [given.name for given in count.answers] == ["2", "3", "1"]
    relation = ask(hand, QueryKind.RELATION, relation_logits=[[0.0, 4.0, 1.0]])
    assert relation.relation == "brother"
    yes = ask(hand, QueryKind.BOOLEAN, entity_logits=[-1.0, -1.0, 3.0, -1.0])
    assert yes.boolean is True
    assert yes.answers[0].probability == pytest.approx(1 / (1 + math.exp(-3)))
    no = ask(hand, QueryKind.BOOLEAN, entity_logits=[-1.0, -1.0, -3.0, -1.0])
    assert (no.boolean, no.answers[0].name) == (False, "no")
    assert no.answers[0].probability == pytest.approx(1 / (1 + math.exp(-3)))


def test_labels_are_not_looked_at(hand) -> None:
    """What reaches the model is the same whatever the example says of its answer."""
    seen = []

    def spy(batch, output):
        seen.append({name: np.asarray(getattr(batch, name)).tolist() for name in batch.__slots__})
        return {}

    predictor = Predictor(hand.HandModel(spy), VOCABULARY)
    example = hand.example(QueryKind.MULTI_HOP)
    swapped = replace(
        example, **{**hand.MISSING, "competing_paths": (*example.supporting_paths, *example.competing_paths), "hops": 9}
    )
    predictor.answer([example])
    predictor.answer([replace(swapped, pair=example, answer_entities=(3,), known_entities=(1,))])
    assert seen[0] == seen[1]


def test_a_query_without_paths_gets_candidates(hand) -> None:
    bare = {"supporting_paths": (), "competing_paths": ()}
    answer = ask(
        hand, QueryKind.MULTI_HOP, bare, entity_logits=[-1.0, -1.0, 1.0, -1.0], selection_logits=[2.0, 0.0]
    )  # fmt: skip
    assert answer.evidence_words == "anna —parent→ bob —brother→ carl"


def test_batches_keep_the_order_and_names_default_to_the_vocabulary(hand) -> None:
    predictor = Predictor(hand.HandModel(knows(entity_logits=[-1.0, -1.0, 1.0, -1.0])), VOCABULARY)
    graph = hand.graph(entities=[0, 1, 6, 3])
    examples = [hand.example(QueryKind.MULTI_HOP, number, graph=graph) for number in range(5)]
    answers = predictor.answer(examples, batch_size=2)
    assert [answer.example_id for answer in answers] == [0, 1, 2, 3, 4]
    assert {answer.answers[0].name for answer in answers} == {"gina"}
    assert predictor.answer([]) == []


def test_an_answer_is_plain_json(hand) -> None:
    record = ask(
        hand, QueryKind.MULTI_HOP, entity_logits=[-1.0, -1.0, 1.0, -1.0], selection_logits=[2.0, 0.0]
    ).to_dict()
    again = json.loads(json.dumps(record))
    assert again["evidence"] == [["anna", "parent", "bob"], ["bob", "brother", "carl"]]
    assert again["evidence_words"] == "anna —parent→ bob —brother→ carl"
    assert again["answers"][0]["name"] == "carl"
    assert "count" not in again


def test_no_number_is_a_clear_error(hand) -> None:
    with pytest.raises(DataError, match="example 7: the model's output is not a number"):
        ask(hand, QueryKind.MULTI_HOP, entity_logits=[math.nan, -1.0, 1.0, -1.0])
