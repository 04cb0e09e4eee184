"""Sample predictions for the report: some right, some wrong, from every kind of query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np

from hopline.datasets.vocabulary import Vocabulary
from hopline.evaluation import Evaluation, EvaluationTable, Predictor
from hopline.evaluation.words import facts_in_words, node_names, query_in_words
from hopline.graph import KINDS, AnswerMode, ReasoningExample
from hopline.report.data import Sample

__all__ = ["Examples", "collect_samples"]

_FACTS: Final = 40
"""Most facts of a graph that are written out."""


class Examples(Protocol):
    """What is asked of a split: any of its units as a readable example."""

    def example(self, unit: int) -> ReasoningExample: ...


def collect_samples(
    evaluation: Evaluation, split: Examples, predictor: Predictor, vocabulary: Vocabulary, count: int
) -> tuple[Sample, ...]:
    """At most ``count`` samples, half of them wrong if there are so many.

    They are spread evenly over the rows of each kind, and over the kinds; nothing is picked for how it looks.

    Args:
        evaluation: of ``split``; its table says which rows were right.
        predictor: with the evaluated model and calibration.
    """
    rows = _spread(evaluation.table, count)
    examples = [split.example(int(evaluation.table.unit[row])) for row in rows]
    answers = predictor.answer(examples)
    samples = []
    for row, example, answer in zip(rows, examples, answers, strict=True):
        names = node_names(example.graph, vocabulary)
        samples.append(
            Sample(
                kind=example.kind.value,
                question=query_in_words(example.query, vocabulary, names),
                expected=_expected(example, vocabulary, names),
                expected_status=example.status.value,
                answer=answer,
                score=float(evaluation.table.correct[row]),
                facts=facts_in_words(example.graph, vocabulary, names, _FACTS),
                facts_total=example.graph.num_edges,
                nodes=example.graph.num_nodes,
            )
        )
    return tuple(samples)


def _spread(table: EvaluationTable, count: int) -> list[int]:
    """Rows to show, wrong ones first."""
    wrong = _round_robin(table, (table.correct < 1.0) & ~table.is_twin)
    right = _round_robin(table, (table.correct >= 1.0) & ~table.is_twin)
    rights = list(_first(right, count - count // 2))
    wrongs = list(_first(wrong, count - len(rights)))
    rights += _first(right, count - len(rights) - len(wrongs))
    return wrongs + rights


def _round_robin(table: EvaluationTable, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[int]:
    """The rows of a mask, kinds in turn; within a kind first the middle row, then the middles of the halves, and so on."""
    turns = []
    for kind in range(len(KINDS)):
        rows = np.flatnonzero(mask & (table.kind == kind)).tolist()
        if rows:
            turns.append(iter([rows[place] for place in _middles(len(rows))]))
    while turns:
        left = []
        for turn in turns:
            row = next(turn, None)
            if row is not None:
                yield row
                left.append(turn)
        turns = left


def _middles(length: int) -> list[int]:
    order, spans = [], [(0, length)]
    while spans:
        start, end = spans.pop(0)
        if start < end:
            middle = (start + end) // 2
            order.append(middle)
            spans += [(start, middle), (middle + 1, end)]
    return order


def _first(rows: Iterator[int], count: int) -> Iterator[int]:
    for _ in range(max(count, 0)):
        row = next(rows, None)
        if row is None:
            return
        yield row


def _expected(example: ReasoningExample, vocabulary: Vocabulary, names: Sequence[str]) -> str:
    mode = example.query.answer_mode
    if mode is AnswerMode.RELATION:
        return "none" if example.answer_relation is None else vocabulary.relation_name(example.answer_relation)
    if mode is AnswerMode.BOOLEAN:
        return "yes" if example.answers or example.answer_entities else "no"
    answers = [names[node] for node in example.answers]
    if example.answer_entities and vocabulary.identity and vocabulary.entities is not None:
        answers = [vocabulary.entities[entity] for entity in example.answer_entities]
    if mode in (AnswerMode.COUNT, AnswerMode.AGGREGATE):
        return str(len(answers))
    return ", ".join(answers) or "none"
