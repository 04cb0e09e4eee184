"""How the run ends, by what the steps' process left behind; the process itself is a stand-in here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hopline.config import ResolvedConfig, load_config
from hopline.progress import NullSink
from pipelines import local_run
from pipelines.local_run import StepCrashedError, StepFailedError, run_pipeline


@pytest.fixture
def resolved() -> ResolvedConfig:
    return load_config(Path(__file__).with_name("tiny.yaml"))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(local_run.tempfile, "tempdir", str(folder))
    return folder


def worker_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *statements: str) -> None:
    """Put a script in the place of the worker: python -m pipelines.local_worker ... becomes python SCRIPT ..."""
    script = tmp_path / "python"
    body = "\n".join(("import json, os, sys", "events = open(os.environ['HOPLINE_EVENTS'], 'a')", *statements))
    script.write_text(f"#!{sys.executable}\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setattr(local_run.sys, "executable", str(script))


def event(**fields: object) -> str:
    return f"print({json.dumps({'time': 1.0, **fields})!r}, file=events, flush=True)"


@pytest.mark.parametrize(("kind", "code"), [("DataError", 2), ("TrainingDivergedError", 3), ("SomethingNewError", 2)])
def test_a_typed_error_keeps_its_message_and_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, resolved: ResolvedConfig, temporary: Path, kind: str, code: int
) -> None:
    told = event(stage="train", kind="error", message="x: found 1, expected 2", type=kind, exit_code=code)
    worker_that(monkeypatch, tmp_path, told, "sys.exit(1)")
    with pytest.raises(StepFailedError, match=r"^x: found 1, expected 2$") as caught:
        run_pipeline(resolved, root=tmp_path.as_uri(), sink=NullSink())
    assert caught.value.exit_code == code
    assert list(temporary.iterdir()) == []


def test_a_defect_is_one_line_and_keeps_the_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, resolved: ResolvedConfig, temporary: Path
) -> None:
    told = event(stage="evaluate", kind="error", message="KeyError: 'a'\n  b", type="InternalError", exit_code=1)
    worker_that(monkeypatch, tmp_path, "print('the traceback', flush=True)", told, "sys.exit(1)")
    with pytest.raises(StepCrashedError, match=r"^evaluate: KeyError: 'a' b; its output is in ") as caught:
        run_pipeline(resolved, root=tmp_path.as_uri(), sink=NullSink())
    assert caught.value.exit_code == 1
    log = Path(str(caught.value).rpartition(" ")[2])
    assert log.is_relative_to(temporary)
    assert "the traceback" in log.read_text()


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (("raise ImportError('no x')",), "generate: ImportError: no x; "),
        ((event(stage="generate", kind="done"), "os.kill(os.getpid(), 9)"), "train: it ended without saying why"),
        ((event(stage="train", kind="progress", step=1), "sys.exit(0)"), "train: it ended without saying why"),
    ],
)
def test_an_end_without_a_word_names_the_stage_and_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    resolved: ResolvedConfig,
    statements: tuple[str, ...],
    expected: str,
) -> None:
    worker_that(monkeypatch, tmp_path, *statements)
    with pytest.raises(StepCrashedError) as caught:
        run_pipeline(resolved, root=tmp_path.as_uri(), sink=NullSink())
    assert str(caught.value).startswith(expected)
