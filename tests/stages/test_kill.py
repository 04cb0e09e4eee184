"""kill -9 at any moment of any stage, then the same command: it ends as if nothing had happened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stages.conftest import Finished
from tests.stages.workbench import STAGES, Done, Forks, chain, content, manifest, options, stage, tree

KILLED = -9


@pytest.fixture(scope="session")
def changes(forks: Forks, finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often each stage changes the file system; in other processes it comes to the same results, too."""
    folder = tmp_path_factory.mktemp("counted")
    done: dict[str, Done] = {}
    for name in STAGES:
        done[name] = forks(name, *options(folder / "root"), environment={"HOPLINE_CACHE": str(folder / "cache")})
    for name in STAGES[:3]:
        assert content(done[name].result, folder / "root") == content(finished.results[name], finished.root)
    return {name: done[name].calls for name in STAGES}


@pytest.fixture
def before(finished: Finished, tmp_path: Path) -> Callable[[str], Path]:
    """A root in which the stages before a given one have run."""

    def copy(name: str) -> Path:
        root = tmp_path / "root"
        root.mkdir()
        wanted = {"generate": [], "train": ["datasets"], "evaluate": ["datasets", "runs"]}.get(
            name, ["datasets", "runs"]
        )
        for folder in wanted:
            shutil.copytree(finished.root / folder, root / folder)
        for earlier in STAGES[: STAGES.index(name)]:
            shutil.copytree(finished.root / "requests" / earlier, root / "requests" / earlier)
        if name == "evaluate":
            for evaluations in root.glob("runs/*/evaluations"):
                shutil.rmtree(evaluations)
        return root

    return copy


def visible(root: Path) -> dict[str, str]:
    """The files that count: not the temporary ones that a killed process leaves, nor what tells of attempts and times."""
    return {
        path: digest
        for path, digest in tree(root).items()
        if "/.tmp-" not in path
        and not path.startswith(("requests/", "models/"))
        and not path.endswith("run.json")
        and not any(part in path for part in ("/attempts/", "/checkpoints/", "/health/"))
    }


def assert_as_undisturbed(root: Path, finished: Finished) -> dict[str, dict[str, Any]]:
    results = chain(root)
    for name in STAGES[:3]:
        assert content(results[name], root) == content(finished.results[name], finished.root)
    assert visible(root) == visible(finished.root)
    assert manifest(results["publish"], root) == manifest(finished.results["publish"], finished.root)
    assert results["publish"]["champion"] is True
    assert len(list(root.glob("models/tiny/*/manifest.json"))) == 1, "one version, however often it was begun"
    return results


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("generate", 0.2),
        ("generate", 0.6),
        ("generate", 0.9),
        ("train", 0.05),
        ("train", 0.3),
        ("train", 0.6),
        ("train", 0.95),
        ("evaluate", 0.4),
        ("evaluate", 0.9),
        ("publish", 0.2),
        ("publish", 0.5),
        ("publish", 0.75),
        ("publish", 0.95),
    ],
)
def test_a_killed_stage_is_made_whole_by_the_same_command(
    finished: Finished,
    forks: Forks,
    changes: dict[str, int],
    before: Callable[[str], Path],
    name: str,
    share: float,
) -> None:
    root = before(name)
    killed = forks(name, *options(root), kill_at=max(1, round(share * changes[name])))
    assert killed.code == KILLED, killed.stderr
    assert killed.stdout == ""
    if not list(root.glob(f"requests/{name}/*.json")) and name != "publish":
        after = STAGES[STAGES.index(name) + 1]
        assert f"`hopline {name} " in stage(after, root).error, "what was begun is not taken for whole"
    assert_as_undisturbed(root, finished)


def test_training_that_was_killed_between_checkpoints_continues(
    finished: Finished, forks: Forks, before: Callable[[str], Path]
) -> None:
    """G57, D32, and every attempt is recorded. The state of step 4 is written beside the steps that follow it."""
    root = before("train")
    assert forks("train", *options(root), kill_after='"step": 6, "total": 6, "loss"').code == KILLED
    done = stage("train", root)
    assert content(done.result, root) == content(finished.results["train"], finished.root)
    notes = [event["message"] for event in done.events if event["kind"] == "note"]
    (first,) = [step for step in (2, 4) if f"continues from step {step}" in notes]
    attempts = [json.loads(path.read_text()) for path in sorted(root.glob("runs/*/attempts/*.json"))]
    assert [(one["first_step"], one["last_step"], one["ended"] is None) for one in attempts] == [
        (0, None, True),
        (first, 6, False),
    ]
    assert attempts[0]["resumed_from"] is None
    assert len(attempts[1]["resumed_from"]) == 64
    assert_as_undisturbed(root, finished)


def test_a_stage_that_is_killed_again_and_again_gets_there(
    finished: Finished, forks: Forks, changes: dict[str, int], before: Callable[[str], Path]
) -> None:
    root = before("train")
    kills = 0
    while forks("train", *options(root), kill_at=changes["train"] // 3).code == KILLED:
        kills += 1
        assert kills < 12  # how far an attempt gets depends on which of its threads writes first
    assert kills >= 2
    attempts = [json.loads(path.read_text()) for path in sorted(root.glob("runs/*/attempts/*.json"))]
    assert [one["ended"] is None for one in attempts] == [True] * kills + [False]
    assert_as_undisturbed(root, finished)


def test_a_killed_publisher_moves_no_champion_and_leaves_no_version(
    forks: Forks, changes: dict[str, int], before: Callable[[str], Path]
) -> None:
    root = before("publish")
    assert forks("publish", *options(root), kill_at=changes["publish"] // 2).code == KILLED
    assert not (root / "models/tiny/champion.json").exists()
    assert list(root.glob("models/tiny/*/manifest.json")) == []
