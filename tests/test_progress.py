"""Events and their sinks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hopline.progress import EVENTS_VARIABLE, Event, JsonLinesSink, event_from_json, side_file_sink


def test_an_event_survives_its_line() -> None:
    event = Event("train", "progress", "so far", step=3, total=9, values={"loss": 0.5, "score": None}, time=12.5)
    assert event_from_json(event.to_json()) == event
    assert "\n" not in event.to_json()


def test_half_a_line_is_refused() -> None:
    with pytest.raises(ValueError):
        event_from_json(Event("train", "note", "x").to_json()[:-3])


def test_values_never_hide_the_event_itself() -> None:
    event = event_from_json(Event("train", "note", values={"kind": "error", "time": 0}, time=1.0).to_json())
    assert (event.kind, event.time) == ("note", 1.0)


def test_side_file_takes_events_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EVENTS_VARIABLE, raising=False)
    with side_file_sink() as sink:
        assert sink is None
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(EVENTS_VARIABLE, str(path))
    stream = io.StringIO()
    with side_file_sink() as sink:
        assert sink is not None
        for each in (sink, JsonLinesSink(stream)):
            each.emit(Event("generate", "done", time=1.0))
        assert path.read_text() == stream.getvalue() == Event("generate", "done", time=1.0).to_json() + "\n"
