"""The cluster section: what a job may ask for, and the messages of what it may not."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.config import GraphConfig, resolve_config
from hopline.config.kubernetes import (
    is_dns_label,
    is_dns_subdomain,
    is_label_key,
    looks_secret,
    names_secret,
    parse_quantity,
)
from hopline.errors import ConfigError


def _resolve(*overrides: str) -> GraphConfig:
    return resolve_config("name: m\n", source="c.yaml", overrides=overrides).config


def test_a_job_is_described_whole() -> None:
    cluster = resolve_config(
        """
name: m
cluster:
  backend: pytorchjob
  image: registry.example:5000/hopline/train@sha256:"""
        + "0" * 64
        + """
  namespace: team-a
  nodes: 3
  elastic: {min_nodes: 2, max_nodes: 4}
  resources: {gpus: 8, cpu: 96, cpu_limit: 128, memory: 1Ti, ephemeral_storage: 200Gi, shared_memory: 64Gi}
  queue: team-a
  priority_class: training
  node_selector: {cloud.example/pool: spot}
  tolerations: [{key: cloud.example/spot, operator: Exists, effect: NoSchedule}]
  volumes: [{name: ca, path: /etc/ca, config_map: company-ca}]
  image_pull_secrets: [registry]
  store: {secret: store-keys, endpoint: "http://store.team-a:8333", region: us-east-1}
  env: {TOKENIZERS_PARALLELISM: "false"}
  nccl: {NCCL_SOCKET_IFNAME: eth0}
  limits: {deadline_seconds: 3600, ttl_seconds: 60, backoff_limit: 2, grace_seconds: 30}
