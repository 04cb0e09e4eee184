"""What a user gets who installs the wheel alone, away from the repository."""

from __future__ import annotations

import configparser
import email
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The wheel's files; none of them needs a step at installation."""
    folder = wheel.parent / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def hopline(installed: Path, *arguments: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command from the wheel: -S keeps out the editable install, which would bring the repository along."""
    code = (
        f"import sys; sys.path[:0] = [{str(installed)!r}, {sysconfig.get_path('purelib')!r}]\n"
        f"{first}\nfrom hopline.cli import main; main({list(arguments)!r})"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd=installed.parent,
        env={"PATH": os.environ["PATH"], "HOME": str(installed.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_it_holds_the_library_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "hopline/py.typed" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"hopline"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


def test_everything_in_the_source_is_in_it(wheel: Path) -> None:
    """Templates and style sheets are easily left out."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert {path.relative_to(ROOT / "src").as_posix() for path in files} <= names


def test_its_metadata_names_command_license_and_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = next(name for name in archive.namelist() if name.endswith("METADATA")).rpartition("/")[0]
        metadata = email.message_from_string(archive.read(f"{folder}/METADATA").decode())
        entries = configparser.ConfigParser()
        entries.read_string(archive.read(f"{folder}/entry_points.txt").decode())
    assert entries["console_scripts"]["hopline"] == "hopline.cli:main"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {"pipelines", "cluster"} <= set(metadata.get_all("Provides-Extra", []))
    core = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert not [r for r in core if r.startswith(("kfp", "kubernetes"))]


def test_help_lists_the_commands_without_loading_torch_or_kfp(installed: Path) -> None:
    loaded_at_exit = "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    spy = f"import atexit, json; atexit.register(lambda: {loaded_at_exit})"
    done = hopline(installed, "--help", first=spy)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "click" in loaded
    assert loaded.isdisjoint({"torch", "kfp", "numpy", "pyarrow", "boto3", "kubernetes"})
    for command in ("run", "generate", "train", "evaluate", "publish", "verify", "predict", "compile", "config"):
        assert f"  {command} " in done.stdout


@pytest.mark.parametrize("command", ["run", "compile"])
def test_a_command_of_the_repository_says_so_in_one_sentence(installed: Path, command: str) -> None:
    done = hopline(installed, command, "-c", "x.yaml")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"'hopline {command}' needs the Hopline repository" in done.stderr


def test_other_commands_work_from_the_wheel_alone(installed: Path) -> None:
    done = hopline(installed, "version", "--json")
    assert done.returncode == 0, done.stderr
    assert "hopline" in json.loads(done.stdout)


def test_jobs_are_rendered_and_checked_from_the_wheel_alone(installed: Path) -> None:
    """The manifest that jobs start from, and the types that manifests are checked against, come along."""
    config, job = installed.parent / "job-config.yaml", installed.parent / "job.yaml"
    config.write_text("name: m\ncluster: {backend: pytorchjob, image: 'registry.example/train:1.0'}\n")
    made = hopline(installed, "render", "pytorchjob", "-c", str(config), "--root", "s3://b/r", "-o", str(job))
    assert (made.returncode, made.stderr) == (0, "")
    checked = hopline(installed, "validate", str(job))
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.startswith(f"OK           {job}: PyTorchJob hopline-m-")
    shipped = installed / "hopline" / "cluster" / "pytorchjob.yaml"
    assert shipped.read_bytes() == (ROOT / "manifests" / "base" / "pytorchjob.yaml").read_bytes()
