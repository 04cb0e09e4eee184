"""What happens between the steps."""

from __future__ import annotations

import math
import signal
import threading
from types import FrameType

import pytest

from hopline.errors import ConfigError, TerminatedError
from hopline.training import SplitBatches


def test_training_stops_at_its_limit_and_says_so(bench) -> None:
    """G22, G45: at the absolute step; every output went to on_step, and the reason is returned."""
    config = bench.config(max_steps=12)
    trainer = bench.trainer(config)
    steps: list[int] = []
    reason = trainer.train(bench.batches(config), limit=5, on_step=lambda output: steps.append(output.step))
    assert reason == trainer.state.stop_reason == "reached step 5"
    assert steps == [1, 2, 3, 4, 5]
    assert trainer.train(bench.batches(config), limit=5) == "reached step 5"
    assert trainer.step == 5
    assert trainer.train(bench.batches(config), on_step=lambda output: steps.append(output.step)) == "reached step 12"
    assert steps == list(range(1, 13))


def test_the_samples_of_the_steps_are_counted(bench) -> None:
    """G54: an example and its twin are one."""
    trainer = bench.run(bench.config(max_steps=3, batch_size=8, gradient_accumulation=2))
    assert trainer.state.samples_seen == 48


def test_on_step_may_end_training(bench) -> None:
    """G39: called after each step; it may set stop_reason."""
    trainer = bench.trainer()
    scored: list[int] = []

    def on_step(output) -> None:
        if output.step == 6:
            trainer.stop_reason = "the caller is content"

    def evaluate(model) -> dict[str, float]:
        scored.append(trainer.step)
        return {"overall.score": 0.5}

    reason = trainer.train(bench.batches(), evaluate=evaluate, checkpoints=bench.states(), on_step=on_step)
    assert reason == "the caller is content"
    assert trainer.step == 6
    assert scored == [4, 6]
    assert bench.states().committed() == [4, 6]


def test_evaluations_come_every_few_steps_and_at_the_end(bench) -> None:
    """G40: metrics cast to float, recorded as events; the model goes on in training mode."""
    modes: list[bool] = []
    config = bench.config(max_steps=10)
    trainer = bench.trainer(config)

    def evaluate(model) -> dict[str, float]:
        for module in model.modules():
            module.training = False
        return {"overall.score": trainer.step / 100, "link.mrr": math.nan}

    trainer.train(bench.batches(config), evaluate=evaluate, on_step=lambda output: modes.append(trainer.model.training))
    assert [(event.step, event.score) for event in trainer.evaluations] == [(4, 0.04), (8, 0.08), (10, 0.1)]
    assert trainer.evaluations[0].metrics == {"overall.score": 0.04}
    assert all(modes)


def test_a_part_that_an_evaluation_leaves_in_its_own_mode_trains_on(bench) -> None:
    """G40: the mode of every module is restored, not only that of the whole."""
    config = bench.config(max_steps=6)
    trainer = bench.trainer(config)
    modes: list[bool] = []

    def evaluate(model) -> dict[str, float]:
        trainer.model.propagation.eval()
        return {"overall.score": 0.5}

    def on_step(output) -> None:
        modes.extend(module.training for module in trainer.model.modules())

    trainer.train(bench.batches(config), evaluate=evaluate, on_step=on_step)
    assert all(modes)


def test_no_evaluation_until_the_end_with_an_interval_of_zero(bench) -> None:
    """G40."""
    trainer = bench.run(bench.config(evaluation_every=0, max_steps=5))
    assert [event.step for event in trainer.evaluations] == [5]


def test_the_best_candidates_are_kept(bench) -> None:
    """G41: higher is better; of equal ones the earlier step; kept at once, in a store of their own."""
    scores = {2: 0.5, 4: 0.9, 6: 0.3, 8: 0.9, 10: 0.7, 12: 0.6}
    config = bench.config(evaluation_every=2, keep_candidates=3)
    present: dict[int, list[int]] = {}
    trainer = bench.run(
        config,
        score=scores.__getitem__,
        on_step=lambda output: present.update({output.step: bench.candidates(config).steps()}),
    )
    assert [(c.step, c.score) for c in trainer.state.candidates] == [(4, 0.9), (8, 0.9), (10, 0.7)]
    assert set(bench.candidates(config).steps()) >= {4, 8, 10}
    assert (trainer.best_step, trainer.best_score) == (4, 0.9)
    assert 2 in present[3]
    assert 4 in present[5]


