from __future__ import annotations

import hashlib
import json
import math

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hopline.errors import DataError
from hopline.lineage import ForeignManifestError, Manifest, RunManifest, metrics_table
from hopline.lineage.schema import (
    Metric,
    OverrideRecord,
    Subjects,
)
from hopline.lineage.values import MAX_INTEGER, portable, restored

G48 = {
    *("model_version", "config_hash", "architecture_version", "dataset_hash", "generator_version", "seed", "step"),
    *("python", "platform", "torch", "cuda", "device", "pat_config", "pat_config_hash", "generator_hash", "model_hash"),
    *("git_commit", "git_dirty", "parameter_count", "parameter_buckets", "deterministic_requested"),
    *("cublas_workspace_config", "environment", "checkpoint_sha256", "link_objective"),
}
PARTS = ["subjects", "dataset", "code", "config", "environment", "training", "evaluation", "parents", "pipeline"]


@pytest.fixture
def document(stage, build) -> dict:
    return json.loads(build(stage()).to_bytes())


def encode(document: object) -> bytes:
    return rfc8785.dumps(document)


def test_ten_parts_in_canonical_json_whose_sha256_is_the_id(stage, build):
    manifest = build(stage())
    data = manifest.to_bytes()
    assert manifest.manifest_hash == hashlib.sha256(data).hexdigest()
    document = json.loads(data)
    assert rfc8785.dumps(document) == data
    assert {"schema_id", "schema_version", *PARTS} <= document.keys()
    assert Manifest.parse(data, source="m") == manifest
    assert build(stage()).manifest_hash == manifest.manifest_hash


def test_the_run_manifest_keeps_its_keys(document):
    """G48"""
    record = document["training"]["run_manifest"]
    assert record.keys() >= G48
    assert record["seed"] == str(1 << 60)
    assert record["git_commit"] is None
    assert record["reasons"]["git_commit"]


def test_nothing_is_null_without_a_reason(document):
    def walk(value, path):
        if isinstance(value, dict):
            for key, item in value.items():
                if item is None and "resolved" not in path:
                    assert value["reasons"][key], (path, key)
                walk(item, [*path, key])
        elif isinstance(value, list):
            for item in value:
                walk(item, path)
        else:
            assert value != "unknown"

    walk(document, [])


def test_the_config_folder_is_not_published(document):
    assert document["config"]["source"] == "tiny.yaml"
    assert "/home" not in json.dumps(document)


def change(document, path, value):
    *parents, last = path
    here = document
    for key in parents:
        here = here[key]
    if value is KeyError:
        del here[last]
    else:
        here[last] = value


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["dataset", "dataset_hash"], KeyError, r"dataset\.dataset_hash: Field required"),
        (["dataset", "dataset_hash"], "D" * 64, r"dataset\.dataset_hash"),
        (["dataset", "seed"], "7", r"dataset\.seed"),
        (["dataset", "seed"], 1.5, r"dataset\.seed"),
        (["code", "git_commit"], "unknown", r"code\.git_commit"),
        (["code", "reasons", "git_commit"], KeyError, "git_commit is null without a reason"),
        (["code", "reasons", "hopline"], "why not", "there is a reason for hopline, which is not null"),
        (["code", "reasons", "git_commit"], "", "expected one line"),
        (["code", "more"], 1, r"code\.more"),
        (["more"], 1, "more: "),
        (["subjects", "files"], [], r"subjects\.files"),
        (["subjects", "files", 0, "path"], "../x", r"subjects\.files\.0\.path"),
        (["subjects", "files", 0, "size"], -1, "size"),
        (["subjects", "files", 0, "size"], True, "size"),
        (["subjects", "files", 0, "path"], "zzz", "not sorted"),
        (["subjects", "files", 1, "path"], "readme.MD", "one where case does not count"),
        (["evaluation", "metrics", "link.mrr", "interval"], [0.9, 0.1], "lower end"),
        (["evaluation", "candidates", 0, "step"], 300, "not sorted by step"),
        (["evaluation", "rule", "id"], "best", "rule"),
        (["training", "run_manifest"], KeyError, "run_manifest"),
    ],
)
def test_what_is_wrong_is_named(document, path, value, problem):
    change(document, path, value)
    with pytest.raises(DataError, match=problem) as caught:
        Manifest.parse(encode(document), source="here/manifest.json")
    assert str(caught.value).startswith("here/manifest.json: ")
    assert "\n" not in str(caught.value)


