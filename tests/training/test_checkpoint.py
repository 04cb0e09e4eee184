"""Saving and restoring a training."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from hopline.errors import DataError, IntegrityError, NotFoundError, StoreError, TerminatedError
from hopline.storage.file import FileStore
from hopline.storage.local import os_errors
from tests.training.conftest import Bench


def flip(path: Path, offset: int = 100) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("step", [0, 7, 8])
def test_a_stopped_run_continues_as_if_nothing_had_happened(bench, undisturbed, step: int) -> None:
    """G47, G51, G54, G57, D32, D33, D37: weights, moments, data position, best score, patience, history, candidates, random
    draws and step log are equal to the bit, with dropout on and wherever the run was stopped."""
    config, whole = bench.config(), undisturbed.trainer
    trainer = bench.trainer(config)
    with pytest.raises(TerminatedError, match=f"after step {step}; its state was saved"):
        trainer.train(
            bench.batches(config),
            evaluate=lambda model: {"overall.score": (trainer.step * 7 % 11) / 11},
            checkpoints=bench.states("parts"),
            candidates=bench.candidates(config, "parts"),
            stop=lambda: trainer.step == step,
        )
    assert bench.states("parts").committed()[-1] == step
    continued = bench.run(config, name="parts")
    bench.same(whole, continued)
    assert continued.step == 12
    assert continued.best_score == whole.best_score == max((s * 7 % 11) / 11 for s in (4, 8, 12))


def test_what_was_best_before_a_stop_still_is_afterwards(bench) -> None:
    """D33: an evaluation after a resume that is worse does not take its place, and patience goes on being lost."""
    config = bench.config(evaluation_every=2, keep_candidates=1)
    with pytest.raises(TerminatedError):
        bench.run(config, score=lambda step: -step, stop=lambda: bench.states().committed() != [])
    stopped = bench.resumed(config)
    assert 4 <= stopped.step < 10
    ended = bench.run(config, score=lambda step: -step)
    assert (ended.best_step, ended.best_score) == (stopped.best_step, stopped.best_score) == (2, -2.0)
    assert [candidate.step for candidate in ended.state.candidates] == [2]
    assert ended.state.without_improvement == 5


def test_a_finished_run_is_restored_as_it_was_and_trains_no_further(bench) -> None:
    """G51, D33."""
    whole = bench.run()
    steps: list[int] = []
    again = bench.run(on_step=lambda output: steps.append(output.step))
    assert not steps
    bench.same(whole, again)


def test_a_run_that_stopped_early_stays_stopped_after_a_restart(bench) -> None:
    """G42, D33, D34: patience and its end are part of the state."""
    config = bench.config(patience=1, max_steps=40)
    bench.run(config, score=lambda step: -step)
    again = bench.run(config, score=lambda step: -step)
    assert again.stopped_early
    assert again.step == 8


def test_a_longer_limit_continues_a_finished_run(bench) -> None:
    """G22, D38, D41: the horizon is the new config's, not the saved one."""
    short = bench.run(bench.config(max_steps=8))
    assert short.state.stop_reason == "reached step 8"
    rates: list[float] = []
    longer = bench.run(bench.config(max_steps=16), on_step=lambda output: rates.append(output.learning_rate))
    assert longer.step == 16
    assert len(rates) == 8
    straight: list[float] = []
    bench.run(bench.config(max_steps=16), name="straight", on_step=lambda output: straight.append(output.learning_rate))
    assert rates == straight[8:]


def test_settings_come_from_the_config_and_not_from_the_saved_state(bench) -> None:
    """D38: a changed weight decay, beta or learning rate holds after a resume."""
    bench.run(bench.config(max_steps=4))
    changed = bench.config(max_steps=8, weight_decay=0.3, betas=(0.5, 0.6), learning_rate=0.5)
    trainer = bench.resumed(changed)
    assert {group["weight_decay"] for group in trainer.optimizer.param_groups} == {0.3, 0.0}
    assert {tuple(group["betas"]) for group in trainer.optimizer.param_groups} == {(0.5, 0.6)}
    batches = bench.batches(changed)
    assert trainer.train_step(batches.step(trainer.step)).learning_rate > 0.1


def test_moments_follow_the_names_of_parameters(bench) -> None:
    """G52, D39: other groups, other order; each parameter keeps its own moments."""
    one = bench.run(bench.config(max_steps=4))
    other = bench.resumed(bench.config(max_steps=8, query_encoder_lr_scale=0.1))
    assert len(one.optimizer.param_groups) == 2
    assert len(other.optimizer.param_groups) == 4
    parameters = dict(other.model.named_parameters())
    for name, parameter in one.model.named_parameters():
        for key, value in one.optimizer.state[parameter].items():
            assert torch.equal(value, other.optimizer.state[parameters[name]][key]), (name, key)


