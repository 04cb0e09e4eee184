"""The numbers of a step: what is read, what is drawn, and that every branch of the model trains and resumes to the bit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from hopline.config import DatasetConfig, ExampleCounts, GraphConfig, LossConfig
from hopline.datasets import Dataset, build_dataset
from hopline.errors import TerminatedError
from hopline.evaluation import run_evaluation
from hopline.training import GraphTrainer
from tests.training.conftest import Bench

STILL = {"dropout": 0.0}


def step(bench: Bench, trainer: GraphTrainer) -> Any:
    return trainer.train_step(bench.batches(trainer.config).step(trainer.step))


def weights(trainer: GraphTrainer) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in trainer.model.parameters()]).clone()


class Reads(TorchFunctionMode):
    """Counts what brings figures from the device to the host."""

    NAMES = frozenset({"tolist", "item", "__bool__", "__float__", "__int__", "__index__", "numpy", "cpu"})

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        self.count += getattr(function, "__name__", "") in self.NAMES
        return function(*arguments, **(options or {}))


def test_loss_components_and_norm_are_read_in_one_go(bench: Bench) -> None:
    """G37, D10, D27: nothing else is read back in a step, neither for a part nor for an example."""
    trainer = bench.trainer()
    batches = bench.batches(trainer.config).step(0)
    assert len(batches.chunks) > 1
    with Reads() as reads:
        trainer.train_step(batches)
    assert reads.count == 1


def test_the_examples_of_a_part_share_one_forward_pass(bench: Bench) -> None:
    """D50, G25: however many they are."""
    for chunk in (1000, 10):
        trainer = bench.trainer(bench.config(backward_chunk_size=chunk))
        rows: list[int] = []
        trainer.model.register_forward_hook(lambda _, given, __, seen=rows: seen.append(given[0].num_graphs))
        batches = bench.batches(trainer.config).step(0)
        assert (len(batches.chunks) == 1) == (chunk == 1000)
        output = trainer.train_step(batches)
        assert rows == [part.batch.num_graphs for part in batches.chunks]
        assert sum(rows) == output.examples >= 16


def test_the_first_update_moves_the_weights_by_its_rate(bench: Bench) -> None:
    """G11, G17: Adam's first move is the rate itself, so the rate that was told is the one that was used."""
    config = bench.config(STILL, weight_decay=0.0, learning_rate=0.01, warmup_ratio=0.5)
    trainer = bench.trainer(config)
    before = weights(trainer)
    rate = step(bench, trainer).learning_rate
    assert rate == pytest.approx(0.01 / 6)
    assert float((weights(trainer) - before).abs().max()) == pytest.approx(rate, rel=1e-3)


def test_a_loss_that_is_not_finite_is_not_applied_even_if_its_gradient_is(bench: Bench) -> None:
    """D2."""
    trainer = bench.trainer()
    loss = trainer._step._module.loss
    before, original = weights(trainer), loss.forward

    def infinite(*arguments: Any, **options: Any) -> Any:
        output = original(*arguments, **options)
        return replace(output, total=output.total + math.inf)

    loss.forward = infinite  # type: ignore[method-assign]
    output = step(bench, trainer)
    assert output.verdict == "non_finite"
    assert math.isfinite(output.grad_norm)
    assert torch.equal(weights(trainer), before)


def test_the_moments_of_a_skipped_update_stay(bench: Bench) -> None:
    """D2, D3: an update that was not applied leaves no trace in the optimizer either."""
    trainer = bench.trainer(bench.config(skip_grad_norm=2.0, skip_minimum=1))
    step(bench, trainer)
    moments = [value.clone() for state in trainer.optimizer.state.values() for value in state.values()]
    assert moments
    trainer.state.applied_norms = [1e-9]
    assert step(bench, trainer).verdict == "spike"
    after = [value for state in trainer.optimizer.state.values() for value in state.values()]
    assert all(map(torch.equal, moments, after))


def test_whatever_evaluation_left_behind_a_step_trains(bench: Bench) -> None:
    """G40, D16."""
    trainer = bench.trainer()
    trainer.model.eval()
    step(bench, trainer)
    assert all(module.training for module in trainer.model.modules())


def test_who_asks_for_half_precision_on_the_cpu_is_told(bench: Bench) -> None:
    """G33: bf16 is fp32 there, to the bit."""
    plain = bench.trainer()
    assert not bench.events.of("note")
    asked = bench.trainer(bench.config(precision="bf16"))
    (note,) = bench.events.of("note")
    assert note.message == "training.precision bf16 works on CUDA alone; cpu trains in fp32"
    assert asked.effective_precision == "fp32"
    assert step(bench, plain) == step(bench, asked)
    assert torch.equal(weights(plain), weights(asked))


