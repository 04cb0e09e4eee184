"""Evaluation and prediction with the real model on small real datasets."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hopline.config import DatasetConfig, ExampleCounts, GraphConfig, ModelConfig
from hopline.datasets import Dataset, build_dataset
from hopline.evaluation import EvaluationTable, Predictor, fit_temperature, run_evaluation
from hopline.graph import KINDS, STATUSES, GraphBatch, QueryKind, Status
from hopline.model import GraphModel, build_model
from hopline.report import collect_samples

COUNTS = ExampleCounts(train=40, valid=60, calibration=30, test=30)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> tuple[GraphConfig, Path]:
    folder = tmp_path_factory.mktemp("synthetic")
    data = DatasetConfig(examples=COUNTS, workers=1, min_nodes=12, max_nodes=20)
    build_dataset(data, folder)
    return GraphConfig(name="test", dataset=data, model=ModelConfig(hidden_dim=16, layers=2)), folder


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> tuple[GraphConfig, Path]:
    """Triples about 14 entities by name."""
    source, folder = tmp_path_factory.mktemp("triples"), tmp_path_factory.mktemp("named")
    draw = np.random.Generator(np.random.Philox(2))
    pairs = sorted({(int(h), int(r), int(t)) for h, r, t in draw.integers(0, (14, 4, 14), (260, 3)) if h != t})
    lines = [f"e{h}\tr{r}\te{t}\n" for h, r, t in np.array(pairs)[draw.permutation(len(pairs))]]
    for name, part in (("train", lines[:-60]), ("valid", lines[-60:-30]), ("test", lines[-30:])):
        (source / f"{name}.txt").write_text("".join(part))
    data = DatasetConfig(
        source=str(source),
        entities="identity",
        examples=COUNTS,
        workers=1,
        min_nodes=8,
        max_nodes=12,
        calibration_share=0.2,
    )
    build_dataset(data, folder)
    model = ModelConfig(hidden_dim=16, layers=2, transductive=True, transductive_rank=8)
    return GraphConfig(name="test", dataset=data, model=model), folder


def varied(config: GraphConfig, dataset: Dataset) -> GraphModel:
    """A model with weights large enough that its answers differ from query to query."""
    model = build_model(config, dataset.vocabulary)
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=draw) * 1.5 * parameter.shape[-1] ** -0.5)
        output = model.eval().forward_batch(dataset.split("train").batch(np.arange(30)))
        # No status wins always, and "supported" often enough for sets of answers to be given.
        logits = output.contradiction_logits
        model.trunk.status[-1].bias -= logits.mean(0)
        model.trunk.status[-1].bias[STATUSES.index(Status.SUPPORTED)] += logits.std()
    return model


@pytest.fixture(params=["synthetic", "named"])
def opened(request: pytest.FixtureRequest) -> tuple[Dataset, GraphModel]:
    config, folder = request.getfixturevalue(request.param)
    dataset = Dataset.open(folder)
    return dataset, varied(config, dataset)


def evaluate(dataset: Dataset, model: GraphModel, split=None, **options):
    split = split or dataset.split("valid")
    return run_evaluation(model, split, num_entities=dataset.vocabulary.num_entities, **{"batch_size": 16, **options})


def test_evaluating_valid_never_opens_the_test_split(synthetic, tmp_path: Path) -> None:
    """With the test split's files gone, everything up to the choice of a checkpoint still works."""
    config, folder = synthetic
    index = Dataset.open(folder).index
    kept = {shard.file for name, split in index.splits.items() if name != "test" for shard in split.shards}
    for name in (*kept, "index.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    dataset = Dataset.open(tmp_path)
    model = build_model(config, dataset.vocabulary)
    assert evaluate(dataset, model).metrics["overall.n"] == index.splits["valid"].rows
    held_out = evaluate(dataset, model, dataset.split("calibration")).table
    assert fit_temperature(held_out.confidence_logit, held_out.correct).temperature > 0
    with pytest.raises(Exception, match=r"test|no such file"):
        dataset.split("test")


class OtherLabels:
    """A split whose labels were all changed; the questions are the same."""

    def __init__(self, split) -> None:
        self._split = split

    def __len__(self) -> int:
        return len(self._split)

    def batch(self, units) -> GraphBatch:
        batch = self._split.batch(units)
        none = torch.empty(0, dtype=torch.int64)
        return replace(
            batch,
            status=2 - batch.status,
            hops=batch.hops + 1,
            path_label=1 - batch.path_label,
            answer_count=batch.answer_count + 1,
            answer_relation=torch.where(batch.answer_relation >= 0, 0, -1),
            answer_node=none, answer_graph=none, answer_entity=none, answer_entity_graph=none,
            known_entity=none, known_entity_graph=none,
        )  # fmt: skip


PREDICTIONS = ("predicted_status", "predicted_count", "predicted_boolean", "confidence_logit", "finite")


def test_no_answer_depends_on_a_label(opened) -> None:
    dataset, model = opened
    honest = evaluate(dataset, model).table
    other = evaluate(dataset, model, OtherLabels(dataset.split("valid"))).table
    for name in PREDICTIONS:
        np.testing.assert_array_equal(getattr(honest, name), getattr(other, name), err_msg=name)
    assert (honest.status != other.status).any()
    assert set(honest.predicted_status.tolist()) == {0, 1, 2}


def test_a_second_evaluation_is_equal_and_training_goes_on_as_before(opened) -> None:
    dataset, model = opened
    model.train()
    before = torch.get_rng_state()
    first, second = evaluate(dataset, model), evaluate(dataset, model)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert first.metrics == second.metrics
    for field in fields(EvaluationTable):
        np.testing.assert_array_equal(getattr(first.table, field.name), getattr(second.table, field.name))
    output = model.forward_batch(dataset.split("train").batch(np.arange(4)))
    (output.entity_logits.sum() + output.confidence_logit.sum()).backward()


def test_batch_size_changes_no_decision(opened) -> None:
    dataset, model = opened
    one, many = evaluate(dataset, model, batch_size=1).table, evaluate(dataset, model, batch_size=64).table
    for name in ("predicted_status", "predicted_count", "predicted_relation", "predicted_boolean", "ranked_row"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name), err_msg=name)
    np.testing.assert_allclose(one.ranked, many.ranked)
    np.testing.assert_allclose(one.confidence_logit, many.confidence_logit, atol=1e-3)


