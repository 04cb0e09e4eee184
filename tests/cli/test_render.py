"""``hopline render pytorchjob`` and ``hopline validate``: what a person types, and what comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from hopline.cli import main

CONFIG = "name: m\ncluster: {backend: pytorchjob, image: 'registry.example/train:1.0'}\n"
HASH = "0123456789abcdef" * 4


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    return str(path)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_job_is_printed_that_validate_takes(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("render", "pytorchjob", "-c", config, "--root", "s3://bucket/root", "--set", "cluster.queue=q") == 0
    text = capsys.readouterr().out
    document = yaml.safe_load(text)
    assert document["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    (tmp_path / "job.yaml").write_text(text)
    assert run("validate", str(tmp_path / "job.yaml")) == 0
    assert capsys.readouterr().out == f"OK           {tmp_path}/job.yaml: PyTorchJob {document['metadata']['name']}\n"


def test_a_job_of_a_known_dataset_is_called_after_its_run(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "job.yaml"
    dataset = ("--dataset-uri", "s3://bucket/root/datasets/x", "--dataset-hash", HASH)
    assert run("render", "pytorchjob", "-c", config, "--root", "s3://bucket/root", *dataset, "-o", str(output)) == 0
    assert capsys.readouterr().out == ""
    metadata = yaml.safe_load(output.read_text())["metadata"]
    run_hash = metadata["annotations"]["hopline.io/run-hash"]
    assert metadata["name"] == f"hopline-m-{run_hash[:12]}"
    assert metadata["labels"]["hopline.io/run"] == run_hash[:16]
    assert metadata["annotations"]["hopline.io/dataset-hash"] == HASH


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--root", "s3://b/r", "--set", "cluster.image=null"), "cluster.image is not set"),
        (("--root", "/data/root"), "root file:///data/root: no pod of the job can write there"),
        (("--root", "s3://b/r", "--dataset-hash", HASH), "give both --dataset-uri and --dataset-hash"),
        (("--root", "s3://b/r", "-o", "/nowhere/x.yaml"), "/nowhere/x.yaml: cannot be written"),
    ],
)
def test_a_job_that_cannot_run_is_one_line(
    config: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    assert run("render", "pytorchjob", "-c", config, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert captured.err.count("\n") == 1


def test_what_is_wrong_ends_with_1_and_what_cannot_be_read_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: 1}\n---\nkind: X\napiVersion: y/v1\n"
    )
    assert run("validate", str(wrong)) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"FAIL         {wrong}: ConfigMap a",
        "             data.b: found 1, expected a string [schema]",
        f"NOT CHECKED  {wrong}: X 2",
    ]
    assert run("validate", "--json", str(wrong)) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["valid"] is False
    assert [document["status"] for document in report["documents"]] == ["FAIL", "NOT CHECKED"]
    assert report["documents"][0]["findings"] == [
        {"path": "data.b", "found": "1", "expected": "a string", "rule": "schema"}
    ]
    assert run("validate", str(tmp_path / "none.yaml")) == 2
    assert "no such file; name a YAML file" in capsys.readouterr().err
    (tmp_path / "broken.yaml").write_text("a: [")
    assert run("validate", str(tmp_path / "broken.yaml")) == 2
    assert "broken.yaml, line 1:" in capsys.readouterr().err
