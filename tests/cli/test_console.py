"""What a person at a terminal sees of a stage that works."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.console import Console

from hopline.cli.console import ProgressDisplay, terminal_sink
from hopline.progress import Event, JsonLinesSink


def draw(*events: Event) -> str:
    """What stands on a terminal after some events."""
    console = Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None, legacy_windows=False)
    with ProgressDisplay(console) as display:
        for event in events:
            display.emit(event)
    assert isinstance(console.file, io.StringIO)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", console.file.getvalue()).splitlines()
    return "\n".join(line for line in lines if line)


def test_training_shows_step_loss_score_and_speed() -> None:
    text = draw(
        Event("train", "start", "run abc"),
        Event(
            "train",
            "progress",
            step=3,
            total=9,
            values={"loss": 1.23456, "learning_rate": 0.002, "examples_per_second": 12345.6},
        ),
        Event("train", "progress", step=3, total=9, values={"score": 0.5, "loss": None}),
    )
    last = text.splitlines()[-1]
    for shown in ("train", "3/9", "loss 1.23", "lr 0.002", "ex/s 12,346", "score 0.5"):
        assert shown in last, last


def test_a_stage_that_is_done_is_full_and_says_its_message() -> None:
    text = draw(Event("generate", "progress", "valid 3/4", step=3, total=4), Event("generate", "done", "dataset abc"))
    last = text.splitlines()[-1]
    assert "4/4" in last
    assert "dataset abc" in last


def test_a_reused_stage_is_full_too() -> None:
    assert "1/1" in draw(Event("train", "start", "run abc"), Event("train", "done", "reused run abc")).splitlines()[-1]


def test_notes_and_warnings_stay_above_the_bars_as_they_are() -> None:
    text = draw(Event("train", "note", "continues [bold]from[/] step 3"), Event("train", "warning", "skipped [step] 4"))
    assert "train: continues [bold]from[/] step 3" in text
    assert "train: skipped [step] 4" in text


def test_every_stage_has_its_bar() -> None:
    lines = draw(Event("generate", "start"), Event("train", "start"), Event("generate", "done", "x")).splitlines()
    assert {line.split()[1] for line in lines} == {"generate", "train"}


def test_a_stage_without_figures_shows_its_message() -> None:
    assert "valid 3/4" in draw(Event("evaluate", "progress", "valid 3/4", step=3, total=4)).splitlines()[-1]


def test_where_nobody_looks_there_are_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with terminal_sink() as sink:
        assert isinstance(sink, JsonLinesSink)


def test_at_a_terminal_there_is_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with terminal_sink() as sink:
        assert isinstance(sink, ProgressDisplay)
        sink.emit(Event("train", "note", "a note"))
    assert "a note" in sys.stderr.getvalue()  # type: ignore[attr-defined]
