"""The chain from source files to champion, as the store tells it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hopline.errors import DataError, NotFoundError
from hopline.report.lineage_data import LINEAGE_KINDS, LineageGraph
from hopline.stages.lineage_view import view_lineage
from hopline.storage import open_store, sha256_file
from tests.stages.conftest import Finished
from tests.stages.workbench import flip, stage


def states(graph: LineageGraph) -> dict[str, str]:
    return {node.id: node.state for node in graph.nodes}


def version(root: Path) -> Path:
    (manifest,) = root.glob("models/tiny/*/manifest.json")
    return manifest.parent


def test_the_whole_chain(finished: Finished) -> None:
    results = finished.results
    graph = view_lineage(results["publish"]["manifest_uri"])
    assert (graph.name, graph.version) == ("tiny", results["publish"]["manifest_hash"])
    assert graph.root == finished.root.as_uri()
    assert graph.lost == ()
    steps = [candidate["step"] for candidate in results["train"]["candidates"]]
    candidates = [f"candidate-{step}" for step in sorted(steps)]
    ids = ["source-1", "dataset", "attempt-1", *candidates, "choice", "version", "champion"]
    assert [node.id for node in graph.nodes] == ids
    assert {(edge.source, edge.target) for edge in graph.edges} == {
        ("source-1", "dataset"),
        ("dataset", "attempt-1"),
        *(("attempt-1", candidate) for candidate in candidates),
        *((candidate, "choice") for candidate in candidates),
        ("choice", "version"),
        ("version", "champion"),
    }
    assert [node.facts["sha256"] for node in graph.of("candidate") if node.chosen] == [
        results["evaluate"]["checkpoint_sha256"]
    ]
    assert graph.of("dataset")[0].facts["hash"] == results["generate"]["dataset_hash"]
    assert graph.of("champion")[0].title == "this version"
    assert all(graph.of(kind) for kind in LINEAGE_KINDS)


@pytest.mark.parametrize("form", ["folder", "manifest", "file-uri", "manifest-uri"])
def test_a_version_is_named_in_every_way(finished: Finished, form: str) -> None:
    folder = version(finished.root)
    targets = {
        "folder": str(folder),
        "manifest": str(folder / "manifest.json"),
        "file-uri": folder.as_uri(),
        "manifest-uri": (folder / "manifest.json").as_uri(),
    }
    assert view_lineage(targets[form]) == view_lineage(finished.results["publish"]["manifest_uri"])


@pytest.mark.parametrize(
    ("gone", "lost"),
    [
        ("datasets/*/train-00000.arrow", "dataset"),
        ("datasets/*/index.json", "dataset"),
        ("runs/*/attempts/0001.json", "attempt-1"),
        ("runs/*/candidates/step-00000004/index.json", "candidate-4"),
        ("runs/*/candidates/step-00000004/model.safetensors", "candidate-4"),
        ("models/tiny/*/README.md", "version"),
        ("models/tiny/champion.json", "champion"),
    ],
)
def test_what_is_missing_is_told(root: Path, gone: str, lost: str) -> None:
    (path,) = root.glob(gone)
    path.unlink()
    graph = view_lineage(str(version(root)))
    assert [(node.id, node.state) for node in graph.lost] == [(lost, "missing")]
    assert path.name in graph.lost[0].note or lost == "champion"


@pytest.mark.parametrize(
    ("altered", "lost"),
    [("runs/*/candidates/step-00000004/index.json", "candidate-4"), ("models/tiny/champion.json", "champion")],
)
def test_what_was_altered_is_told(root: Path, altered: str, lost: str) -> None:
    (path,) = root.glob(altered)
    flip(path, 0)
    assert [(node.id, node.state) for node in view_lineage(str(version(root))).lost] == [(lost, "altered")]


def test_a_file_of_another_size_is_altered(root: Path) -> None:
    (shard,) = root.glob("datasets/*/test-00000.arrow")
    shard.write_bytes(shard.read_bytes() + b"x")
    (version(root) / "README.md").write_text("short")
    assert {node.id: node.state for node in view_lineage(str(version(root))).lost} == {
        "dataset": "altered",
        "version": "altered",
    }


def test_a_folder_alone_says_what_it_cannot_know(finished: Finished, tmp_path: Path) -> None:
    alone = shutil.copytree(version(finished.root), tmp_path / "model")
    graph = view_lineage(str(alone))
    assert graph.root is None
    assert {node.state for node in graph.lost} == {"unknown"}
    assert {node.kind for node in graph.lost} == {"dataset", "attempt", "candidate", "champion"}
    found = view_lineage(str(alone), root=str(finished.root))
    assert found.lost == ()


def test_a_moved_root_is_followed(root: Path, tmp_path: Path) -> None:
    moved = root.rename(tmp_path / "moved")
    assert view_lineage(str(version(moved))).lost == ()


def test_a_later_champion_is_named(finished: Finished, root: Path) -> None:
    other = stage("publish", root, "publish.gate.minimum={overall.score: 0.0}").result
    old = view_lineage(str(root / "models/tiny" / finished.results["publish"]["manifest_hash"])).of("champion")[0]
    assert old.title == f"another: {other['manifest_hash'][:12]}"
    assert " to " in old.facts["this version was champion"]
    assert view_lineage(other["manifest_uri"]).of("champion")[0].title == "this version"


def test_what_is_no_version(finished: Finished, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        view_lineage(str(tmp_path / "none"))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="is no manifest"):
        view_lineage(str(tmp_path))


def test_the_checkpoint_that_training_began_from(finished: Finished, root: Path) -> None:
    parent = finished.results["train"]["candidates"][0]
    sets = (
        f"training.init_from={parent['uri'].replace(finished.root.as_uri(), root.as_uri())}@sha256:{parent['sha256']}",
    )
    for name in ("train", "evaluate"):
        stage(name, root, *sets).result  # noqa: B018 - it checks the exit code
    uri = stage("publish", root, *sets).result["manifest_uri"]
    graph = view_lineage(uri)
    assert graph.lost == ()
    assert [(node.title, node.facts["sha256"]) for node in graph.of("source")[1:]] == [
        ("initial checkpoint", parent["sha256"])
    ]
    assert [edge.target for edge in graph.edges if edge.source == "initial-checkpoint"] == ["attempt-1"]
    (index,) = root.glob(
        f"runs/{finished.results['train']['run_hash']}/candidates/step-{parent['step']:08d}/index.json"
    )
    flip(index)
    assert [(node.id, node.state) for node in view_lineage(uri).lost] == [("initial-checkpoint", "altered")]
    index.unlink()
    assert [(node.id, node.state) for node in view_lineage(uri).lost] == [("initial-checkpoint", "unknown")]


@pytest.mark.s3
def test_a_version_in_a_bucket(finished: Finished, s3_root: str) -> None:
    store = open_store(s3_root)
    for path in sorted(finished.root.rglob("*")):
        if path.is_file():
            store.put_file(path.relative_to(finished.root).as_posix(), path, sha256=sha256_file(path))
    here = view_lineage(f"{s3_root}/models/tiny/{finished.results['publish']['manifest_hash']}/manifest.json")
    assert states(here) == states(view_lineage(finished.results["publish"]["manifest_uri"]))
    assert here.root == s3_root