""",
        source="c.yaml",
    ).config.cluster
    assert cluster.processes_per_node == 8
    assert (cluster.resources.cpu, cluster.resources.cpu_limit) == ("96", "128")
    assert cluster.elastic is not None
    assert cluster.elastic.max_nodes == 4


def test_processes_are_one_a_gpu() -> None:
    assert _resolve("cluster.processes=3", "training.parallelism=ddp").cluster.processes_per_node == 3
    assert _resolve("cluster.resources.gpus=2").cluster.processes_per_node == 2


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("cluster.backend=k8s", "cluster.backend: found 'k8s', expected 'local' or 'pytorchjob'"),
        ("cluster.image=UP PER", "cluster.image: found 'UP PER', expected an image such as registry.example/"),
        ("cluster.namespace=Team", "cluster.namespace: found 'Team', expected 1 to 63 of a-z, 0-9 and '-'"),
        ("cluster.resources.memory=16GB", "cluster.resources.memory: found '16GB', expected a quantity of Kubernetes"),
        ("cluster.resources.cpu=-1", "cluster.resources.cpu: found '-1', expected a quantity"),
        ("cluster.resources.cpu=true", "cluster.resources.cpu: found True, expected string"),
        ("cluster.resources.cpu_limit=1", "cluster.resources: cpu_limit is 1, below cpu 4; raise it or leave it out"),
        ("cluster.resources.shared_memory=16Gi", "shared_memory is 16Gi, and memory 16Gi has to hold it"),
        ("cluster.elastic={min_nodes: 3, max_nodes: 2}", "min_nodes is 3, above max_nodes 2; swap or raise one"),
        (
            "cluster.elastic={min_nodes: 2, max_nodes: 4}",
            "nodes is 1, outside elastic.min_nodes 2 to elastic.max_nodes 4",
        ),
        ("cluster={processes: 3, resources: {gpus: 8}}", "processes is 3, resources.gpus is 8, and each GPU has one"),
        ("cluster.node_selector={a b: c}", "found 'a b', expected a label's key"),
        ("cluster.node_selector={a: b c}", "found 'b c', expected a label's value"),
        ("cluster.tolerations=[{operator: Exists, value: x}]", "operator Exists takes no value, found 'x'"),
        ("cluster.tolerations=[{value: x}]", "operator Equal needs a key; add one or use Exists"),
        ("cluster.tolerations=[{key: x, seconds: 3}]", "seconds needs effect NoExecute, found None"),
        ("cluster.volumes=[{name: a, path: /a}]", "volume a: expected one of claim, config_map and secret, found none"),
        (
            "cluster.volumes=[{name: a, path: /a, claim: c, secret: s}]",
            "volume a: expected one of claim, config_map and secret, found claim and secret",
        ),
        (
            "cluster.volumes=[{name: a, path: /a, secret: s, read_only: false}]",
            "volume a: a secret cannot be written to",
        ),
        ("cluster.volumes=[{name: a, path: /tmp/x, claim: c}]", "volume a: the job has its own volumes"),
        ("cluster.volumes=[{name: tmp, path: /x, claim: c}]", "volume tmp: the job has its own volumes"),
        ("cluster.volumes=[{name: a, path: x, claim: c}]", "found 'x', expected an absolute path"),
        (
            "cluster.volumes=[{name: a, path: /x, claim: c}, {name: b, path: /x, claim: d}]",
            "cluster.volumes: the path '/x' is given twice; give each volume its own",
        ),
        ("cluster.store={secret: a, service_account: b}", "found both secret a and service_account b"),
        ("cluster.store.secret_key=a/b", "cluster.store.secret_key: found 'a/b', expected a key of a Secret"),
        ("cluster.store.endpoint=http://me:pw@store", "expected an http:// or https:// URL without user and password"),
        ("cluster.env={A B: c}", "found 'A B', expected the name of an environment variable"),
        ("cluster.env={PET_NNODES: '3'}", "PET_NNODES is set by the job itself or by another key of cluster"),
        ("cluster.env={A: 3}", "cluster.env.A: found 3, expected string"),
        ("cluster.nccl={OMP_NUM_THREADS: '3'}", "expected a variable that begins with NCCL_ or TORCH_NCCL_"),
    ],
)
def test_wrong_values_are_named(override: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _resolve(override)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASSWORD", "x"),
        ("API_KEY", "x"),
        ("hub.token", "x"),
        ("A", "AKIAABCDEFGHIJKLMNOP"),
        ("A", "ghp_0123456789abcdefghijklmnopqrstuvwxyz"),
        ("A", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        ("A", "s3://user:pass@host/path"),
        ("A", "-----BEGIN PRIVATE KEY-----"),
        ("A", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x"),
    ],
)
def test_what_looks_like_a_secret_is_refused_without_being_shown(name: str, value: str) -> None:
    assert names_secret(name) or looks_secret(value)
    if name == "hub.token":
        return  # no name of a variable, and refused for that
    with pytest.raises(ConfigError, match="looks like a secret") as caught:
        _resolve(f"cluster.env={{{name}: '{value}'}}")
    assert len(value) == 1 or value not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "false",
        "a" * 64,
        "s3://bucket/models/umls",
        "/usr/lib/x86_64-linux-gnu",
        "sha256:" + "0123456789abcdef" * 4,
        "1,2,3",
    ],
)
def test_plain_values_are_no_secrets(value: str) -> None:
    assert not looks_secret(value)
    assert _resolve(f"cluster.env={{A: '{value}'}}").cluster.env == {"A": value}


@given(st.integers(0, 10**6), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi", "m", "u"]))
def test_quantities_are_what_their_suffix_says(number: int, suffix: str) -> None:
    factors = {"": 1, "k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "m": 1e-3, "u": 1e-6}
    found = parse_quantity(f"{number}{suffix}")
    assert found is not None
    assert math.isclose(float(found), number * factors[suffix])
    assert parse_quantity(f"{number} {suffix}x") is None


def test_quantities_of_other_forms() -> None:
    assert parse_quantity("1.5Gi") == Decimal(3 * 2**29)
    assert parse_quantity("2e3") == parse_quantity("2E3") == 2000
    assert parse_quantity("-1") == -1
    assert parse_quantity("") is None


@pytest.mark.parametrize(
    ("text", "right"), [("a", True), ("a-b", True), ("-a", False), ("A", False), ("a" * 64, False)]
)
def test_dns_labels(text: str, right: bool) -> None:
    assert is_dns_label(text) is right
    assert is_dns_subdomain(f"x.{text}") is right


@pytest.mark.parametrize(
    ("text", "right"), [("a", True), ("x.y/A_b", True), ("/a", False), ("X/a", False), ("a/", False), ("a/b/c", False)]
)
def test_label_keys(text: str, right: bool) -> None:
    assert is_label_key(text) is right
