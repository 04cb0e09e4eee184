from __future__ import annotations

import io
from pathlib import Path

from hopline.progress import Event
from pipelines.progress import EventTail, PlainLines


def line(event: Event) -> bytes:
    return (event.to_json() + "\n").encode()


def test_tail_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events"
    tail = EventTail(path)
    assert tail.read() == []
    first, second = Event("train", "start", "é"), Event("train", "done")
    half = line(second)
    path.write_bytes(line(first) + half[:9])
    assert [(e.kind, e.message) for e in tail.read()] == [("start", "é")]
    assert tail.read() == []
    with path.open("ab") as stream:
        stream.write(half[9:])
    assert [e.kind for e in tail.read()] == ["done"]


def test_tail_passes_over_what_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"Killed\n[1]\n{}\n\xff\xfe\n" + line(Event("train", "done")))
    assert [e.kind for e in EventTail(path).read()] == ["done"]


def test_plain_lines_say_the_figures_and_thin_the_progress_out() -> None:
    stream = io.StringIO()
    sink = PlainLines(stream, every=2.0)
    for step, moment in ((1, 10.0), (2, 11.0), (3, 12.5), (4, 12.6)):
        sink.emit(Event("train", "progress", "", step, 4, {"loss": 0.5, "examples_per_second": 1234.0}, moment))
    sink.emit(Event("evaluate", "progress", "", 1, 2, time=12.7))
    sink.emit(Event("train", "warning", "slow disk"))
    sink.emit(Event("train", "error", "told once, at the end"))
    assert stream.getvalue().splitlines() == [
        "train: 1/4 loss 0.5 examples/s 1,234",
        "train: 3/4 loss 0.5 examples/s 1,234",
        "train: 4/4 loss 0.5 examples/s 1,234",  # the last one is always said
        "evaluate: 1/2",
        "train: warning: slow disk",
    ]