def test_a_score_that_is_no_number_is_never_best(bench) -> None:
    """G41: NaN never best, and no candidate."""
    scores = {4: math.nan, 8: 0.1, 12: math.nan}
    config = bench.config(patience=2)
    trainer = bench.run(config, score=scores.__getitem__)
    assert (trainer.best_step, trainer.best_score) == (8, 0.1)
    assert [c.step for c in trainer.state.candidates] == [8]
    assert [event.score for event in trainer.evaluations] == [None, 0.1, None]
    never = bench.run(bench.config(max_steps=4), name="never", score=lambda step: math.nan)
    assert (never.best_step, never.best_score, never.state.candidates) == (None, None, [])


def test_patience_ends_training_that_does_not_improve(bench) -> None:
    """G42: N evaluations without improvement; an equal score is none."""
    scores = {2: 0.5, 4: 0.6, 6: 0.6, 8: 0.1, 10: 0.9, 12: 0.9}
    trainer = bench.run(bench.config(patience=2, evaluation_every=2), score=scores.__getitem__)
    assert trainer.stopped_early
    assert trainer.step == 8
    assert trainer.state.stop_reason == "no better score in 2 evaluations"
    assert bench.states().committed()[-1] == 8
    patient = bench.run(bench.config(patience=3, evaluation_every=2), name="patient", score=scores.__getitem__)
    assert not patient.stopped_early
    assert patient.step == 12


def test_patience_begins_anew_with_every_better_score(bench) -> None:
    """G42: evaluations in a row without improvement, not in all."""
    config = bench.config(max_steps=8, evaluation_every=1, checkpoint_every=0, patience=2)
    trainer = bench.run(config, score=lambda step: [0.0, 0.5, 0.4, 0.6, 0.5, 0.4, 0.9, 0.9, 0.9][step])
    assert (trainer.stopped_early, trainer.step) == (True, 5)
    assert (trainer.best_score, trainer.best_step) == (0.6, 3)


def test_a_second_training_starts_its_patience_anew(bench) -> None:
    """D34: stop reason and patience of the call before are forgotten."""
    config = bench.config(patience=2, evaluation_every=2)
    trainer = bench.trainer(config)
    options = {"evaluate": lambda model: {"overall.score": 0.5}}
    trainer.train(bench.batches(config), **options)
    assert (trainer.stopped_early, trainer.step) == (True, 6)
    trainer.train(bench.batches(config), **options)
    assert (trainer.stopped_early, trainer.step) == (True, 10)
    trainer.train(bench.batches(config))
    assert (trainer.stopped_early, trainer.step) == (False, 12)


def test_periodic_states(bench) -> None:
    """G43: every checkpoint_every steps, and at the end."""
    bench.run(bench.config(max_steps=7, checkpoint_every=3, keep_checkpoints=5))
    assert bench.states().committed() == [3, 6, 7]


def test_candidates_need_a_score(bench) -> None:
    """G41, G43: what cannot be kept is told at the start."""
    config = bench.config()
    with pytest.raises(ConfigError, match="give an evaluation too"):
        bench.trainer(config).train(bench.batches(config), candidates=bench.candidates(config))


def test_a_metric_that_is_not_there_is_named(bench) -> None:
    trainer = bench.trainer()
    with pytest.raises(ConfigError, match=r"overall\.score"):
        trainer.train(bench.batches(), evaluate=lambda model: {"link.mrr": 0.5})