def test_the_draws_of_a_step_do_not_depend_on_earlier_draws(bench: Bench) -> None:
    """D8, D37, G57."""
    one, other, seeded = bench.trainer(), bench.trainer(), bench.trainer(bench.config(seed=1))
    step(bench, one)
    torch.rand(1000)
    np.random.random(7)
    step(bench, other)
    assert torch.equal(weights(one), weights(other))
    step(bench, seeded)
    assert not torch.equal(weights(one), weights(seeded))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Triples about 14 entities with identities."""
    source, folder = tmp_path_factory.mktemp("triples"), tmp_path_factory.mktemp("named")
    draw = np.random.Generator(np.random.Philox(2))
    triples = sorted({(int(h), int(r), int(t)) for h, r, t in draw.integers(0, (14, 4, 14), (260, 3)) if h != t})
    lines = [f"e{h}\tr{r}\te{t}\n" for h, r, t in np.array(triples)[draw.permutation(len(triples))]]
    for name, part in (("train", lines[:-60]), ("valid", lines[-60:-30]), ("test", lines[-30:])):
        (source / f"{name}.txt").write_text("".join(part))
    counts = ExampleCounts(train=64, valid=24, calibration=16, test=16)
    data = DatasetConfig(
        source=str(source),
        entities="identity",
        examples=counts,
        workers=1,
        min_nodes=8,
        max_nodes=12,
        calibration_share=0.2,
    )
    build_dataset(data, folder)
    return Dataset.open(folder)


class Everything(Bench):
    """Every branch of the model and of the loss at once, measured by the real evaluation."""

    def config(self, model: Any = None, **training: Any) -> GraphConfig:
        rates = {"query_encoder_lr_scale": 0.5, "transductive_lr_scale": 2.0}
        plain = super().config(model, **{"link_head": "mlp", **rates, **training})
        branches = {
            "transductive": True,
            "transductive_rank": 8,
            "transductive_dropout": 0.1,
            "on_policy_selection": True,
        }
        return GraphConfig(
            name="test",
            dataset=DatasetConfig(source="triples", entities="identity"),
            model=plain.model.model_copy(update=branches),
            loss=LossConfig(n3=0.01, negatives_per_edge=2, edge_queries=3),
            training=plain.training,
        )

    def attempt(self, config: GraphConfig, name: str, stop_at: int | None = None) -> GraphTrainer:
        """Train from the newest state; stop amid the evaluation of a step."""
        trainer = self.trainer(config)
        trainer.load_checkpoint(self.states(name))
        asked = iter([False, True])
        trainer.train(
            self.batches(config),
            evaluate=lambda model: (
                run_evaluation(
                    model,
                    self.dataset.split("valid"),
                    batch_size=10,
                    num_entities=self.dataset.vocabulary.num_entities,
                    stop=(lambda: next(asked)) if trainer.step == stop_at else None,
                ).metrics
            ),
            checkpoints=self.states(name),
            candidates=self.candidates(config, name),
        )
        return trainer


@pytest.fixture
def everything(named: Dataset, tmp_path: Path) -> Everything:
    return Everything(named, tmp_path)


def test_every_branch_trains_with_deterministic_kernels(everything: Everything) -> None:
    """G53, D44: with ``training.deterministic`` torch refuses a kernel that has no such form; none is refused, forward or
    backward, and two runs are equal to the bit."""
    config = everything.config(max_steps=4)
    one, other = (everything.attempt(config, name) for name in ("one", "other"))
    assert torch.are_deterministic_algorithms_enabled()
    everything.same(one, other)
    assert all(
        float(moment["exp_avg_sq"].sum()) > 0
        for parameter, moment in one.optimizer.state.items()
        if parameter.numel() > 8
    )


def test_a_stop_amid_a_real_evaluation_changes_nothing(everything: Everything) -> None:
    """G44, G54, G56, G57: the state is saved, the evaluation is done again, and the end is the same to the bit."""
    config = everything.config(max_steps=8)
    whole = everything.attempt(config, "whole")
    with pytest.raises(TerminatedError, match="after step 4; its state was saved"):
        everything.attempt(config, "parts", stop_at=4)
    assert everything.states("parts").committed() == [4]
    everything.same(whole, everything.attempt(config, "parts"))
    assert [event.step for event in whole.evaluations] == [4, 8]
