from __future__ import annotations

import json
from pathlib import Path

import pytest

from hopline.cli import main
from hopline.lineage import Claim, VerifyReport
from hopline.stages.results import EvaluateResult, GenerateResult, PublishResult, TrainResult
from pipelines import local_run
from pipelines.local_run import PipelineRun, StepCrashedError

CONFIG = Path(__file__).with_name("tiny.yaml")
GOLDEN = Path(__file__).parent / "golden" / "retraining.yaml"


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_compile_writes_the_golden_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.yaml"
    options = ("--image-prefix", "registry.example/hopline", "--image-tag", "golden")
    assert status("compile", "-o", str(out), *options, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["path"] == str(out)
    assert record["images"]["train"] == "registry.example/hopline/train:golden"
    assert out.read_bytes() == GOLDEN.read_bytes()


def test_compile_for_people_names_file_digest_and_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.yaml"
    assert status("compile", "-o", str(out), "--image", "train=registry.example/t@sha256:1") == 0
    text = capsys.readouterr().out
    assert "image of train     registry.example/t@sha256:1" in text
    assert "sha256" in text


def test_compile_needs_a_config_to_override(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("compile", "-o", str(tmp_path / "p.yaml"), "--set", "training.max_steps=1") == 2
    assert "--set changes a config; name it with -c" in capsys.readouterr().err


def finished(claims: tuple[Claim, ...]) -> PipelineRun:
    return PipelineRun(
        {
            "generate": GenerateResult(dataset_uri="d", dataset_hash="a" * 64, examples={"train": 1200}, reused=True),
            "train": TrainResult(
                run_uri="r", run_hash="b" * 64, candidates=(), steps=3, stop_reason="max_steps", reused=False
            ),
            "evaluate": EvaluateResult(
                checkpoint_uri="c",
                checkpoint_sha256="c" * 64,
                step=3,
                metrics={"link.mrr": 0.81234},
                report_uri="file:///r/report.html",
                reused=False,
            ),
            "publish": PublishResult(
                manifest_uri="file:///m/manifest.json",
                manifest_hash="d" * 64,
                champion=False,
                reasons=("link.mrr fell",),
                reused=False,
            ),
        },
        VerifyReport("file:///m", "d" * 64, claims),
        {"generate": 1.25, "train": 61.0, "evaluate": 2.0, "publish": 1.0, "verify": 0.2},
    )


def run_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *claims: Claim, options: tuple[str, ...] = ()) -> int:
    monkeypatch.setattr(local_run, "run_pipeline", lambda *_, **__: finished(claims))
    return status("run", "-c", str(CONFIG), "--root", str(tmp_path / "root"), *options)


def test_the_table_tells_what_each_stage_gave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, tmp_path, Claim("files", "OK", ""), Claim("signature", "NOT CHECKED", "")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["generate", "dataset", "a" * 12 + ":", "1,200", "train", "reused", "1.2"]
    assert "link.mrr 0.812" in lines[3]
    assert "not the champion: link.mrr fell" in lines[4]
    assert "1 claims hold, 0 do not, 1 not checked" in lines[5]
    assert "file:///r/report.html" in lines[-2]
    assert "file:///m/manifest.json" in lines[-1]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_published_version_that_does_not_verify_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    broken = Claim("files", "FAIL", "model.safetensors: found sha256 1, expected 2")
    assert run_with(monkeypatch, tmp_path, Claim("a", "OK", ""), broken, options=options) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "files: model.safetensors: found sha256 1, expected 2" in said


def test_a_crash_says_where_the_output_is_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object, **__: object) -> PipelineRun:
        raise StepCrashedError("train: the step ended")

    monkeypatch.setattr(local_run, "run_pipeline", crash)
    assert status("run", "-c", str(CONFIG), "--root", str(tmp_path / "root")) == 1
    assert capsys.readouterr().err == "hopline: train: the step ended\n"
