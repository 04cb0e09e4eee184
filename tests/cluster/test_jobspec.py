"""What a config asks of a job, and what it may not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.cluster import JobSpec, job_spec
from hopline.config import resolve_config
from hopline.errors import ConfigError

HASH = "0123456789abcdef" * 4
Make = Callable[..., JobSpec]


def test_the_command_is_training_with_everything_it_needs(spec: Make) -> None:
    job = spec(dataset_uri="s3://bucket/root/datasets/x", dataset_hash=HASH)
    command, option, config_json, *rest = job.arguments
    assert (command, option) == ("train", "--config-json")
    assert '"name": "umls"' in config_json
    assert rest == [
        "--root",
        "s3://bucket/root",
        "--dataset-uri",
        "s3://bucket/root/datasets/x",
        "--dataset-hash",
        HASH,
    ]
    assert spec().arguments[-2:] == ("--root", "s3://bucket/root")


def test_equal_runs_have_equal_names_wherever_they_run(spec: Make) -> None:
    name = spec().name
    assert re.fullmatch(r"hopline-umls-[0-9a-f]{12}", name)
    assert spec("cluster.resources.memory=64Gi", "cluster.queue=q").name == name
    assert spec("training.max_steps=7").name != name
    assert spec(root="s3://bucket/other").name != name
    assert spec(run_hash=HASH).name == f"hopline-umls-{HASH[:12]}"


def test_a_job_says_what_it_is_for(spec: Make) -> None:
    job = spec(run_hash=HASH, dataset_uri="s3://b/d", dataset_hash="f" * 64)
    assert job.labels == {"hopline.io/model": "umls", "hopline.io/run": HASH[:16]}
    assert job.annotations == {"hopline.io/run-hash": HASH, "hopline.io/dataset-hash": "f" * 64}


@given(
    model=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True),
    nodes=st.sampled_from([1, 2, 11, 1000]),
)
def test_names_are_labels_that_leave_room_for_those_of_pods(model: str, nodes: int) -> None:
    text = (
        f"name: '{model}'\ntraining: {{parallelism: ddp}}\n"
        f"cluster: {{image: a/b:1, nodes: {nodes}, elastic: {{min_nodes: 1, max_nodes: {nodes}}}}}\n"
    )
    name = job_spec(resolve_config(text, source="c").config, config_json="{}", root="s3://b/r").name
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(f"{name}-worker-{nodes - 1}") <= 63
    assert len(f"{name}-master-0") <= 63


def test_a_store_is_reached_by_names_alone(spec: Make) -> None:
    job = spec("cluster.store={secret: keys, access_key: accesskey, secret_key: secretkey, endpoint: 'http://s:8333'}")
    assert [(v.name, v.secret, v.key) for v in job.secret_env] == [
        ("AWS_ACCESS_KEY_ID", "keys", "accesskey"),
        ("AWS_SECRET_ACCESS_KEY", "keys", "secretkey"),
    ]
    assert job.env == {"AWS_ENDPOINT_URL_S3": "http://s:8333"}
    other = spec("cluster.store={service_account: trainer, region: eu-central-1}")
    assert (other.service_account, other.secret_env, other.env) == ("trainer", (), {"AWS_REGION": "eu-central-1"})


def test_several_processes_and_graphics_processors_bring_their_settings(spec: Make) -> None:
    job = spec("cluster.resources.gpus=2", "training.parallelism=ddp", "cluster.nccl.NCCL_DEBUG=INFO")
    assert (job.processes, job.env) == (2, {"NCCL_DEBUG": "INFO"})
    elastic = spec("cluster.elastic={min_nodes: 1, max_nodes: 2}", "cluster.processes=2", "training.parallelism=ddp")
    assert elastic.env == {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "PET_NPROC_PER_NODE": "2"}


@pytest.mark.parametrize(
    ("override", "inputs", "expected"),
    [
        ("cluster.image=null", {}, "cluster.image is not set; set it to the image that trains"),
        (
            "cluster.nodes=2",
            {},
            "training.parallelism is none, and the job has 2 processes (2 nodes with 1); set training.parallelism",
        ),
        ("training.seed=1", {"root": "file:///data/root"}, "root file:///data/root: no pod of the job can write there"),
        (
            "cluster.volumes=[{name: d, path: /data, claim: c}]",
            {"root": "file:///data/root"},
            "mount a claim at it with cluster.volumes and read_only: false",
        ),
        ("training.seed=1", {"dataset_uri": "s3://b/d"}, "give both --dataset-uri and --dataset-hash, or none"),
        (
            "training.seed=1",
            {"dataset_uri": "s3://b/d", "dataset_hash": "x"},
            "--dataset-hash x: expected 64 hex digits",
        ),
        ("dataset.source=s3://me:hunter2@host/data", {}, "holds what looks like a secret"),
    ],
)
def test_jobs_that_cannot_run_are_refused(spec: Make, override: str, inputs: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        spec(override, **inputs)
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message
    assert "hunter2" not in message


def test_a_root_on_a_mounted_claim_is_one(spec: Make) -> None:
    job = spec("cluster.volumes=[{name: d, path: /data, claim: c, read_only: false}]", root="file:///data/root")
    assert job.volumes[0].claim == "c"