def test_a_state_is_read_tensor_by_tensor_beside_the_device(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """D42: the device never holds the state a second time; nothing but tensors is unpickled on the way."""
    trained = bench.run(bench.config(max_steps=4))
    read: list[int] = []
    original = torch.load

    def load(*arguments: Any, **options: Any) -> Any:
        assert str(options["map_location"]) == "cpu"
        assert options["weights_only"] is True
        found = original(*arguments, **options)
        assert isinstance(found, torch.Tensor)
        read.append(found.numel())
        return found

    monkeypatch.setattr(torch, "load", load)
    bench.same(trained, bench.resumed(trained.config))
    assert max(read) == max(parameter.numel() for parameter in trained.model.parameters())
    assert len(read) >= 3 * len(list(trained.model.parameters()))


def test_only_the_newest_states_are_kept(bench) -> None:
    """G55, D40: retention."""
    bench.run(bench.config(checkpoint_every=2, keep_checkpoints=3))
    assert bench.states().committed() == [8, 10, 12]


def test_the_state_of_the_best_score_is_kept_beside_the_newest(bench) -> None:
    """D40: whatever its age; a better one takes its place."""
    config = bench.config(checkpoint_every=2, max_steps=16)
    bench.run(config, score=lambda step: -step)
    assert bench.states().committed() == [4, 14, 16]
    bench.run(config, name="rising", score=lambda step: {4: 1.0, 8: 2.0}.get(step, 0.0))
    assert bench.states("rising").committed() == [8, 14, 16]


def test_training_goes_on_while_a_state_is_written(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """D26: three steps pass before the store has taken the first file of the state."""
    original, passed, waited = FileStore.put_file, threading.Event(), []

    def put_file(self: FileStore, key: str, path: Path, **options: Any) -> None:
        if key.startswith("states/step-00000004/") and all(waited):
            waited.append(passed.wait(30))
        original(self, key, path, **options)

    monkeypatch.setattr(FileStore, "put_file", put_file)
    bench.run(bench.config(max_steps=8), on_step=lambda output: output.step == 7 and passed.set())
    assert waited
    assert all(waited)
    assert bench.states().committed() == [4, 8]


def test_the_end_is_saved_wherever_it_falls(bench) -> None:
    """G56, D40: a final checkpoint, also without periodic ones."""
    bench.run(bench.config(max_steps=5, checkpoint_every=0))
    assert bench.states().committed() == [5]


def test_an_altered_byte_falls_back_to_the_state_before_and_says_so(bench) -> None:
    """G63, D36: the state before is used, loudly, and leads to the same end."""
    whole = bench.run()
    flip(bench.state_file("state.json"), 40)
    continued = bench.run()
    warnings = [event.message for event in bench.events.of("warning")]
    assert len(warnings) == 1
    assert warnings[0].startswith("the training state of step 12 cannot be used: ")
    bench.same(whole, continued)


@pytest.mark.parametrize("file", ["__0_0.distcp", ".metadata", "state.json", "steps.jsonl", "index.json"])
def test_an_altered_byte_of_any_file_is_found(bench, file: str) -> None:
    """G63, D36."""
    bench.run(bench.config(max_steps=1))
    flip(bench.state_file(file), 40)
    with pytest.raises((IntegrityError, DataError, NotFoundError), match=r"step-00000001.*"):
        bench.trainer().load_checkpoint(bench.states())


def test_nothing_altered_is_ever_unpickled(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """G63, D36: the reader of torch is not even called."""
    bench.run(bench.config(max_steps=4))
    flip(bench.state_file(".metadata"))
    monkeypatch.setattr("pickle.load", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(IntegrityError, match="altered"):
        bench.trainer().load_checkpoint(bench.states())


def test_when_no_state_can_be_read_training_does_not_start_anew(bench) -> None:
    """G55, D36: everything that was trained would be lost without a word."""
    bench.run()
    for step in bench.states().committed():
        flip(bench.state_file("state.json", step), 1)
    with pytest.raises(IntegrityError, match="step-00000012"):
        bench.run()
    assert len(bench.events.of("warning")) == 2


def test_a_state_of_another_model_is_refused_in_one_line(bench) -> None:
    """G63: the state does not fit, and is not half loaded."""
    bench.run(bench.config(max_steps=4))
    for other in (bench.config({"hidden_dim": 16}, max_steps=4), bench.config(max_steps=4, link_head="mlp")):
        with pytest.raises(DataError, match="does not fit this model") as caught:
            bench.trainer(other).load_checkpoint(bench.states())
        assert "\n" not in str(caught.value)


def test_a_state_under_another_step_is_refused(bench) -> None:
    bench.run(bench.config(max_steps=4))
    states = bench.folder / "run" / "states"
    shutil.copytree(states / "step-00000004", states / "step-00000009")
    trainer = bench.trainer()
    trainer.load_checkpoint(bench.states())
    assert trainer.step == 4
    assert "holds the state of step 4" in bench.events.of("warning")[0].message


def test_a_damaged_state_file_is_one_clear_sentence(bench, tmp_path: Path) -> None:
    """G63: with matching digests but a state that is none."""
    bench.run(bench.config(max_steps=4))
    states = bench.states()
    index, _ = states.index(4)
    path = tmp_path / "state.json"
    path.write_text(json.dumps({**json.loads(bench.state_file("state.json").read_text()), "step": "four"}))
    others = [file for file in index.files if not file.path.endswith("state.json")]
    states.commit(4, [*others, states.put(4, "other/state.json", path)])
    with pytest.raises(DataError, match="no training state of this version of Hopline: step"):
        bench.trainer().load_checkpoint(states)


def full_disk(monkeypatch: pytest.MonkeyPatch, *, until: int = 10**9) -> None:
    """Let no file of a training state be stored, for the first ``until`` tries."""
    original, tries = FileStore.put_file, 0

    def put_file(self: FileStore, key: str, path: Path, **options: Any) -> None:
        nonlocal tries
        tries += key.startswith("states/")
        if key.startswith("states/") and tries <= until:
            with os_errors("write", key):
                raise OSError(28, "No space left on device")
        original(self, key, path, **options)

    monkeypatch.setattr(FileStore, "put_file", put_file)


def test_a_full_disk_at_the_end_is_an_error_and_leaves_the_last_state_whole(
    bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D35: a failed save destroys nothing."""
    config = bench.config(max_steps=8)
    bench.run(bench.config(max_steps=4))
    before = bench.resumed(config)
    full_disk(monkeypatch)
    with pytest.raises(StoreError, match="the disk is full"):
        bench.run(config)
    monkeypatch.undo()
    assert bench.states().committed() == [4]
    bench.same(before, bench.resumed(config))
    bench.run(config)
    assert bench.states().committed() == [4, 8]


def test_a_disk_that_is_full_for_a_while_costs_a_warning(bench, undisturbed, monkeypatch: pytest.MonkeyPatch) -> None:
    """D35: training goes on, the state before stays, and the next save finds room."""
    full_disk(monkeypatch, until=1)
    trainer = bench.run()
    (warning,) = bench.events.of("warning")
    assert warning.message.startswith("the training state of step 4 could not be saved; the one before stays: ")
    assert "the disk is full" in warning.message
    assert bench.states().committed() == [8, 12]
    bench.same(undisturbed.trainer, trainer)


def test_a_disk_that_fills_while_tensors_are_written_is_an_error_too(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """D35: torch reports it beside all other exceptions; it must not pass the handlers of errors by."""
    trainer = bench.trainer()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.distributed.checkpoint.filesystem.FileSystemWriter.write_data", full)
    with pytest.raises(StoreError, match="the disk is full"):
        trainer.save_checkpoint(bench.states())
    assert bench.states().committed() == []


@pytest.fixture(scope="module")
def killed(dataset_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trainings that were killed, each in a folder with the name of the place."""
    folder = tmp_path_factory.mktemp("killed")
    script = Path(__file__).with_name("killed_training.py")
    command = [sys.executable, str(script), str(dataset_folder), str(folder), *PLACES]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder


PLACES = ["step", "evaluation", "candidate", "write", "commit", "retention"]


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_run_ends_as_an_undisturbed_one(killed: Path, undisturbed, dataset, place: str) -> None:
    """G54, G55, D32, D33, D35: kill -9 during a step, an evaluation, the writing of a candidate, of a state, its commit,
    and the removal of an old one."""
    bench = Bench(dataset, killed / place)
    left = bench.states().committed()
    assert left
    assert left[-1] < 12 or place == "retention"
    continued = bench.run()
    bench.same(undisturbed.trainer, continued)
    assert bench.states().committed()[-2:] == undisturbed.states
    assert bench.candidates(bench.config()).steps() == undisturbed.candidates
    assert not bench.events.of("warning")
