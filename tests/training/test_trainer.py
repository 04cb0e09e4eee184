"""One optimizer step."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from hopline.datasets import take_rows
from hopline.errors import TrainingDivergedError
from hopline.graph import collate
from hopline.training import COMPONENTS, Chunk, MultiTaskLoss, StepBatches
from hopline.training.schedule import learning_rate_factor
from hopline.training.supervision import build_loss_inputs

STILL = {"dropout": 0.0}


def poison(trainer, value: float) -> torch.utils.hooks.RemovableHandle:
    """Let one gradient be multiplied by ``value`` in every backward pass."""
    parameter = next(p for p in trainer.model.parameters() if p.requires_grad and p.ndim > 1)
    return parameter.register_hook(lambda grad: grad * value)


def weights(trainer) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


def moved(trainer, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, parameter in trainer.model.named_parameters() if not torch.equal(parameter, before[name])}


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_the_gradient_is_that_of_the_mean_over_all_rows_whatever_the_chunks(bench, chunk: int) -> None:
    """G24, D5, D15: twins count as rows in the divisor, of the gradient as of the logged means."""
    config = bench.config(STILL, backward_chunk_size=chunk, grad_clip=1e9)
    trainer = bench.trainer(config)
    units = bench.batches(config)._sampler.units(0)
    batch = bench.dataset.split("train").batch(units)
    assert batch.is_twin.any()
    model = bench.model(config).train()
    inputs = build_loss_inputs(model, batch, model(batch), seed=config.training.seed, step=0)
    expected = MultiTaskLoss(config.loss)(inputs)
    expected.total.backward()

    batches = bench.batches(config).step(0)
    assert (len(batches.chunks) > 1) == (chunk < 1000)
    output = trainer.train_step(batches)
    assert output.examples == batch.num_graphs > len(units)
    assert output.loss == pytest.approx(expected.total.item(), rel=1e-5)
    for name, value in expected.components.items():
        assert output.components[name] == pytest.approx(value.item(), rel=1e-4, abs=1e-6), name
    found = dict(trainer.model.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name].grad, parameter.grad, rtol=2e-3, atol=2e-6)
    whole = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert output.grad_norm == pytest.approx(float(whole.norm()), rel=1e-4)


def test_rows_of_a_short_chunk_weigh_as_much_as_others(bench) -> None:
    """D15: 5 + 1 rows give the gradient of 3 + 3."""
    columns = bench.dataset.split("train").columns(np.arange(12))
    rows = np.flatnonzero(columns.values["is_twin"] == 0)[:6]
    relations = bench.dataset.vocabulary.num_relations

    def gradient(*sizes: int) -> torch.Tensor:
        trainer = bench.trainer(bench.config(STILL, grad_clip=1e9))
        starts = np.cumsum([0, *sizes])
        parts = [rows[a:b] for a, b in itertools.pairwise(starts)]
        taken = [take_rows(columns.values, columns.offsets, part) for part in parts]
        chunks = tuple(Chunk(collate(part, num_relations=relations)) for part in taken)
        trainer.train_step(StepBatches(chunks, len(rows), np.arange(len(rows))))
        return torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])

    torch.testing.assert_close(gradient(5, 1), gradient(3, 3), rtol=1e-3, atol=1e-6)


def test_a_step_without_examples_is_an_error(bench) -> None:
    """G23."""
    with pytest.raises(ValueError, match="at least one example"):
        bench.trainer().train_step(StepBatches((), 0, np.zeros(0, np.int64)))


def test_what_a_step_tells(bench) -> None:
    """G38, G17: step, means, norm before clipping, the rate that this update used, scored rows."""
    config = bench.config(STILL, grad_clip=0.01, max_steps=10, warmup_ratio=0.3, learning_rate=0.02)
    trainer = bench.trainer(config)
    outputs = [trainer.train_step(bench.batches(config).step(step)) for step in range(4)]
    assert [output.step for output in outputs] == [1, 2, 3, 4]
    expected = [0.02 * learning_rate_factor(step, total_steps=10, warmup_ratio=0.3, floor=0.1) for step in range(4)]
    assert [output.learning_rate for output in outputs] == expected
    assert outputs[0].learning_rate == pytest.approx(0.02 / 3)
    assert tuple(outputs[0].components) == COMPONENTS
    assert all(output.applied for output in outputs)
    weighted = sum(getattr(config.loss.weights, name) * value for name, value in outputs[0].components.items())
    assert outputs[0].loss == pytest.approx(weighted, rel=1e-5)


def test_gradients_are_clipped_to_the_global_norm(bench) -> None:
    """G35: the norm that is told is the one before."""
    trainer = bench.trainer(bench.config(STILL, grad_clip=0.01))
    output = trainer.train_step(bench.batches().step(0))
    after = torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()]).norm()
    assert output.grad_norm > 0.1
    assert float(after) == pytest.approx(0.01, rel=1e-3)


def test_the_horizon_of_the_schedule_is_not_the_limit(bench) -> None:
    """G16, D17: total_steps decides the rate; 0 is no default in disguise."""
    config = bench.config(max_steps=4)
    far = bench.trainer(config, total_steps=1000)
    assert far.total_steps == 1000
    assert far.train_step(bench.batches(config).step(0)).learning_rate == pytest.approx(2e-3 / 50)
    assert bench.trainer(config).total_steps == 4
    assert bench.trainer(config, total_steps=0).total_steps == 0
    assert bench.trainer(config).train(bench.batches(config), limit=0) == "reached step 0"


def test_a_frozen_query_encoder_is_left_alone(bench) -> None:
    """G9, D16: no gradient, not optimised, not in the norm, and no dropout."""
    config = bench.config(freeze_query_encoder=True, weight_decay=0.5, grad_clip=1e9)
    trainer = bench.trainer(config)
    before = weights(trainer)
    output = trainer.train_step(bench.batches(config).step(0))
    changed = moved(trainer, before)
    assert changed
    assert not any(name.startswith("query_encoder.") for name in changed)
    assert all(parameter.grad is None for parameter in trainer.model.query_encoder.parameters())
    assert not any(module.training for module in trainer.model.query_encoder.modules())
    assert trainer.model.propagation.training
    others = [p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]
    assert output.grad_norm == pytest.approx(float(torch.cat(others).norm()), rel=1e-4)


def test_the_link_head_is_part_of_the_model(bench) -> None:
    """G10, D21: registered before training, so it is saved and optimised."""
    config = bench.config(STILL, link_head="mlp")
    trainer = bench.trainer(config)
    before = weights(trainer)
    names = {name for name in before if name.startswith("link_mlp.")}
    assert names
    trainer.train_step(bench.batches(config).step(0))
    assert names <= moved(trainer, before)
    assert names <= set(trainer.model.state_dict())


def test_draws_differ_from_step_to_step_and_repeat_with_the_step(bench) -> None:
    """G57, D8, D37: dropout and negatives are a function of seed and step alone."""
    config = bench.config({"dropout": 0.5}, learning_rate=1e-12)
    batches = bench.batches(config).step(0)

    def losses(*, seed: int, drawn: int) -> list[float]:
        trainer = bench.trainer(bench.config({"dropout": 0.5}, learning_rate=1e-12, seed=seed))
        trainer.model.load_state_dict(bench.model(config).state_dict())
        torch.rand(drawn)
        return [trainer.train_step(batches).loss for _ in range(3)]

    first = losses(seed=0, drawn=1)
    assert losses(seed=0, drawn=9) == first
    assert len(set(first)) == 3
    assert set(losses(seed=1, drawn=1)).isdisjoint(first)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_update_that_is_not_finite_changes_nothing(bench, value: float) -> None:
    """D2, D3, G18, G62: no weight and no moment moves, the schedule goes on, the examples are named."""
    config = bench.config(STILL, max_steps=10, warmup_ratio=0.3)
    trainer = bench.trainer(config)
    handle = poison(trainer, value)
    before = weights(trainer)
    batches = bench.batches(config).step(0)
    output = trainer.train_step(batches)
    assert output.verdict == "non_finite"
    assert not output.applied
    assert not moved(trainer, before)
    assert not trainer.optimizer.state
    assert trainer.state.applied_norms == []
    handle.remove()
    next_output = trainer.train_step(bench.batches(config).step(1))
    assert next_output.applied
    assert (next_output.step, trainer.state.non_finite_updates) == (2, 1)
    assert next_output.learning_rate == pytest.approx(2 * output.learning_rate)
    warning = bench.events.of("warning")[0].message
    assert warning.startswith("update 1 was skipped, because it is not finite")
    assert f"examples {int(batches.chunks[0].batch.example_id[0])}, " in warning


def test_updates_that_stay_non_finite_end_training(bench) -> None:
    """D2: abort after k in a row, exit code 3."""
    config = bench.config(max_non_finite=3)
    trainer = bench.trainer(config)
    poison(trainer, math.nan)
    before = weights(trainer)
    with pytest.raises(TrainingDivergedError, match="the last 3 updates") as caught:
        trainer.train(bench.batches(config))
    assert caught.value.exit_code == 3
    assert trainer.step == 3
    assert not moved(trainer, before)
    assert len(bench.events.of("warning")) == 3


def test_a_spike_is_skipped_and_the_schedule_goes_on(bench) -> None:
    """G18, G36: gradients dropped, counter up, not in the history, step and schedule advance."""
    config = bench.config(STILL, skip_grad_norm=3.0, skip_minimum=3, max_steps=10, warmup_ratio=0.5)
    trainer = bench.trainer(config)
    batches = bench.batches(config)
    rates = [trainer.train_step(batches.step(step)).learning_rate for step in range(3)]
    handle = poison(trainer, 1e4)
    before = weights(trainer)
    output = trainer.train_step(batches.step(3))
    handle.remove()
    assert output.verdict == "spike"
    assert not moved(trainer, before)
    assert trainer.skipped_updates == 1
    assert len(trainer.state.applied_norms) == 3
    rates += [output.learning_rate, trainer.train_step(batches.step(4)).learning_rate]
    assert rates == pytest.approx([2e-3 * (step + 1) / 5 for step in range(5)])


def test_an_overflow_lowers_the_loss_scale_and_training_goes_on(bench) -> None:
    """D1, D3, G35: the real GradScaler, on the CPU: norms are those of unscaled gradients, the scale backs off on overflow,
    and a skipped spike never leaves it in a state in which the next step raises."""
    config = bench.config(STILL, skip_grad_norm=3.0, skip_minimum=3, max_non_finite=2)
    plain, trainer = bench.trainer(config), bench.trainer(config)
    trainer._scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-60)
    batches = bench.batches(config)
    before = weights(trainer)
    handle = poison(trainer, 1e6)
    first = trainer.train_step(batches.step(0))
    handle.remove()
    assert first.verdict == "non_finite"
    assert trainer._scaler.get_scale() == 2.0**67
    assert not moved(trainer, before)
    assert trainer.state.applied_norms == []
    assert trainer.state.non_finite_in_a_row == 0

    trainer.state.step = 0
    for step in range(3):
        ours, theirs = trainer.train_step(batches.step(step)), plain.train_step(batches.step(step))
        assert ours.applied
        assert ours.loss == theirs.loss
        assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-5)
    handle = poison(trainer, 1e4)
    assert [trainer.train_step(batches.step(step)).verdict for step in (3, 4)] == ["spike", "spike"]
    handle.remove()
    assert trainer.train_step(batches.step(5)).applied
    assert trainer._scaler.get_scale() == 2.0**67


def test_gradients_that_no_scale_can_mend_end_training(bench) -> None:
    """D1, D2: a scaler that has nothing left to lower is no excuse."""
    config = bench.config(max_non_finite=2)
    trainer = bench.trainer(config)
    trainer._scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    poison(trainer, math.nan)
    with pytest.raises(TrainingDivergedError, match="the last 2 updates"):
        trainer.train(bench.batches(config))
    assert trainer.step == 4


def test_the_scale_is_part_of_the_saved_state(bench) -> None:
    """G47: scaler."""
    config = bench.config()
    trainer = bench.trainer(config)
    trainer._scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    trainer.train_step(bench.batches(config).step(0))
    trainer.save_checkpoint(bench.states())
    other = bench.trainer(config)
    other._scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    other.load_checkpoint(bench.states())
    assert other._scaler.get_scale() == 64.0
    assert other._scaler.state_dict() == trainer._scaler.state_dict()


def test_half_precision_is_not_taken_on_the_cpu(bench) -> None:
    """G33: asked for fp16, runs in fp32 and tells so."""
    config = bench.config(STILL, precision="fp16")
    trainer = bench.trainer(config)
    assert trainer.effective_precision == "fp32"
    full = bench.trainer(bench.config(STILL))
    batches = bench.batches(config).step(0)
    assert trainer.train_step(batches).loss == full.train_step(batches).loss


def test_two_equal_trainings_are_equal_to_the_bit(bench, undisturbed) -> None:
    """G53: deterministic runs on the CPU, dropout and all."""
    bench.same(bench.run(), undisturbed.trainer)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training_on_cuda(bench, precision: str) -> None:
    """G33, G35, D1: every precision lowers the loss; fp16 survives a forced overflow."""
    from hopline.training import GraphTrainer

    config = bench.config(STILL, precision=precision, max_steps=30, learning_rate=0.01, deterministic=False)
    trainer = GraphTrainer(bench.model(config), config, "cuda")
    torch.use_deterministic_algorithms(False)
    assert trainer.effective_precision == precision
    if precision == "fp16":
        trainer._scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40)
    batches = bench.batches(config)
    losses = [trainer.train_step(batches.step(step)).loss for step in range(30)]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert (trainer.state.non_finite_updates > 0) == (precision == "fp16")