def test_other_bytes_of_the_same_values_are_refused(document, stage, build):
    data = build(stage()).to_bytes()
    for other in (
        json.dumps(document).encode(),
        data + b"\n",
        data.replace(b'"schema_version":1', b'"schema_version":1.0'),
    ):
        with pytest.raises(DataError, match=r"canonical|schema_version"):
            Manifest.parse(other, source="m")


def test_an_empty_table_of_reasons_is_not_canonical(document):
    document["evaluation"]["rule"]["reasons"] = {}
    with pytest.raises(DataError, match="canonical"):
        Manifest.parse(encode(document), source="m")


def test_a_key_given_twice_is_refused(stage, build):
    data = build(stage()).to_bytes()
    with pytest.raises(DataError, match="stands twice"):
        Manifest.parse(data[:-1] + b',"name":"other"}', source="m")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"nonsense"])
def test_what_is_no_json_is_refused(data):
    with pytest.raises(DataError, match="m: "):
        Manifest.parse(data, source="m")


@pytest.mark.parametrize(
    "foreign", [[], 1, {}, {"schema_id": "x"}, {"schema_id": "urn:hopline:manifest", "schema_version": 2}]
)
def test_foreign_documents_and_other_versions_are_told_apart(foreign):
    with pytest.raises(ForeignManifestError, match=r"m: (is no manifest|found schema_version)"):
        Manifest.parse(encode(foreign), source="m")


@pytest.mark.parametrize("version", [True, "1", 1.5, None])
def test_the_version_is_an_integer(document, version):
    document["schema_version"] = version
    with pytest.raises(ForeignManifestError, match="schema_version"):
        Manifest.parse(encode(document), source="m")


def test_contradictory_parts_do_not_build(stage, build):
    folder = stage()
    with pytest.raises(DataError, match=r"manifest: name"):
        build(folder, name="two\nlines")


def test_parts_are_frozen(stage, build):
    manifest = build(stage())
    with pytest.raises(ValidationError):
        manifest.name = "other"


def test_a_null_override_is_a_value():
    record = OverrideRecord.model_validate({"key": "training.patience", "value": None, "origin": "--set"})
    assert record.reasons["value"]


def test_metrics_find_their_counts_and_have_no_bad_numbers():
    table = metrics_table(
        {"link.mrr": 0.5, "link.n": 40.0, "multi_hop.hops2.set_f1": math.nan, "multi_hop.n": 7.0, "loss": math.inf},
        intervals={"link.mrr": (0.4, 0.6)},
    )
    assert table["link.mrr"] == Metric(value=0.5, n=40, interval=(0.4, 0.6))
    assert table["multi_hop.hops2.set_f1"].value is None
    assert table["multi_hop.hops2.set_f1"].n == 7
    assert table["loss"].value is None
    assert set(table["loss"].reasons) == {"value", "n", "interval"}


@pytest.mark.parametrize("bad", [{"seed": "x"}, {"loss": math.nan}, {"git_dirty": "no"}, {"dataset_hash": "zz"}])
def test_a_wrong_run_manifest_is_refused(bad):
    with pytest.raises(DataError, match="run manifest"):
        RunManifest.from_record(bad)


def test_a_run_manifest_keeps_what_else_it_holds():
    record = RunManifest.from_record(
        {"world_size": 8, "nested": {"a": [1, None]}, "gone": None, "reasons": {"cuda": "x"}}
    )
    dumped = record.model_dump(mode="json")
    assert dumped["world_size"] == 8
    assert dumped["nested"] == {"a": [1, None]}
    assert dumped["reasons"]["cuda"] == "x"
    assert dumped["gone"] is None
    assert dumped["reasons"]["gone"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_portable_values_have_a_canonical_form_and_come_back(value):
    text = rfc8785.dumps(portable(value))
    back = json.loads(text)
    assert rfc8785.dumps(back) == text
    assert portable(restored(back)) == back


@given(st.integers())
def test_integers_of_any_size_survive(number):
    written = portable(number)
    assert isinstance(written, str) == (abs(number) > MAX_INTEGER)
    assert restored(json.loads(rfc8785.dumps(written))) == number


@pytest.mark.parametrize("bad", [math.nan, math.inf, [{"a": -math.inf}]])
def test_numbers_that_are_not_finite_are_no_values(bad):
    with pytest.raises(ValueError, match="finite"):
        portable(bad)


def test_subjects_cannot_share_a_name():
    file = {"path": "a", "size": 1, "sha256": "0" * 64, "media_type": "text/plain"}
    with pytest.raises(ValidationError, match="two files"):
        Subjects.model_validate_json(json.dumps({"files": [file, {**file, "path": "A"}], "tensors_digest": "0" * 64}))
