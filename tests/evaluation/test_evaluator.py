"""The evaluator on hand-made batches and outputs, where every figure is known."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from hopline.errors import DataError, TerminatedError
from hopline.evaluation import Calibration, EvaluationTable, run_evaluation, summarise
from hopline.graph import QueryKind, Status


def test_a_perfect_model_is_perfect_in_everything(hand, mixed) -> None:
    metrics = run_evaluation(hand.HandModel(), hand.HandSplit(mixed), batch_size=4).metrics
    for name in (
        "link.mrr", "link.hits@1", "multi_hop.set_f1", "multi_hop.exact", "count.accuracy", "aggregate.accuracy",
        "boolean.accuracy", "relation.accuracy", "status.accuracy", "status.balanced_accuracy", "path.f1", "overall.score",
        "multi_hop.missing.set_f1", "multi_hop.hops3.set_f1", "status.contradicted.recall", "relation.hops2.accuracy",
    ):  # fmt: skip
        assert metrics[name] == 1, name
    assert metrics["overall.n"] == 10  # nine units, one of them with a twin
    assert metrics["multi_hop.n"] == 4
    assert metrics["multi_hop.hops3.n"] == 2
    assert metrics["boolean.n"] == 2
    assert metrics["overall.non_finite"] == 0
    assert metrics["confidence.brier"] == pytest.approx((1 / (1 + math.exp(2))) ** 2)


def test_the_batch_size_and_a_second_run_change_nothing(hand, mixed) -> None:
    tables = [run_evaluation(hand.HandModel(), hand.HandSplit(mixed), batch_size=size).table for size in (1, 4, 100, 4)]
    for field in fields(EvaluationTable):
        for other in tables[1:]:
            np.testing.assert_array_equal(
                getattr(other, field.name), getattr(tables[0], field.name), err_msg=field.name
            )


def test_rows_name_the_unit_they_belong_to(hand, mixed) -> None:
    table = run_evaluation(hand.HandModel(), hand.HandSplit(mixed), batch_size=4).table
    assert table.unit.tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 7, 8]
    assert table.is_twin.nonzero()[0].tolist() == [7]
    assert table.example_id.tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 7, 8]


def test_an_unsupported_status_empties_the_answer(hand) -> None:
    def contradicted(batch, output):
        return {"contradiction_logits": torch.tensor([[0.0, 0.0, 1.0]]).repeat(batch.num_graphs, 1)}

    split = hand.HandSplit(
        [
            hand.example(QueryKind.MULTI_HOP),
            hand.example(QueryKind.MULTI_HOP, **hand.MISSING),
            hand.example(QueryKind.BOOLEAN),
        ]
    )
    evaluation = run_evaluation(hand.HandModel(contradicted), split)
    assert evaluation.table.set_f1[:2].tolist() == [0.0, 1.0]
    assert evaluation.table.predicted_boolean.tolist() == [-1, -1, 0]
    assert evaluation.metrics["status.accuracy"] == 0


def test_set_f1_counts_wrong_missed_and_unreachable_answers(hand) -> None:
    def choose_two(batch, output):
        logits = torch.full((batch.num_nodes,), -1.0)
        logits[2::4] = 1.0  # node 2, right
        logits[3::4] = 1.0  # node 3, wrong
        return {"entity_logits": logits}

    outside = hand.example(QueryKind.MULTI_HOP, graph=hand.graph(entities=[0, 1, 2, 3]), answer_entities=(2, 5, 6))
    split = hand.HandSplit(
        [hand.example(QueryKind.MULTI_HOP), hand.example(QueryKind.MULTI_HOP, answers=(1, 2)), outside]
    )
    table = run_evaluation(hand.HandModel(choose_two), split).table
    assert table.set_f1.tolist() == pytest.approx([2 / 3, 1 / 2, 2 / 5])
    assert not table.exact.any()


def test_counts_share_the_last_class(hand) -> None:
    split = hand.HandSplit(
        [hand.example(QueryKind.COUNT, answers=(0, 1, 2, 3)), hand.example(QueryKind.AGGREGATE, answers=())]
    )
    table = run_evaluation(hand.HandModel(), split).table
    assert table.count.tolist() == [3, 0]
    assert table.predicted_count.tolist() == [3, 0]
    assert table.correct.tolist() == [1, 1]


def test_links_rank_all_entities_where_they_have_identities(hand) -> None:
    def scores(batch, output):
        logits = torch.arange(float(hand.V)).flip(0).repeat(len(output.ranking_graph), 1)  # entity 0 is best
        return {"ranking_logits": logits}

    link = hand.example(QueryKind.LINK, graph=hand.graph(entities=[0, 1, 2, 3]), answer_entities=(4,), answers=())
    split = hand.HandSplit(
        [link, replace(link, example_id=1, known_entities=(0, 1)), hand.example(QueryKind.MULTI_HOP, 2)]
    )
    evaluation = run_evaluation(hand.HandModel(scores), split)
    assert evaluation.table.ranked.tolist() == [5, 3]
    assert evaluation.table.ranked_row.tolist() == [0, 1]
    assert evaluation.metrics["link.mrr"] == pytest.approx((1 / 5 + 1 / 3) / 2)
    assert evaluation.metrics["link.hits@3"] == 0.5
    assert evaluation.metrics["link.n"] == 2
    assert np.isnan(evaluation.table.rank[2])


def test_links_rank_all_entities_also_by_a_model_that_scores_nodes_alone(hand) -> None:
    """An answer outside the graph ties with every other entity outside; it is not left out."""

    def no_ranking(batch, output):
        return {"ranking_logits": torch.empty(0, 0), "ranking_graph": torch.empty(0, dtype=torch.int64)}

    inside = hand.example(QueryKind.LINK, graph=hand.graph(entities=[0, 1, 2, 3]), answer_entities=(2,), answers=(2,))
    outside = replace(inside, answer_entities=(5,), answers=())
    evaluation = run_evaluation(hand.HandModel(no_ranking), hand.HandSplit([inside, outside]), num_entities=hand.V)
    assert evaluation.table.ranked.tolist() == [1, 4 + 2]  # after four nodes, in the middle of three


def test_links_rank_the_nodes_of_an_anonymous_graph(hand) -> None:
    def scores(batch, output):
        return {"entity_logits": torch.tensor([3.0, 2.0, 2.0, 1.0]).repeat(batch.num_graphs)}

    split = hand.HandSplit([hand.example(QueryKind.LINK), hand.example(QueryKind.LINK, answers=(0, 3))])
    evaluation = run_evaluation(hand.HandModel(scores), split)
    assert evaluation.table.ranked.tolist() == [2.5, 1, 3]
    assert evaluation.table.rank.tolist() == [2.5, 2]
    assert evaluation.table.correct.tolist() == [0, 1]


@pytest.mark.parametrize(
    "name",
    [
        "entity_logits",
        "contradiction_logits",
        "selection_logits",
        "confidence_logit",
        "relation_logits",
        "count_logits",
    ],
)
def test_a_row_without_numbers_is_wrong(hand, mixed, name: str) -> None:
    """Not even an empty answer to an unanswerable query counts."""

    def broken(batch, output):
        return {name: torch.full_like(getattr(output, name), math.nan)}

    evaluation = run_evaluation(hand.HandModel(broken), hand.HandSplit(mixed), batch_size=4)
    table = evaluation.table
    hurt = (
        table.kind == list(QueryKind).index(QueryKind.RELATION)
        if name == "relation_logits"
        else np.ones(10, dtype=bool)
    )
    assert table.finite.tolist() == (~hurt).tolist()
    assert (table.predicted_status[hurt] == -1).all()
    assert not table.correct[hurt].any()
    assert not table.exact[hurt].any()
    assert np.nan_to_num(table.path_f1[hurt]).max() == 0
    assert evaluation.metrics["overall.non_finite"] == hurt.sum()
    assert evaluation.metrics["overall.score"] < 1


def test_path_f1_is_over_rows_with_candidates(hand) -> None:
    def select_all(batch, output):
        return {"selection_logits": torch.full((batch.num_paths,), 2.0)}

    bare = hand.example(QueryKind.MULTI_HOP, supporting_paths=(), competing_paths=())
    evaluation = run_evaluation(hand.HandModel(select_all), hand.HandSplit([hand.example(QueryKind.MULTI_HOP), bare]))
    assert evaluation.metrics["path.f1"] == pytest.approx(2 / 3)
    assert evaluation.metrics["path.n"] == 1


def test_relation_queries_without_an_answer_are_right_by_status(hand) -> None:
    split = hand.HandSplit([hand.example(QueryKind.RELATION), hand.example(QueryKind.RELATION, 1, **hand.MISSING)])
    evaluation = run_evaluation(hand.HandModel(), split)
    assert evaluation.table.correct.tolist() == [1, 1]
    assert evaluation.metrics["relation.n"] == 1


def test_the_overall_score_is_the_mean_of_main_metrics(hand) -> None:
    def half(batch, output):
        return {"count_logits": torch.tensor([[0.0, 0.0, 1.0, 0.0]]).repeat(batch.num_graphs, 1)}

    split = hand.HandSplit([hand.example(QueryKind.COUNT), hand.example(QueryKind.MULTI_HOP)])
    metrics = run_evaluation(hand.HandModel(half), split).metrics
    assert metrics["overall.score"] == pytest.approx((0 + 1 + 1) / 3)
    assert not any(name.startswith(("link.", "boolean.", "relation.", "aggregate.")) for name in metrics)


def test_calibration_changes_confidence_and_nothing_else(hand, mixed) -> None:
    plain = run_evaluation(hand.HandModel(), hand.HandSplit(mixed))
    fitted = Calibration(temperature=0.5, bias=1.0)
    again = run_evaluation(hand.HandModel(), hand.HandSplit(mixed), calibration=fitted)
    assert again.metrics["confidence.ece"] == pytest.approx(1 / (1 + math.exp(5)))
    assert {k: v for k, v in again.metrics.items() if not k.startswith("confidence.")} == {
        k: v for k, v in plain.metrics.items() if not k.startswith("confidence.")
    }
    assert summarise(plain.table, calibration=fitted).metrics == again.metrics


def test_every_module_gets_its_own_mode_back(hand, mixed) -> None:
    """G40: evaluation mode and no gradients meanwhile."""
    model = hand.HandModel()
    model.train()
    model.inner[0].eval()
    run_evaluation(model, hand.HandSplit(mixed))
    assert model.modes == [False]
    assert model.training
    assert not model.inner[0].training
    assert model.inner[1].training


def test_modes_come_back_after_a_failure(hand, mixed) -> None:
    """G40."""

    def fail(batch, output):
        raise RuntimeError("no memory")

    model = hand.HandModel(fail)
    with pytest.raises(RuntimeError):
        run_evaluation(model, hand.HandSplit(mixed))
    assert model.training


def test_a_limit_is_spread_over_the_split(hand, mixed) -> None:
    split = hand.HandSplit(mixed)
    done: list[tuple[int, int]] = []
    run_evaluation(hand.HandModel(), split, batch_size=2, limit=4, progress=lambda a, b: done.append((a, b)))
    assert split.asked == [[0, 2], [4, 6]]
    assert done == [(2, 4), (4, 4)]


def test_a_stop_leaves_no_half_figures(hand, mixed) -> None:
    answers = iter([False, True])
    with pytest.raises(TerminatedError, match="after 2 of 9"):
        run_evaluation(hand.HandModel(), hand.HandSplit(mixed), batch_size=2, stop=lambda: next(answers))


def test_an_empty_split_is_a_clear_error(hand) -> None:
    with pytest.raises(DataError, match="has no examples"):
        run_evaluation(hand.HandModel(), hand.HandSplit([]))


def test_slices_carry_their_sizes_and_names(hand, mixed) -> None:
    evaluation = run_evaluation(hand.HandModel(), hand.HandSplit(mixed))
    by_name = {part.name: part for part in evaluation.slices}
    assert len(by_name) == len(evaluation.slices)
    assert by_name["multi_hop.hops3.set_f1"].n == 2
    assert all(evaluation.metrics[name] == part.score for name, part in by_name.items())
    hops = [
        part.n for part in evaluation.slices if (part.kind, part.by, part.metric) == ("multi_hop", "hops", "set_f1")
    ]
    assert sum(hops) == by_name["multi_hop.set_f1"].n
    assert by_name["status.missing.recall"].n == 1
    assert Status.MISSING in {part.value for part in evaluation.slices}
