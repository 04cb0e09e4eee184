"""The data that people have, from source to manifest: UMLS and relation queries in a file by ``hopline run``, and Kinship.

Kinship goes through the same stages in this process, which saves the start of five others.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hopline.datasets import DatasetIndex
from tests.pipelines.test_run import HOPLINE, environment, results
from tests.stages.workbench import chain, hopline

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
SHORT = ("training.max_steps=4", "training.evaluation_every=4", "training.checkpoint_every=0", "training.batch_size=16")
SMALL = (
    "model.hidden_dim=16",
    "model.layers=2",
    "dataset.min_nodes=4",
    "dataset.max_nodes=6",
    "dataset.max_paths=4",
    "dataset.examples={train: 40, valid: 20, calibration: 20, test: 20}",
)


@pytest.mark.parametrize(
    ("config", "sets", "examples", "metric"),
    [
        ("umls", SMALL, {"train": 10472, "valid": 960, "calibration": 384, "test": 1342}, "link.mrr"),
        ("relations", (), {"train": 26, "valid": 3, "calibration": 3, "test": 8}, "relation.accuracy"),
    ],
)
def test_a_config_of_the_repository_runs_end_to_end(
    tmp_path: Path, config: str, sets: tuple[str, ...], examples: dict[str, int], metric: str
) -> None:
    root = tmp_path / "root"
    words = [str(HOPLINE), "run", "-c", f"configs/{config}.yaml", "--root", str(root), "--json"]
    words += [word for one in (*SHORT, *sets) for word in ("--set", one)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=280, cwd=REPOSITORY, env=environment(root)
    )
    record = results(done)
    assert record["generate"]["examples"] == examples
    assert record["train"]["steps"] == 4
    assert 0 <= record["evaluate"]["metrics"][metric] <= 1
    assert record["publish"]["champion"] is True
    assert "every claim holds" in done.stderr
    folder = Path(record["generate"]["dataset_uri"].removeprefix("file://"))
    index = DatasetIndex.load(folder)
    assert (index.leakage.held_out_edges, index.leakage.duplicate_queries) == (0, 0)
    assert index.imported is not None
    assert index.imported.warnings() == ()
    manifest = json.loads(Path(record["publish"]["manifest_uri"].removeprefix("file://")).read_text())
    kept = "lines keep the split that they name" if config == "relations" else "triples keep the split of their file"
    assert manifest["dataset"]["split_rule"].startswith(kept)
    assert [file["sha256"] for file in manifest["dataset"]["source"]["files"]] == [
        file.sha256 for file in index.source.files
    ]


def test_kinship_goes_through_every_stage(tmp_path: Path) -> None:
    results = chain(tmp_path / "root", *SHORT, *SMALL, config=REPOSITORY / "configs/kinship.yaml")
    assert results["generate"]["examples"] == {"train": 17128, "valid": 1534, "calibration": 642, "test": 2168}
    assert 0 < results["evaluate"]["metrics"]["link.mrr"] < 1
    assert results["publish"]["champion"] is True
    dataset = results["generate"]["dataset_uri"].removeprefix("file://")
    checked = hopline("verify", results["publish"]["manifest_uri"], "--dataset", dataset)
    assert checked.code == 0, checked.stdout
    assert DatasetIndex.load(Path(dataset)).leakage.held_out_edges == 0
