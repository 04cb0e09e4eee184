"""``hopline run`` on the data that people have: UMLS, Kinship, and relation queries in a file, from source to manifest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hopline.datasets import DatasetIndex
from tests.pipelines.test_run import HOPLINE, environment, results

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
SHORT = ("training.max_steps=4", "training.evaluation_every=2", "training.checkpoint_every=0", "training.batch_size=16")
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
        ("kinship", SMALL, {"train": 17128, "valid": 1534, "calibration": 642, "test": 2168}, "link.mrr"),
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
