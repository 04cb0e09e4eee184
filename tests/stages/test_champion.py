"""Which version is the champion after a publication, and why."""

from __future__ import annotations

import json
from pathlib import Path

from tests.stages.conftest import Finished
from tests.stages.workbench import chain, hopline, reused, stage


def pointer(root: Path) -> dict:
    """What the champion pointer says."""
    return json.loads((root / "models/tiny/champion.json").read_text())


def test_the_first_version_is_the_champion(finished: Finished) -> None:
    assert pointer(finished.root)["manifest_hash"] == finished.results["publish"]["manifest_hash"]


def test_a_version_that_the_gate_refuses_is_published_and_the_champion_stays(finished: Finished, root: Path) -> None:
    before = (root / "models/tiny/champion.json").read_bytes()
    results = chain(root, "training.learning_rate=0.0001", "publish.gate.minimum={overall.score: 0.999}")
    published = results["publish"]
    assert reused(results) == [True, False, False, False]
    assert published["champion"] is False
    assert any("overall.score" in reason and "0.999" in reason for reason in published["reasons"]), published
    assert (root / "models/tiny/champion.json").read_bytes() == before
    assert hopline("verify", published["manifest_uri"]).code == 0
    again = stage(
        "publish", root, "training.learning_rate=0.0001", "publish.gate.minimum={overall.score: 0.999}"
    ).result
    assert again == {**published, "reused": True}


def test_another_gate_decides_again_without_training(finished: Finished, root: Path) -> None:
    refused = chain(root, "publish.gate.minimum={overall.score: 0.999}")
    assert reused(refused) == [True, True, True, False]
    assert refused["publish"]["champion"] is False
    passed = chain(root, "publish.gate.allowed_regression={overall.score: 0.01}")
    assert reused(passed) == [True, True, True, False]
    assert passed["publish"]["champion"] is True
    now = pointer(root)
    assert now["manifest_hash"] == passed["publish"]["manifest_hash"]
    assert now["previous_version"] == finished.results["publish"]["manifest_hash"]
    assert hopline("verify", passed["publish"]["manifest_uri"]).code == 0


def test_to_publish_an_older_version_again_makes_it_the_champion_again(finished: Finished, root: Path) -> None:
    other = stage("publish", root, "publish.gate.allowed_regression={overall.score: 0.01}").result
    assert pointer(root)["manifest_hash"] == other["manifest_hash"]
    back = stage("publish", root).result
    assert back["reused"] is True
    assert back["champion"] is True
    assert pointer(root)["manifest_hash"] == finished.results["publish"]["manifest_hash"]


def test_a_metric_that_the_gate_names_and_nobody_measured_refuses(root: Path) -> None:
    published = stage("publish", root, "publish.gate.minimum={link.mrrr: 0.1}").result
    assert published["champion"] is False
    assert any("link.mrrr" in reason for reason in published["reasons"])
