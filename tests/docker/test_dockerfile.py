"""What can be said of the images without building them."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from components.images import Images
from pipelines.resources import GROUP, USER

ROOT = Path(__file__).parents[2]
STAGES = [field.name for field in fields(Images)]


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile as (name, arguments), continuation lines joined, comments left out."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines()) if name]


def targets() -> dict[str, list[tuple[str, str]]]:
    """Target -> its own instructions, those of the targets it is made from first."""
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for name, rest in instructions():
        if name == "FROM":
            base, _, target = rest.partition(" AS ")
            current = found[target] = list(found.get(base, []))
        else:
            current.append((name, rest))
    return found


def test_there_is_a_target_for_every_stage() -> None:
    assert set(STAGES) <= set(targets())


def test_the_makefile_builds_every_stage() -> None:
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("STAGES :="))
    assert line.split()[2:] == STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_an_image_ends_as_the_user_that_the_pipeline_asks_for(stage: str) -> None:
    users = [rest for name, rest in targets()[stage] if name == "USER"]
    assert users[-1] == f"{USER}:{GROUP}"


@pytest.mark.parametrize("stage", STAGES)
def test_an_image_has_no_entry_point(stage: str) -> None:
    """KFP gives the whole command line, and locally as the command alone."""
    assert "ENTRYPOINT" not in {name for name, _ in targets()[stage]}


@pytest.mark.parametrize("stage", STAGES)
def test_an_image_tells_its_commit(stage: str) -> None:
    environment = " ".join(rest for name, rest in targets()[stage] if name == "ENV")
    labels = " ".join(rest for name, rest in targets()[stage] if name == "LABEL")
    assert "HOPLINE_GIT_COMMIT=${GIT_COMMIT}" in environment
    assert 'org.opencontainers.image.revision="${GIT_COMMIT}"' in labels
    assert f'org.opencontainers.image.title="hopline {stage}"' in labels


def test_no_compiler_and_no_package_manager_is_installed() -> None:
    text = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert not re.search(r"\b(apt|apt-get|apk|gcc|g\+\+|build-essential|curl|wget)\b", text)


def test_kfp_comes_without_its_dependencies() -> None:
    commands = [
        c for name, rest in instructions() if name == "RUN" for c in rest.split("&&") if c.rstrip().endswith(" kfp")
    ]
    assert len(commands) == 2  # with the libraries of the models, and with those of the datasets
    for command in commands:
        assert "--no-deps" in command
        assert "-c constraints.txt" in command


def test_every_install_is_pinned_or_our_own() -> None:
    """An install takes the constraints, or a wheel that an earlier step made under them."""
    for name, rest in instructions():
        for command in rest.split("&&") if name == "RUN" else []:
            if re.search(r"\bpip\b.*\b(install|wheel)\b", command):
                assert "-c constraints.txt" in command or "--no-deps" in command, command


def test_what_is_copied_is_in_the_context() -> None:
    """Docker leaves out what the ignore file names; COPY of such a path fails only when it is built."""
    lines = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert any(fnmatch.fnmatch(source, rule) for rule in kept), source
                assert (ROOT / source).exists(), source


def test_the_base_has_the_python_that_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = next(rest for name, rest in instructions() if name == "ARG" and rest.startswith("BASE_IMAGE="))
    found = re.search(r"python:(\d+\.\d+)-", base)
    assert found
    assert project["requires-python"] == f">={found[1]}"


def test_the_dataset_stage_works_with_the_libraries_of_its_image(tmp_path: Path) -> None:
    left_out = re.search(r"grep -vE '\^\(([a-z0-9|]+)\)", (ROOT / "docker" / "Dockerfile").read_text())
    assert left_out
    code = f"""
import sys

class NotInTheImage:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {left_out[1].split("|")!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NotInTheImage())
from hopline.cli import main
main(["generate", "-c", {str(ROOT / "tests" / "pipelines" / "tiny.yaml")!r}, "--root", {str(tmp_path / "root")!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "root" / "datasets").iterdir())
