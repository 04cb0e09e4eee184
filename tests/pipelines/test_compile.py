from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from components.images import Images
from hopline.config import load_config
from hopline.errors import ConfigError
from hopline.stages import decode_config
from pipelines.compile import Compiled, compile_pipeline
from pipelines.resources import GROUP, RESOURCES, USER

GOLDEN = Path(__file__).parent / "golden" / "retraining.yaml"
IMAGES = Images.choose(prefix="registry.example/hopline", tag="golden")
STEPS = {"dataset", "train", "evaluate", "publish"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_pipeline(tmp_path_factory.mktemp("compiled") / "p.yaml", IMAGES)


@pytest.fixture(scope="module")
def documents(compiled: Compiled) -> tuple[dict[str, Any], dict[str, Any]]:
    pipeline, platform = yaml.safe_load_all(compiled.path.read_text())
    return pipeline, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


def test_the_golden_copy_is_current(compiled: Compiled) -> None:
    assert compiled.path.read_text() == GOLDEN.read_text(), "if the change is meant: make golden"


def test_the_same_bytes_from_another_place(compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPLINE_IMAGE_TAG", "ignored-when-images-are-given")
    again = compile_pipeline(Path("q.yaml"), IMAGES)
    assert again.path.read_bytes() == compiled.path.read_bytes()
    assert again.sha256 == compiled.sha256
    assert [path.name for path in tmp_path.iterdir()] == ["q.yaml"]


def test_nothing_of_this_machine_is_in_it(compiled: Compiled) -> None:
    text = compiled.path.read_text()
    for word in (str(Path.cwd()), str(Path.home()), os.environ.get("HOSTNAME", "no host name known")):
        assert word in {"/", "/root"} or word not in text


def test_it_is_a_pipeline_spec_to_the_letter(documents: tuple[dict[str, Any], dict[str, Any]]) -> None:
    spec = json_format.ParseDict(documents[0], pipeline_spec_pb2.PipelineSpec())
    assert spec.pipeline_info.name == "hopline-retraining"
    assert set(spec.root.dag.tasks) == STEPS


def test_every_task_stays_out_of_the_cache(documents: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for task in documents[0]["root"]["dag"]["tasks"].values():
        assert task["cachingOptions"] == {}  # enableCache is false where it is not written


def test_every_task_has_image_and_share_of_a_node(documents: tuple[dict[str, Any], dict[str, Any]]) -> None:
    executors = documents[0]["deploymentSpec"]["executors"]
    assert set(executors) == {f"exec-{step}" for step in STEPS}
    for step in STEPS:
        container = executors[f"exec-{step}"]["container"]
        assert container["image"] == f"registry.example/hopline/{step}:golden"
        share = RESOURCES[step]
        found = container["resources"]
        assert found["resourceCpuRequest"] == share.cpu_request
        assert found["resourceCpuLimit"] == share.cpu_limit
        assert found["resourceMemoryRequest"] == share.memory_request
        assert found["resourceMemoryLimit"] == share.memory_limit
        assert "pip install" not in json.dumps(container)


def test_no_task_runs_as_root(documents: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert set(documents[1]) == {f"exec-{step}" for step in STEPS}
    for settings in documents[1].values():
        assert settings["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": str(USER),
            "runAsGroup": str(GROUP),
        }
        assert [mount["mountPath"] for mount in settings["emptyDirMounts"]] == ["/tmp"]


def test_hashes_and_uris_come_from_the_steps_that_made_them(
    documents: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    inputs = documents[0]["root"]["dag"]["tasks"]["publish"]["inputs"]["parameters"]
    made_by = {
        name: value["taskOutputParameter"]["producerTask"]
        for name, value in inputs.items()
        if "taskOutputParameter" in value
    }
    assert made_by == {
        "dataset_uri": "dataset",
        "dataset_hash": "dataset",
        "run_uri": "train",
        "run_hash": "train",
        "checkpoint_uri": "evaluate",
        "checkpoint_sha256": "evaluate",
        "report_uri": "evaluate",
    }
    for name, value in inputs.items():
        if "taskOutputParameter" in value:
            assert value["taskOutputParameter"]["outputParameterKey"] == name
    assert inputs["run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}


def test_config_and_root_are_required_unless_given(
    documents: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    required = documents[0]["root"]["inputDefinitions"]["parameters"]
    assert required == {"config_json": {"parameterType": "STRING"}, "root": {"parameterType": "STRING"}}
    config = tmp_path / "c.yaml"
    config.write_text("name: mine\n")
    resolved = load_config(config, ["training.max_steps=7"])
    done = compile_pipeline(tmp_path / "p.yaml", IMAGES, config=resolved, root="s3://bucket/prefix")
    pipeline = next(yaml.safe_load_all(done.path.read_text()))
    given = pipeline["root"]["inputDefinitions"]["parameters"]
    assert given["root"]["defaultValue"] == "s3://bucket/prefix"
    assert decode_config(given["config_json"]["defaultValue"]) == resolved


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"found the suffix '\.json', expected \.yaml"):
        compile_pipeline(tmp_path / "p.json", IMAGES)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"p\.yaml: cannot be written: No such file or directory"):
        compile_pipeline(tmp_path / "missing" / "p.yaml", IMAGES)
