"""The command itself: help, what it imports, errors and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hopline.cli import main as entry
from hopline.cli.main import cli
from hopline.errors import ClaimError, ConfigError, HoplineError, TerminatedError, TrainingDivergedError
from tests.stages.workbench import CONFIG, hopline

COMMANDS = [
    "run",
    "generate",
    "train",
    "evaluate",
    "publish",
    "plan",
    "verify",
    "lineage",
    "champion",
    "keygen",
    "diff",
    "predict",
    "runs",
    "model",
    "import-checkpoint",
    "compile",
    "render",
    "validate",
    "config",
    "dataset",
    "version",
]
HEAVY = ("torch", "kfp", "boto3", "kubernetes", "pyarrow", "matplotlib", "kfp_kubernetes")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["config", "show", "-c", str(CONFIG)], ["config", "schema"], ["version"], ["train", "--help"]],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import json, sys\n"
        "from hopline.cli import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as done:\n"
        "    assert not done.code, done.code\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout
    assert set(HEAVY) & set(json.loads(done.stderr)) == set()


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command(flag: str) -> None:
    done = hopline(flag)
    assert done.code == 0
    listed = done.stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed if not line.startswith("   ")] == COMMANDS
    assert done.stderr == ""


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in {"run", "compile"}])
def test_every_command_has_help(name: str) -> None:
    done = hopline(name, "--help")
    assert done.code == 0
    assert done.stdout.startswith(f"Usage: hopline {name} ")


def test_a_command_that_is_none() -> None:
    done = hopline("trane")
    assert done.code == 2
    assert "No such command 'trane'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["generate", "train", "evaluate", "publish"])
def test_a_stage_needs_a_config(name: str) -> None:
    done = hopline(name)
    assert done.code == 2
    assert "--config" in done.stderr.splitlines()[-1]
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HoplineError("it is wrong"), 2),
        (ConfigError("it is wrong"), 2),
        (ClaimError("it is wrong"), 1),
        (TrainingDivergedError("it is wrong"), 3),
        (TerminatedError("it is wrong"), 143),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_code_and_the_line_of_an_error(error: HoplineError, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: click.Command("fail", callback=fail))
    done = hopline("fail")
    assert (done.code, done.stdout, done.stderr) == (code, "", "hopline: it is wrong\n")
    shown = hopline("--debug", "fail")
    assert shown.code == code
    assert shown.stderr.startswith("Traceback ")
    assert shown.stderr.endswith("hopline: it is wrong\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()], ids=repr)
def test_an_interrupt_is_130(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: click.Command("fail", callback=fail))
    done = hopline("fail")
    assert done.code == 130
    assert done.stderr.strip() == "hopline: interrupted"


def test_an_error_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: click.Command("fail", callback=fail))
    with pytest.raises(ZeroDivisionError):
        entry(["fail"])


def test_a_missing_module_of_ours_is_not_taken_for_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hopline.cli.predict", None)
    with pytest.raises(ModuleNotFoundError):
        entry(["predict", "--help"])


def test_a_missing_extra_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pipelines.cli", None)
    done = hopline("compile", "-o", "x.yaml")
    assert done.code == 2
    assert done.stderr.count("\n") == 1
    assert "needs the Hopline repository and its pipelines extra" in done.stderr


def test_the_module_runs_as_the_command_does(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("hopline")), "config", "validate", "-c", str(tmp_path / "none.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"hopline: {tmp_path / 'none.yaml'}: no such config file; see configs/ for examples\n"
