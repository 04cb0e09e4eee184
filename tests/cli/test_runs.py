"""``hopline runs list | show``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from hopline.cli.main import cli
from tests.stages.conftest import Finished
from tests.stages.workbench import hopline


def test_list_prints_a_line_for_each_run(finished: Finished) -> None:
    done = hopline("runs", "list", "--root", finished.root)
    heads, line = done.stdout.splitlines()
    assert heads.split() == ["run", "model", "state", "step", "best", "score", "attempts", "started", "last", "seen"]
    run_hash = finished.results["train"]["run_hash"]
    assert line.split()[:6] == [run_hash[:12], "tiny", "finished", "6", "of", "6"]
    assert (done.code, done.stderr) == (0, "")


def test_list_as_json_is_one_object(finished: Finished) -> None:
    done = hopline("runs", "list", "--root", finished.root, "--json")
    assert done.stdout.count("\n") == 1
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["run_uri"], run["state"]) == (finished.results["train"]["run_uri"], "finished")


def test_list_of_nothing(tmp_path: Path) -> None:
    assert hopline("runs", "list", "--root", tmp_path).stdout == f"no runs in {tmp_path.as_uri()}\n"
    assert json.loads(hopline("runs", "list", "--root", tmp_path, "--json").stdout) == {"runs": []}


def test_a_terminal_gets_colours(finished: Finished) -> None:
    shown = CliRunner().invoke(cli, ["runs", "list", "--root", str(finished.root)], color=True).stdout
    assert "\x1b[32mfinished\x1b[0m" in shown
    assert "\x1b" not in hopline("runs", "list", "--root", finished.root).stdout


@pytest.mark.parametrize("columns", [60, 100, 300])
def test_show_draws_the_curves_within_the_terminal(
    columns: int, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = hopline("runs", "show", finished.results["train"]["run_uri"]).stdout
    plots = [line for line in shown.splitlines() if any("\u2800" < character <= "\u28ff" for character in line)]
    assert plots
    assert all(len(line) <= columns for line in plots)
    for title in (
        "loss: ",
        "score on valid: ",
        "gradient norm: ",
        "learning rate: ",
        "answer: ",
        "verification: ",
        "pair_margin: ",
    ):
        assert title in shown
    for words in ("state       finished: reached step 6", "examples a second", "candidate", "updates     6 applied"):
        assert words in shown


def test_a_picture_instead(finished: Finished, tmp_path: Path) -> None:
    picture = tmp_path / "run.png"
    arguments = ["runs", "show", finished.results["train"]["run_hash"][:10], "--root", str(finished.root)]
    done = hopline(*arguments, "--png", picture)
    first = picture.read_bytes()
    assert first.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(first) > 20_000
    assert not any("\u2800" <= character <= "\u28ff" for character in done.stdout)
    assert done.stderr == f"{picture}: written\n"
    hopline(*arguments, "--png", picture)
    assert picture.read_bytes() == first, "the same data give the same bytes"


def test_a_picture_that_cannot_be_written(finished: Finished, tmp_path: Path) -> None:
    uri = finished.results["train"]["run_uri"]
    assert "cannot be written" in hopline("runs", "show", uri, "--png", tmp_path / "no" / "run.png").error


def test_show_as_json(finished: Finished) -> None:
    view = hopline("runs", "show", finished.results["train"]["run_uri"], "--json").result
    assert set(view) == {"summary", "attempts", "candidates", "health", "counts", "curves"}
    assert view["curves"]["steps"] == [2, 4, 6]


def test_a_run_without_figures_is_shown(root: Path) -> None:
    (run,) = (root / "runs").iterdir()
    for name in ("checkpoints", "candidates", "health"):
        shutil.rmtree(run / name)
    for name in ("run.json", "steps.jsonl"):
        (run / name).unlink()
    shown = hopline("runs", "show", run.name, "--root", root)
    assert shown.code == 0
    assert "not known before the first candidate" in shown.stdout
    assert "loss" not in shown.stdout
    assert (shown.stdout.splitlines()[3], shown.stderr) == ("step        6", "")


def test_no_such_run(finished: Finished) -> None:
    error = hopline("runs", "show", "abcdef", "--root", finished.root).error
    assert "no such run; `hopline runs list --root" in error
