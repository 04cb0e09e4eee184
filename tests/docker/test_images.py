"""The images as containers: ``make images test-containers``, with the engine that ``docker`` reaches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from components.images import Images
from pipelines.resources import GROUP, USER

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "pipelines" / "tiny.yaml"
DOCKER = os.environ.get("HOPLINE_DOCKER", "docker")
IMAGES = asdict(Images.choose())
STAGES = list(IMAGES)
LOCKED_UP = ["--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]


def docker(*arguments: str) -> str:
    """Run the client; its standard output. The error output is shown when the command fails."""
    done = subprocess.run([DOCKER, *arguments], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{DOCKER} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("stage", STAGES)
def test_the_command_runs_locked_up(stage: str) -> None:
    """No network, no writable root, no capability, not root."""
    options = [*LOCKED_UP, "--security-opt", "no-new-privileges", "--user", f"{USER}:{GROUP}"]
    assert "hopline" in json.loads(docker("run", *options, IMAGES[stage], "hopline", "version", "--json"))


@pytest.mark.parametrize("stage", STAGES)
def test_it_is_not_root_and_cannot_write_its_own_code(stage: str) -> None:
    code = "import os, hopline; print(os.getuid(), os.getgid(), os.access(os.path.dirname(hopline.__file__), os.W_OK))"
    assert docker("run", "--rm", "--network", "none", IMAGES[stage], "python3", "-c", code).split() == [
        str(USER),
        str(GROUP),
        "False",
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_there_is_no_compiler_and_no_client_of_kfp(stage: str) -> None:
    code = (
        "import importlib.util as u, shutil;"
        "print([x for x in ('gcc', 'cc', 'g++', 'make') if shutil.which(x)],"
        " [x for x in ('kubernetes', 'google.cloud', 'kfp_server_api') if u.find_spec(x.split('.')[0])])"
    )
    assert docker("run", *LOCKED_UP, IMAGES[stage], "python3", "-c", code).strip() == "[] []"


@pytest.mark.parametrize("stage", STAGES)
def test_labels_and_environment_tell_the_commit(stage: str) -> None:
    config = json.loads(docker("image", "inspect", IMAGES[stage]))[0]["Config"]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    environment = dict(entry.split("=", 1) for entry in config["Env"])
    assert config["User"] == f"{USER}:{GROUP}"
    assert config["Labels"]["org.opencontainers.image.title"] == f"hopline {stage}"
    assert environment["HOPLINE_GIT_COMMIT"] == config["Labels"]["org.opencontainers.image.revision"]
    if commit.returncode == 0:
        assert environment["HOPLINE_GIT_COMMIT"] == commit.stdout.strip()


def test_the_dataset_image_has_no_torch() -> None:
    code = "import importlib.util as u; print([x for x in ('torch', 'matplotlib', 'pykeen') if u.find_spec(x)])"
    assert docker("run", *LOCKED_UP, IMAGES["dataset"], "python3", "-c", code).strip() == "['pykeen']"
    assert docker("run", *LOCKED_UP, IMAGES["train"], "python3", "-c", code).strip() == "['torch', 'matplotlib']"


def test_the_dataset_image_carries_the_files_of_umls(tmp_path: Path) -> None:
    place = writable(tmp_path / "root")
    config = {"name": "umls", "dataset": {"source": "pykeen://umls", "entities": "identity"}}
    config["dataset"] |= {"examples": {"train": 20, "valid": 10, "calibration": 10, "test": 10}, "workers": 1}
    (tmp_path / "umls.yaml").write_text(yaml.safe_dump(config))
    mounts = ["-v", f"{place}:/root-store", "-v", f"{tmp_path / 'umls.yaml'}:/umls.yaml:ro"]
    command = ["hopline", "generate", "-c", "/umls.yaml", "--root", "/root-store", "--json"]
    made = json.loads(docker("run", *LOCKED_UP, *mounts, IMAGES["dataset"], *command))
    assert made["reused"] is False
    assert made["examples"]["train"] > 20  # the link queries beside the drawn ones
    assert (place / "datasets" / made["dataset_hash"] / "index.json").is_file()


def test_the_pipeline_runs_in_the_images_with_no_network(tmp_path: Path) -> None:
    """The whole pipeline under kfp.local's DockerRunner. It can report success for a container that failed, so what
    counts is what is in the root."""
    place = writable(tmp_path / "kfp")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_in_docker.py")), TINY, place],
        capture_output=True,
        text=True,
        check=False,
        timeout=840,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    outputs = json.loads(done.stdout.splitlines()[-1])
    published = json.loads(outputs["publish"])
    assert published["champion"] is True
    assert json.loads(outputs["generate"])["reused"] is False
    checked = docker(
        "run",
        *LOCKED_UP,
        "-v",
        f"{place}:{place}:ro",
        IMAGES["publish"],
        "hopline",
        "verify",
        published["manifest_uri"],
    )
    assert "OK" in checked
    assert "FAIL" not in checked


def writable(folder: Path) -> Path:
    """A folder that the images' user may write to."""
    folder.mkdir()
    folder.chmod(0o777)
    # pytest's own folders are closed to others; the containers only need to pass through.
    for parent in folder.parents:
        if parent.stat().st_uid == os.getuid() and parent.name.startswith("pytest"):
            parent.chmod(parent.stat().st_mode | 0o011)
    return folder
