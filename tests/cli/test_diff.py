"""``hopline diff``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stages.conftest import Finished
from tests.stages.workbench import chain, hopline, stage


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, finished: Finished) -> str:
    """The same config from an empty root, once more."""
    folder = tmp_path_factory.mktemp("second")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPLINE_CACHE", str(folder / "cache"))
        patch.setenv("HOPLINE_GIT_COMMIT", "0" * 40)
        return chain(folder / "root")["publish"]["manifest_uri"]


def test_the_same_config_twice_differs_in_facts_of_the_run_alone(finished: Finished, second: str) -> None:
    """Dataset, weights, metrics, report: every digest is the same."""
    first = finished.results["publish"]["manifest_uri"]
    assert first != second
    done = hopline("diff", first, second, "--json")
    assert done.code == 0
    record = done.result
    assert (record["equal"], record["equal_but_for_run_facts"]) == (False, True)
    found = {item["path"] for item in record["differences"]}
    assert {"training.attempts[0].started", "training.attempts[0].ended", "evaluation.chosen.uri"} <= found
    shown = hopline("diff", first, second)
    assert shown.code == 0
    assert shown.stdout.endswith("They are equal but for facts of the run.\n")
    assert "They differ in:" not in shown.stdout
    for path in found:
        assert f"  {path}  (" in shown.stdout


def test_a_manifest_is_equal_to_itself(finished: Finished) -> None:
    uri = finished.results["publish"]["manifest_uri"]
    done = hopline("diff", uri, uri.removeprefix("file://").removesuffix("manifest.json"))
    assert done.code == 0
    assert done.stdout.splitlines()[-1] == "They are equal."
    assert hopline("diff", uri, uri, "--json").result["differences"] == []


def test_another_setting_is_found_and_ends_with_one(finished: Finished, root: Path) -> None:
    first = finished.results["publish"]["manifest_uri"]
    second = stage("publish", root, "publish.gate.allowed_regression={overall.score: 0.01}").result["manifest_uri"]
    done = hopline("diff", first, second)
    assert done.code == 1
    assert "They differ in:\n" in done.stdout
    assert (
        "  config.resolved.publish.gate.allowed_regression.overall.score\n    A  absent\n    B  0.01\n" in done.stdout
    )
    record = json.loads(hopline("diff", first, second, "--json").stdout)
    assert record["equal_but_for_run_facts"] is False
    assert {"config.config_hash", "config.sections.publish"} <= {item["path"] for item in record["differences"]}
    # Two long values that are equal for longer than a line still show where they part.
    for line in done.stdout.splitlines():
        assert len(line) < 100
        assert line.isprintable()
    pairs = [line for line in done.stdout.splitlines() if line.startswith(("    A  ", "    B  "))]
    assert all(a[6:] != b[6:] for a, b in zip(pairs[::2], pairs[1::2], strict=True))


def test_what_cannot_be_read_is_one_line(finished: Finished, tmp_path: Path) -> None:
    uri = finished.results["publish"]["manifest_uri"]
    assert "gone" in hopline("diff", uri, tmp_path / "gone").error
    (tmp_path / "manifest.json").write_text("{}")
    assert "is no manifest of Hopline" in hopline("diff", tmp_path, uri).error
