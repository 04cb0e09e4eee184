"""Answers to single queries, as people and programs want them: names, probabilities, status, confidence, evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from hopline.datasets.convert import columns_from_examples
from hopline.datasets.paths import candidate_paths
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import DataError
from hopline.evaluation.calibration import Calibration
from hopline.evaluation.evaluator import Reasoner, evaluation_mode
from hopline.evaluation.metrics import sigmoid
from hopline.evaluation.outcomes import ModelOutput
from hopline.evaluation.words import Hop, hops_in_words, node_names, path_hops
from hopline.graph import STATUSES, AnswerMode, GraphBatch, QueryKind, ReasoningExample, Status, collate

__all__ = ["Answer", "Predictor", "RankedAnswer"]

Floats = NDArray[np.float64]

_READ: Final = (
    "entity_logits", "ranking_logits", "ranking_graph", "contradiction_logits", "count_logits", "confidence_logit",
    "selection_logits", "selection_threshold", "relation_logits", "relation_graph",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankedAnswer:
    """One possible answer and its probability."""

    name: str
    probability: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says to one query.

    Attributes:
        example_id: of the query.
        answer_mode: what form the answer has.
        answers: the answer, likeliest first. Entities: the set, empty if nothing answers or the status is not
            ``supported``; for one-hop (link) queries the top of the ranking of all candidates. Count, aggregate and
            relation: the likeliest values. Boolean: ``yes`` or ``no``.
        others: the best of what did not become part of a set.
        count, relation, boolean: the answer itself where the mode wants one, else None.
        status: ``supported``, ``missing`` or ``contradicted``.
        status_probability: of that status.
        confidence: calibrated probability that the answer is right; for sets the expected F1.
        evidence: the best path that the model selected, empty where the query is not supported or no path was selected.
    """

    example_id: int
    answer_mode: str
    answers: tuple[RankedAnswer, ...]
    others: tuple[RankedAnswer, ...]
    count: int | None
    relation: str | None
    boolean: bool | None
    status: str
    status_probability: float
    confidence: float
    evidence: tuple[Hop, ...]

    @property
    def evidence_words(self) -> str:
        """The evidence as one line, such as ``anna —parent→ bob —brother→ carl``."""
        return hops_in_words(self.evidence)

    def to_dict(self) -> dict[str, Any]:
        """The answer ready for JSON; evidence as triples and in words."""
        record = {name: value for name, value in asdict(self).items() if value is not None}
        record["evidence"] = [list(hop.triple) for hop in self.evidence]
        record["evidence_words"] = self.evidence_words
        return record


