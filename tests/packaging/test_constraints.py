"""constraints.txt pins what pyproject.toml asks for."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    entries = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {normal(name): Version(version) for name, version in entries}


def normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def test_every_requirement_is_pinned_to_a_version_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    found = pins()
    for requirement in map(Requirement, texts):
        version = found.get(normal(requirement.name))
        assert version is not None, f"{requirement.name} is not pinned: make constraints"
        assert requirement.specifier.contains(version), f"{requirement} excludes the pin {version}"


def test_no_pin_names_a_build() -> None:
    """2.13.0+cpu would shut out every machine whose index has another build."""
    assert [f"{name}=={version}" for name, version in pins().items() if version.local] == []


def test_torch_is_the_release_that_was_tested() -> None:
    assert pins()["torch"] == Version("2.13.0")