def test_sigterm_saves_and_ends_with_its_own_code(bench, undisturbed) -> None:
    """G56, D28: the flag that a signal sets is seen at the next step."""
    flag = threading.Event()

    def terminate(number: int, frame: FrameType | None) -> None:
        flag.set()

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with pytest.raises(TerminatedError, match="after step 6; its state was saved") as caught:
            bench.run(stop=flag.is_set, on_step=lambda output: output.step == 6 and signal.raise_signal(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.exit_code == 143
    assert bench.states().committed() == [4, 6]
    bench.same(bench.run(), undisturbed.trainer)


def test_a_stop_during_evaluation_saves_and_evaluates_again_afterwards(bench, undisturbed) -> None:
    """G56: half an evaluation is none; the run ends as an undisturbed one."""
    config = bench.config()
    whole = undisturbed.trainer
    for place in (8, 12):
        name = f"stopped-{place}"

        def score(step: int, place: int = place) -> float:
            if step == place:
                raise TerminatedError("evaluation stopped")
            return (step * 7 % 11) / 11

        with pytest.raises(TerminatedError, match=f"after step {place}; its state was saved"):
            bench.run(config, name=name, score=score)
        assert bench.states(name).committed()[-2:] == [place - 4, place]
        bench.same(whole, bench.run(config, name=name))


def test_a_stop_with_nowhere_to_save_says_so(bench) -> None:
    with pytest.raises(TerminatedError, match="not saved"):
        bench.trainer().train(bench.batches(), stop=lambda: True)


def test_the_log_holds_means_over_each_interval_and_the_evaluations(bench) -> None:
    """G37, G45, D49: a line an interval, not one for each step; the means are over the steps of the interval."""
    config = bench.config(max_steps=8, log_every=3)
    outputs: dict[int, float] = {}
    trainer = bench.run(config, on_step=lambda output: outputs.update({output.step: output.loss}))
    lines = [(record["step"], "metrics" in record) for record in trainer.log.records()]
    assert lines == [(3, False), (4, True), (6, False), (8, False), (8, True)]
    steps = [record for record in trainer.log.records() if "loss" in record]
    for record, interval in zip(steps, ([1, 2, 3], [4, 5, 6], [7, 8]), strict=True):
        assert record["loss"] == pytest.approx(sum(outputs[step] for step in interval) / len(interval))
        assert record.keys() == {"step", "loss", "components", "learning_rate", "grad_norm", "examples"}
        assert len(record["components"]) == 12


def test_progress_has_the_figures_that_a_person_wants(bench) -> None:
    """G61: loss with its components, rate, norm, rows a second, data wait and time to go; the score of evaluations."""
    bench.run(bench.config(max_steps=6))
    events = bench.events.of("progress")
    last = [event for event in events if "loss" in event.values][-1]
    assert (last.step, last.total) == (6, 6)
    assert {"learning_rate", "grad_norm", "examples_per_second", "data_wait", "eta_seconds"} <= last.values.keys()
    assert "loss.pair_margin" in last.values
    assert last.values["eta_seconds"] == 0
    assert 0 <= last.values["data_wait"] <= 1
    assert [event.values["score"] for event in events if "score" in event.values] == [
        pytest.approx((step * 7 % 11) / 11) for step in (4, 6)
    ]


def test_a_broken_pipe_stops_no_training(bench) -> None:
    """G61: the terminal is not part of the result."""

    class Broken:
        def emit(self, event) -> None:
            raise BrokenPipeError(32, "Broken pipe")

    config = bench.config(max_steps=4)
    trainer = bench.trainer(config)
    trainer._sink = Broken()
    assert trainer.train(bench.batches(config), evaluate=lambda model: {"overall.score": 1.0}) == "reached step 4"


def test_an_error_in_the_data_reaches_the_caller(bench) -> None:
    """D29: nothing ends silently."""

    class Torn:
        examples_per_step = 16

        def __init__(self, inner: SplitBatches) -> None:
            self.inner = inner

        def step(self, step: int):
            if step == 3:
                raise OSError(5, "Input/output error")
            return self.inner.step(step)

    trainer = bench.trainer()
    with pytest.raises(OSError, match="Input/output error"):
        trainer.train(Torn(bench.batches()))
    assert trainer.step == 3


def test_cadence_of_checkpoints_chunks_and_log_change_no_weight(bench) -> None:
    """G24, G43: what the run hash leaves out does not change the result (up to the order of sums, for chunks)."""
    one = bench.run(bench.config(), name="one")
    other = bench.run(bench.config(checkpoint_every=0, log_every=100), name="other")
    assert all((a == b).all() for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))