def test_the_predictor_gives_the_answers_that_were_measured(opened) -> None:
    dataset, model = opened
    split, vocabulary = dataset.split("valid"), dataset.vocabulary
    table = evaluate(dataset, model).table
    first = np.flatnonzero(~table.is_twin)
    examples = [split.example(unit) for unit in range(len(split))]
    names = [[str(node) for node in range(example.graph.num_nodes)] for example in examples]
    answers = Predictor(model, vocabulary).answer(examples, names=names)
    seen, sizes = set(), set()
    for row, example, answer in zip(first, examples, answers, strict=True):
        kind = KINDS[table.kind[row]]
        seen.add(kind)
        assert answer.status == STATUSES[table.predicted_status[row]].value
        if kind is QueryKind.MULTI_HOP:
            given, gold = {int(a.name) for a in answer.answers}, set(example.answers)
            sizes.add(len(given))
            assert (given == gold) == table.exact[row] or len(example.answer_entities) > len(example.answers)
        elif kind is QueryKind.BOOLEAN:
            assert answer.boolean == bool(table.predicted_boolean[row])
        elif kind is QueryKind.RELATION:
            assert answer.relation == vocabulary.relations[table.predicted_relation[row]]
        elif kind is QueryKind.LINK and vocabulary.identity and table.correct[row]:
            wanted = {vocabulary.entities[e] for e in (*example.answer_entities, *example.known_entities)}
            assert answer.answers[0].name in wanted
        elif kind in (QueryKind.COUNT, QueryKind.AGGREGATE):
            assert answer.count == table.predicted_count[row]
    assert seen == set(KINDS)
    assert len(sizes) > 1


def test_named_links_are_ranked_in_both_directions_against_all_entities(named) -> None:
    config, folder = named
    dataset = Dataset.open(folder)
    test = dataset.split("test")
    links = int((test.kinds == KINDS.index(QueryKind.LINK)).sum())
    for model_config in (config.model, config.model.model_copy(update={"transductive": False})):
        model = varied(config.model_copy(update={"model": model_config}), dataset)
        evaluation = evaluate(dataset, model, test)
        assert evaluation.metrics["link.n"] == links == 2 * 30
        assert evaluation.table.ranked.min() >= 1
        assert evaluation.table.ranked.max() <= dataset.vocabulary.num_entities
        assert len(np.unique(evaluation.table.ranked)) > 5


def test_samples_are_half_wrong_and_come_from_many_kinds(opened) -> None:
    dataset, model = opened
    split = dataset.split("valid")
    evaluation = evaluate(dataset, model)
    samples = collect_samples(evaluation, split, Predictor(model, dataset.vocabulary), dataset.vocabulary, 8)
    rights = int((evaluation.table.correct >= 1)[~evaluation.table.is_twin].sum())
    assert len(samples) == 8
    assert sum(sample.right for sample in samples) == min(4, rights)
    assert len({sample.kind for sample in samples}) >= 4
    assert all(sample.facts and sample.question and sample.expected for sample in samples)
    assert samples == collect_samples(evaluation, split, Predictor(model, dataset.vocabulary), dataset.vocabulary, 8)
    assert collect_samples(evaluation, split, Predictor(model, dataset.vocabulary), dataset.vocabulary, 0) == ()
