"""The stages as steps of a pipeline: the config as text, inputs by parameter, events and errors in the side file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hopline.config import Override, load_config
from hopline.errors import ConfigError, DataError, NotFoundError
from hopline.progress import EVENTS_VARIABLE, event_from_json
from hopline.stages import decode_config, encode_config, evaluate, publish, run_step, train
from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The side file of events."""
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(EVENTS_VARIABLE, str(path))
    return path


def inputs(finished: Finished, stage: str) -> dict[str, Any]:
    """What a stage gets from those before it."""
    made, run, chosen = (finished.results[name] for name in ("generate", "train", "evaluate"))
    found = {"dataset_uri": made["dataset_uri"], "dataset_hash": made["dataset_hash"]}
    if stage != "train":
        found |= {"run_uri": run["run_uri"], "run_hash": run["run_hash"]}
    if stage == "publish":
        found |= {name: chosen[name] for name in ("checkpoint_uri", "checkpoint_sha256", "report_uri")}
    return found


# The config as text


def test_a_config_survives_its_text() -> None:
    config = load_config(CONFIG, ["training.max_steps=9", "dataset.test_max_hops=null"])
    assert decode_config(encode_config(config)) == config
    assert encode_config(decode_config(encode_config(config))) == encode_config(config)
    assert config.overrides == (
        Override("training.max_steps", 9, "--set"),
        Override("dataset.test_max_hops", None, "--set"),
    )


@pytest.mark.parametrize("text", ["name: by-hand\nmodel: {layers: 3}\n", '{"name": "by-hand", "model": {"layers": 3}}'])
def test_people_may_give_a_bare_config(text: str) -> None:
    config = decode_config(text)
    assert (config.config.name, config.config.model.layers, config.overrides) == ("by-hand", 3, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{",
        '{"config": {"name": "x"}}',
        '{"config": {"name": "x"}, "source": "y", "overrides": [{"key": "a"}]}',
        '{"config": {"name": "x"}, "source": "y", "overrides": 3}',
        '{"config": 3, "source": "y", "overrides": []}',
        '{"config": {"name": "x", "modle": {}}, "source": "y", "overrides": []}',
    ],
)
def test_a_text_that_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_config(text)
    assert "\n" not in str(caught.value)


# A step


@pytest.mark.parametrize("stage", ["generate", "train", "evaluate", "publish"])
def test_a_step_gives_what_the_command_gives(finished: Finished, events: Path, stage: str) -> None:
    config = encode_config(load_config(CONFIG))
    given = {} if stage == "generate" else inputs(finished, stage)
    result = run_step(stage, config_json=config, root=finished.root.as_uri(), **given)
    assert result.model_dump(mode="json") == {**finished.results[stage], "reused": True}
    told = [event_from_json(line) for line in events.read_text().splitlines()]
    assert [event.kind for event in told if event.kind in {"start", "done"}] == ["start", "done"]
    assert {event.stage for event in told} == {stage}


def test_a_mistake_ends_the_step_with_its_code_and_stands_in_the_side_file(
    events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = encode_config(load_config(CONFIG, [f"dataset.source={tmp_path / 'none'}"]))
    with pytest.raises(SystemExit) as ended:
        run_step("generate", config_json=config, root=str(tmp_path / "root"))
    assert ended.value.code == 2
    error = event_from_json(events.read_text().splitlines()[-1])
    assert (error.stage, error.kind) == ("generate", "error")
    assert str(tmp_path / "none") in error.message
    assert error.values["exit_code"] == 2
    assert capsys.readouterr().out == ""


def test_without_a_side_file_the_events_go_to_stderr(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(EVENTS_VARIABLE, raising=False)
    run_step("generate", config_json=encode_config(load_config(CONFIG)), root=finished.root.as_uri())
    said = capsys.readouterr()
    assert said.out == ""
    assert [json.loads(line)["kind"] for line in said.err.splitlines()] == ["start", "done"]


# Inputs that do not belong together


def test_a_dataset_of_another_root(finished: Finished, tmp_path: Path) -> None:
    config = load_config(CONFIG)
    with pytest.raises(DataError, match="is not dataset"):
        train(config, root=str(tmp_path / "other"), **inputs(finished, "train"))


def test_a_dataset_that_is_not_there(root: Path) -> None:
    shutil.rmtree(root / "datasets")
    digest = "0" * 64
    with pytest.raises(NotFoundError, match=digest):
        train(
            load_config(CONFIG), root=str(root), dataset_uri=f"{root.as_uri()}/datasets/{digest}", dataset_hash=digest
        )


def test_a_run_that_is_not_there(finished: Finished) -> None:
    given = {**inputs(finished, "evaluate"), "run_hash": "0" * 64}
    with pytest.raises(NotFoundError):
        evaluate(load_config(CONFIG), root=finished.root.as_uri(), **given)


def test_a_run_on_another_dataset(finished: Finished) -> None:
    given = {**inputs(finished, "evaluate"), "dataset_hash": "0" * 64}
    with pytest.raises((DataError, NotFoundError)) as caught:
        evaluate(load_config(CONFIG), root=finished.root.as_uri(), **given)
    assert "0" * 64 in str(caught.value)


@pytest.mark.parametrize("name", ["run_hash", "checkpoint_sha256"])
def test_a_report_of_another_run_or_checkpoint(finished: Finished, name: str) -> None:
    given = {**inputs(finished, "publish"), name: "0" * 64}
    with pytest.raises(DataError, match=f"expected {'0' * 64}"):
        publish(load_config(CONFIG), root=finished.root.as_uri(), **given)


def test_a_report_of_another_root(finished: Finished) -> None:
    given = {**inputs(finished, "publish"), "report_uri": "file:///elsewhere/runs/a/evaluations/b/report.html"}
    with pytest.raises(DataError, match="is not under the root"):
        publish(load_config(CONFIG), root=finished.root.as_uri(), **given)
