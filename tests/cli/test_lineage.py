"""``hopline lineage``."""

from __future__ import annotations

from pathlib import Path

from tests.stages.conftest import Finished
from tests.stages.workbench import hopline


def test_a_tree_from_source_to_champion(finished: Finished) -> None:
    done = hopline("lineage", finished.results["publish"]["manifest_uri"])
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"tiny {finished.results['publish']['manifest_hash']}"
    depth = {line.strip("│├└─ \u00a0"): len(line) - len(line.lstrip("│├└─ \u00a0")) for line in lines}
    headings = ["Source", "Dataset", "Attempts", "Candidates", "Choice", "Version", "Champion"]
    assert [depth[heading] for heading in headings] == sorted({depth[heading] for heading in headings})
    assert sum("* step" in line for line in lines) == 1
    assert "Missing" not in done.stdout


def test_what_is_missing_is_listed(root: Path) -> None:
    (shard,) = root.glob("datasets/*/train-00000.arrow")
    shard.unlink()
    (manifest,) = root.glob("models/tiny/*/manifest.json")
    shown = hopline("lineage", manifest).stdout
    assert "Missing or not known" in shown
    assert f"{shard.as_uri()} is missing" in shown
    found = hopline("lineage", manifest, "--json").result
    assert found["lost"] == ["dataset"]


def test_json_is_one_object(finished: Finished) -> None:
    found = hopline("lineage", finished.results["publish"]["manifest_uri"], "--json").result
    assert set(found) == {"name", "version", "uri", "root", "nodes", "edges", "lost"}
    ids = {node["id"] for node in found["nodes"]}
    assert all({edge["source"], edge["target"]} <= ids for edge in found["edges"])


def test_a_page_beside_the_tree(finished: Finished, tmp_path: Path) -> None:
    page = tmp_path / "lineage.html"
    done = hopline("lineage", finished.results["publish"]["manifest_uri"], "--html", page)
    assert done.stderr == f"{page}: written\n"
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert "Champion" in done.stdout


def test_mistakes_are_one_line(finished: Finished, tmp_path: Path) -> None:
    assert "there is no such folder" in hopline("lineage", tmp_path / "none").error
    uri = finished.results["publish"]["manifest_uri"]
    assert "cannot be written" in hopline("lineage", uri, "--html", tmp_path / "no" / "page.html").error