class Predictor:
    """Answers queries with a trained model.

    Args:
        model: on ``device``.
        vocabulary: names and rules, as stored beside the model.
        calibration: what confidence logits go through, as stored with the model; None = nothing.
        max_paths: candidate paths that are listed for a query that brings none.
    """

    def __init__(
        self,
        model: Reasoner,
        vocabulary: Vocabulary,
        *,
        calibration: Calibration | None = None,
        max_paths: int = 16,
        device: torch.device | str = "cpu",
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._calibration = calibration or Calibration()
        self._max_paths = max_paths
        self._device = device
        self._rules = RuleBook.of(vocabulary)

    def answer(
        self,
        examples: Sequence[ReasoningExample],
        *,
        names: Sequence[Sequence[str]] | None = None,
        top: int = 10,
        batch_size: int = 64,
    ) -> list[Answer]:
        """One answer for each example, in order; whatever the examples say of answers, status or pair is not looked at.

        Args:
            names: for each example a name for each node; None = entity names from the vocabulary, else ``node <i>``.
            top: most entries of a ranking.
            batch_size: queries in one forward pass.

        Raises:
            DataError: the model gave something that is not a number.
        """
        answers: list[Answer] = []
        with evaluation_mode(self._model), torch.no_grad():
            for start in range(0, len(examples), batch_size):
                asked = [self._asked(example) for example in examples[start : start + batch_size]]
                given = None if names is None else names[start : start + batch_size]
                answers += self._answer_batch(asked, given, top)
        return answers

    def _asked(self, example: ReasoningExample) -> ReasoningExample:
        """The example with everything that is a label taken off, and its candidate paths in place."""
        paths = (*example.supporting_paths, *example.competing_paths)
        if not paths:
            paths = tuple(
                candidate_paths(
                    example.graph,
                    example.query,
                    rules=self._rules,
                    num_relations=self._vocabulary.num_relations,
                    max_paths=self._max_paths,
                )
            )
        return replace(
            example, status=Status.SUPPORTED, answers=(), answer_entities=(), known_entities=(), answer_relation=None,
            supporting_paths=(), competing_paths=paths, pair=None, hops=0,
        )  # fmt: skip

    def _answer_batch(
        self, examples: Sequence[ReasoningExample], names: Sequence[Sequence[str]] | None, top: int
    ) -> Iterator[Answer]:
        batch = collate(columns_from_examples(examples), num_relations=self._vocabulary.num_relations)
        output = _Rows(batch, self._model.forward_batch(batch.to(self._device)))
        for row, example in enumerate(examples):
            words = node_names(example.graph, self._vocabulary) if names is None else names[row]
            yield self._answer(example, output.row(row), words, top)

    def _answer(self, example: ReasoningExample, row: _Row, names: Sequence[str], top: int) -> Answer:
        if not row.finite:
            raise DataError(
                f"example {example.example_id}: the model's output is not a number; the weights or the graph are unusable"
            )
        chances = _softmax(row.status)
        status = STATUSES[int(chances.argmax())]
        ranked, others, accepted = self._decide(example, row, names, status, top)
        mode, best = example.query.answer_mode, ranked[0].name if ranked else None
        return Answer(
            example_id=example.example_id,
            answer_mode=mode.value,
            answers=ranked,
            others=others,
            count=int(best) if mode in (AnswerMode.COUNT, AnswerMode.AGGREGATE) and best is not None else None,
            relation=best if mode is AnswerMode.RELATION else None,
            boolean=best == "yes" if mode is AnswerMode.BOOLEAN else None,
            status=status.value,
            status_probability=float(chances.max()),
            confidence=float(self._calibration.probabilities(row.confidence)),
            evidence=self._evidence(example, row, names, accepted) if status is Status.SUPPORTED else (),
        )

    def _decide(
        self, example: ReasoningExample, row: _Row, names: Sequence[str], status: Status, top: int
    ) -> tuple[tuple[RankedAnswer, ...], tuple[RankedAnswer, ...], set[int]]:
        """The answer, the best of the rest, and the nodes where evidence for the answer ends."""
        mode = example.query.answer_mode
        if mode is AnswerMode.RELATION:
            relations = self._vocabulary.relations
            return _rank(_softmax(row.relation), relations, top), (), set(example.query.anchors[1:])
        if mode in (AnswerMode.COUNT, AnswerMode.AGGREGATE):
            counts = [str(count) for count in range(len(row.count))]
            return _rank(_softmax(row.count), counts, min(top, 3)), (), set()
        chances = sigmoid(row.entities)
        if mode is AnswerMode.BOOLEAN:
            target = example.query.anchors[1]
            yes = bool(row.entities[target] > 0) and status is Status.SUPPORTED
            chance = float(chances[target])
            return (
                (RankedAnswer("yes" if yes else "no", chance if yes else 1 - chance),),
                (),
                {target} if yes else set(),
            )
        if example.kind is QueryKind.LINK:
            if row.ranking is not None and self._vocabulary.entities is not None:
                ranked = _rank(_softmax(row.ranking), self._vocabulary.entities, top)
            else:
                ranked = _rank(chances, names, top)
            best = {ranked[0].name} if ranked else set()
            return ranked, (), {node for node, name in enumerate(names) if name in best}
        chosen = np.flatnonzero(row.entities > 0).tolist() if status is Status.SUPPORTED else []
        rest = sorted(set(range(len(names))) - set(chosen))
        return (
            _rank(chances[chosen], [names[i] for i in chosen], len(chosen)),
            _rank(chances[rest], [names[i] for i in rest], min(top, 3)),
            set(chosen),
        )

    def _evidence(
        self, example: ReasoningExample, row: _Row, names: Sequence[str], accepted: set[int]
    ) -> tuple[Hop, ...]:
        """The best selected path, one that ends in an accepted answer if there is such a path."""
        best: tuple[bool, float] | None = None
        hops: tuple[Hop, ...] = ()
        for path, score in zip(example.competing_paths, row.paths.tolist(), strict=True):
            if score <= row.threshold or not path:
                continue
            source, target = example.graph.edge_index[:, path[-1] >> 1].tolist()
            key = ((source if path[-1] & 1 else target) in accepted, score)
            if best is None or key > best:
                best, hops = key, path_hops(path, example.graph, self._vocabulary, names)
        return hops


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """The outputs for one query; ``ranking`` and ``relation`` only where the query has them."""

    entities: Floats
    ranking: Floats | None
    relation: Floats
    status: Floats
    count: Floats
    confidence: float
    paths: Floats
    threshold: float

    @property
    def finite(self) -> bool:
        ranking = np.empty(0) if self.ranking is None else self.ranking
        scalars = np.array([self.confidence, self.threshold])
        parts = [self.entities, self.relation, self.status, self.count, self.paths, ranking, scalars]
        return not bool(np.isnan(np.concatenate(parts)).any())


class _Rows:
    """A forward pass on the host, cut into its rows."""

    def __init__(self, batch: GraphBatch, output: ModelOutput) -> None:
        self._of = {name: getattr(output, name).double().cpu().numpy() for name in _READ}
        rows = batch.num_graphs
        self._nodes = _bounds(batch.node_graph.numpy(), rows)
        self._paths = _bounds(batch.path_graph.numpy(), rows)
        self._ranking = {int(row): place for place, row in enumerate(self._of["ranking_graph"])}
        self._relation = {int(row): place for place, row in enumerate(self._of["relation_graph"])}

    def row(self, row: int) -> _Row:
        of = self._of
        place, relation = self._ranking.get(row), self._relation.get(row)
        return _Row(
            entities=of["entity_logits"][self._nodes[row] : self._nodes[row + 1]],
            ranking=None if place is None else of["ranking_logits"][place],
            relation=np.empty(0) if relation is None else of["relation_logits"][relation],
            status=of["contradiction_logits"][row],
            count=of["count_logits"][row],
            confidence=float(of["confidence_logit"][row]),
            paths=of["selection_logits"][self._paths[row] : self._paths[row + 1]],
            threshold=float(of["selection_threshold"][row]),
        )


def _bounds(owner: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    return np.searchsorted(owner, np.arange(rows + 1))


def _softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def _rank(chances: Floats, names: Iterable[str], top: int) -> tuple[RankedAnswer, ...]:
    """The likeliest names first; equal ones in the order given."""
    listed = list(names)
    order = np.argsort(-chances, kind="stable")[:top]
    return tuple(RankedAnswer(listed[i], float(chances[i])) for i in order)
