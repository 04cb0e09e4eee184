"""One finished root for the session, copied for each test that changes it; a cache of its own for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.stages.workbench import Forks, chain

COMMIT = "0" * 40
"""The commit that the manifests name: that of the work tree may change while tests run."""


@dataclass(frozen=True)
class Finished:
    """A root in which all four stages have run."""

    root: Path
    results: dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The root of an undisturbed run. Not to be changed; ``root`` is a copy."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPLINE_CACHE", str(folder / "cache"))
        patch.setenv("HOPLINE_GIT_COMMIT", COMMIT)
        return Finished(folder / "root", chain(folder / "root"))


@pytest.fixture
def root(finished: Finished, tmp_path: Path) -> Path:
    """A copy of the finished root."""
    return Path(shutil.copytree(finished.root, tmp_path / "root"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOPLINE_GIT_COMMIT", COMMIT)
    monkeypatch.delenv("HOPLINE_ROOT", raising=False)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Commands in forked processes."""
    server = Forks()
    yield server
    server.close()
