from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import rfc8785

from hopline.config import GateConfig
from hopline.errors import ConfigError, DataError, NotFoundError, StoreAccessError
from hopline.lineage import ForeignManifestError, Measured, move_champion, publish_version, verify
from hopline.progress import NullSink
from hopline.storage import open_store, sha256_bytes

ALWAYS_OPEN = {"signature", "dataset", "metrics", "code", "champion"}


@pytest.fixture
def version(tmp_path, stage, build) -> Path:
    """The folder of a published version."""
    folder = stage()
    manifest = build(folder)
    publish_version(open_store(str(tmp_path / "root")), "tiny", folder, manifest, sink=NullSink())
    return tmp_path / "root/models/tiny" / manifest.manifest_hash


def statuses(report) -> dict[str, str]:
    names = [claim.name for claim in report.claims]
    assert len(set(names)) == len(names)
    assert all(claim.detail and "\n" not in claim.detail for claim in report.claims)
    return {claim.name: claim.status for claim in report.claims}


def failures(report) -> dict[str, str]:
    return {claim.name: claim.detail for claim in report.claims if claim.status == "FAIL"}


def rewrite(version: Path, change, *, rename: bool = True) -> Path:
    """Change the manifest as somebody would who knows the format: canonical again, the folder named by the new hash."""
    document = json.loads((version / "manifest.json").read_bytes())
    change(document)
    data = rfc8785.dumps(document)
    (version / "manifest.json").write_bytes(data)
    if not rename:
        return version
    return version.rename(version.parent / sha256_bytes(data))


def test_every_claim_of_a_good_version_is_ok_or_says_why_not(version):
    report = verify(str(version))
    found = statuses(report)
    assert report.exit_code == 0
    assert {name for name, status in found.items() if status == "NOT CHECKED"} == ALWAYS_OPEN
    assert found.keys() >= {
        *("manifest", "manifest hash", "signature", "file model.safetensors", "file config.json", "no other files"),
        *("tensors digest", "config.json", "vocabulary.json", "config hashes", "selection rule", "candidate scores"),
        *("candidate choice", "chosen checkpoint", "test split", "gate decision", "dataset", "champion"),
    }
    assert report.manifest_hash == version.name
    lines = report.lines()
    assert len(lines) == len(report.claims)
    assert all(line.split("  ")[0].strip() in ("OK", "FAIL", "NOT CHECKED") for line in lines)
    document = report.to_json()
    json.dumps(document)
    assert document["ok"] is True
    assert len(document["claims"]) == len(lines)


def test_folder_manifest_and_uri_give_the_same_claims(version, monkeypatch):
    expected = verify(str(version)).claims
    uri = version.as_uri()
    monkeypatch.chdir(version.parent)
    for target in (f"{version}/", str(version / "manifest.json"), uri, f"{uri}/manifest.json", version.name):
        assert verify(target).claims == expected
    link = version.parent.parent / "current"
    link.symlink_to(version)
    assert verify(str(link)).claims == expected


@pytest.mark.s3
def test_a_version_in_s3(s3_root, stage, build):
    store, folder = open_store(s3_root), stage()
    manifest = build(folder)
    published = publish_version(store, "tiny", folder, manifest, sink=NullSink())
    move_champion(store, "tiny", Measured(manifest.manifest_hash, "a" * 64, {"link.mrr": 0.8}), GateConfig())
    for target in (published.manifest_uri, published.manifest_uri.removesuffix("/manifest.json")):
        report = verify(target)
        assert failures(report) == {}
        assert statuses(report)["champion"] == "OK"
        assert statuses(report)["manifest hash"] == "OK"
    prefix = f"models/tiny/{manifest.manifest_hash}"
    store.put_bytes(f"{prefix}/README.md", b"# TINY\n")
    store.put_bytes(f"{prefix}/evil.py", b"")
    store.delete(f"{prefix}/config.json")
    report = verify(published.manifest_uri)
    assert failures(report).keys() == {"file README.md", "file config.json", "no other files"}
    with pytest.raises(NotFoundError):
        verify(f"{s3_root}/models/tiny/{'0' * 64}")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocabulary.json", "README.md", "report.html"])
def test_an_altered_file_fails(version, damage, name):
    damage.flip(version / name)
    found = failures(verify(str(version)))
    assert "altered: sha256" in found[f"file {name}"]
    assert ("tensors digest" in found) == (name == "model.safetensors")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_truncated_file_fails(version, damage, name):
    damage.cut(version / name, 3)
    assert "truncated" in failures(verify(str(version)))[f"file {name}"]


def test_a_longer_file_fails(version):
    with (version / "README.md").open("a") as file:
        file.write("more")
    assert "longer" in failures(verify(str(version)))["file README.md"]


def test_a_wrong_length_in_the_safetensors_header_fails(version):
    path = version / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes((1 << 62).to_bytes(8, "little") + data[8:])
    found = failures(verify(str(version)))
    assert "header says" in found["tensors digest"]
    assert "altered" in found["file model.safetensors"]


def test_a_missing_file_fails(version):
    (version / "vocabulary.json").unlink()
    report = verify(str(version))
    assert failures(report) == {"file vocabulary.json": "is missing"}
    assert statuses(report)["vocabulary.json"] == "NOT CHECKED"


@pytest.mark.parametrize("name", ["evil.py", "sub/evil.py", "c\u043enfig.json", "Config.json", ".hidden"])
def test_another_file_fails(version, name):
    (version / name).parent.mkdir(exist_ok=True)
    (version / name).write_text("x")
    found = failures(verify(str(version)))
    assert ascii(name) in found["no other files"]


def test_symbolic_links_and_empty_folders_fail(version):
    (version / "README.md").rename(version.parent / "README.md")
    (version / "README.md").symlink_to(version.parent / "README.md")
    found = failures(verify(str(version)))
    assert found["file README.md"] == "is no ordinary file"
    (version / "empty").mkdir()
    assert "empty/" in failures(verify(str(version)))["no other files"]


def test_remains_of_a_killed_publisher_are_told_and_do_not_fail(version):
    (version / ".tmp-123").write_text("half")
    report = verify(str(version))
    assert report.exit_code == 0
    detail = next(claim.detail for claim in report.claims if claim.name == "no other files")
    assert "1 unfinished" in detail


def test_an_altered_manifest_fails_by_its_hash(version):
    path = version / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"value":0.8', b'"value":0.9'))
    report = verify(str(version))
    assert "was altered" in failures(report)["manifest hash"]
    assert statuses(report)["manifest"] == "OK"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-20],
        lambda data: b"",
        lambda data: b"\xff" + data,
        lambda data: data + b"\n",
        lambda data: json.dumps(json.loads(data), indent=1).encode(),
        lambda data: data.replace(b"\n", b"\r\n") + b"\r\n",
        lambda data: data[:-1] + b',"name":"other"}',
        lambda data: b"[" * 100_000,
        lambda data: data.replace(b'"schema_id":"urn:hopline:manifest"', b'"schema_id":"x"'),
    ],
)
def test_a_damaged_manifest_fails_and_the_rest_is_not_passed_over(version, change):
    path = version / "manifest.json"
    path.write_bytes(change(path.read_bytes()))
    report = verify(str(version))
    assert report.exit_code == 1
    found = statuses(report)
    assert found["manifest"] == found["manifest hash"] == "FAIL"
    assert found["files"] == found["dataset"] == "NOT CHECKED"


def test_a_foreign_or_newer_manifest_cannot_be_read(tmp_path):
    for document in ({}, {"schema_id": "urn:hopline:manifest", "schema_version": 99}):
        (tmp_path / "manifest.json").write_text(json.dumps(document))
        with pytest.raises(ForeignManifestError) as caught:
            verify(str(tmp_path))
        assert caught.value.exit_code == 2
        assert str(tmp_path) in str(caught.value)


def test_what_is_not_there_cannot_be_read(tmp_path, version):
    for target in (tmp_path / "gone", tmp_path):
        with pytest.raises(NotFoundError):
            verify(str(target))
    with pytest.raises(DataError, match=r"expected the folder of a version or its manifest\.json"):
        verify(str(version / "README.md"))
    with pytest.raises(ConfigError):
        verify("ftp://x/y")
    with pytest.raises(NotFoundError, match="public key"):
        verify(str(version), keys=[tmp_path / "gone.pub"])
    with pytest.raises(NotFoundError, match="dataset folder"):
        verify(str(version), dataset=tmp_path / "gone")


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything")
def test_a_folder_without_permission_cannot_be_read(version):
    code = (
        "import sys\nfrom hopline.errors import StoreError\nfrom hopline.lineage import verify\n"
        "try:\n    verify(sys.argv[1])\nexcept StoreError as error:\n    print(error)\n"
    )
    (version / "config.json").chmod(0)
    command = [sys.executable, "-c", code, str(version)]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "config.json: permission denied" in done.stdout, done.stderr


def test_a_copy_under_another_name_is_not_taken_on_trust(version, tmp_path):
    copies = [tmp_path / "copy", tmp_path / "tar" / version.name]
    shutil.copytree(version, copies[0])
    copies[1].parent.mkdir()
    subprocess.run(["tar", "-C", version.parent, "-cf", tmp_path / "v.tar", version.name], check=True)
    subprocess.run(["tar", "-C", copies[1].parent, "-xf", tmp_path / "v.tar"], check=True)
    plain, packed = (verify(str(copy)) for copy in copies)
    assert plain.exit_code == packed.exit_code == 0
    assert statuses(plain) == {**statuses(packed), "manifest hash": "NOT CHECKED"}
    assert version.name in next(c.detail for c in plain.claims if c.name == "manifest hash")
    assert statuses(packed) == statuses(verify(str(version)))


def test_a_version_under_another_versions_name_fails(version):
    other = version.rename(version.parent / ("0" * 64))
    assert failures(verify(str(other))).keys() == {"manifest hash"}


def favour_another(document):
    document["evaluation"]["candidates"][0]["score"] = 0.95


def favour_another_in_full(document):
    favour_another(document)
    document["evaluation"]["candidates"][0]["metrics"]["link.mrr"] = 0.95


@pytest.mark.parametrize(
    ("change", "claims"),
    [
        (favour_another, {"candidate scores", "candidate choice"}),
        (favour_another_in_full, {"candidate choice"}),
        (
            lambda d: d["evaluation"]["chosen"].update(step=300, sha256="2" * 64),
            {"candidate choice", "chosen checkpoint"},
        ),
        (lambda d: d["evaluation"]["chosen"].update(sha256="8" * 64), {"candidate choice", "chosen checkpoint"}),
        (lambda d: d["evaluation"]["candidates"][1].update(tensors_digest="3" * 64), {"chosen checkpoint"}),
        (lambda d: d["evaluation"]["rule"]["weights"].update({"link.n": 1.0}), {"selection rule"}),
        (
            lambda d: d["evaluation"]["rule"]["weights"].update({"link.mrr": 0.0}),
            {"selection rule", "candidate scores"},
        ),
        (lambda d: d["evaluation"].update(split_digest="0" * 64), {"test split"}),
        (lambda d: d["evaluation"].update(split="valid"), {"test split"}),
        (lambda d: d["evaluation"]["metrics"]["link.mrr"].update(value=0.4), {"gate decision"}),
        (lambda d: d["parents"]["gate"].update(accepted=False), {"gate decision"}),
        (lambda d: d["parents"]["gate"]["minimum"].update({"link.mrr": 0.1}), {"gate decision"}),
        (lambda d: d["config"]["resolved"]["training"].update(seed=5), {"config hashes", "config.json"}),
        (lambda d: d["config"]["sections"].update(model="0" * 64), {"config hashes"}),
        (lambda d: d["config"].update(config_hash="0" * 64), {"config hashes"}),
        (lambda d: d["config"]["resolved"]["training"].update(speed=5), {"config hashes", "config.json"}),
        (lambda d: d["dataset"].update(dataset_hash="0" * 64), {"chosen checkpoint"}),
        (lambda d: d["dataset"].update(vocabulary_digest="0" * 64), {"vocabulary.json"}),
        (lambda d: d["training"]["run_manifest"].update(step=1), {"chosen checkpoint"}),
        (lambda d: d["training"].update(steps=150), {"chosen checkpoint"}),
        (lambda d: d["subjects"].update(tensors_digest="0" * 64), {"tensors digest", "chosen checkpoint"}),
    ],
)
def test_a_manifest_that_contradicts_itself_fails_even_under_its_own_hash(version, change, claims):
    report = verify(str(rewrite(version, change)))
    assert statuses(report)["manifest"] == statuses(report)["manifest hash"] == "OK"
    assert failures(report).keys() == claims


def test_another_versions_weights_do_not_pass(version, tmp_path, stage):
    shutil.copy(stage(1) / "model.safetensors", version / "model.safetensors")
    assert failures(verify(str(version))).keys() == {"file model.safetensors", "tensors digest"}


def test_a_config_of_another_version_of_hopline_is_not_judged(version):
    def change(document):
        document["code"]["hopline"] = "9.0"
        document["config"]["resolved"]["training"]["speed"] = 5

    report = verify(str(rewrite(version, change)))
    assert statuses(report)["config hashes"] == "NOT CHECKED"


def test_scores_that_cannot_be_computed_are_told(version):
    report = verify(str(rewrite(version, lambda d: d["evaluation"]["candidates"][0]["metrics"].clear())))
    assert statuses(report)["candidate scores"] == "NOT CHECKED"


def test_a_candidate_without_a_score_is_left_out(tmp_path, stage, build):
    folder = stage()
    manifest = build(folder, scores=(None, 0.7, None))
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    report = verify(str(folder))
    assert report.exit_code == 0
    assert statuses(report)["candidate scores"] == "OK"


def test_large_weights_are_digested_on_request_alone(version, monkeypatch):
    monkeypatch.setattr(sys.modules["hopline.lineage.verify"], "CHEAP_BYTES", 10)
    assert statuses(verify(str(version)))["tensors digest"] == "NOT CHECKED"
    assert statuses(verify(str(version), deep=True))["tensors digest"] == "OK"


def test_cut_weights_verify(tmp_path, stage, build):
    folder = stage(max_bytes=500)
    (folder / "manifest.json").write_bytes(build(folder).to_bytes())
    report = verify(str(folder))
    assert report.exit_code == 0
    weights = [path.name for path in folder.glob("model-*.safetensors")]
    assert len(weights) > 1
    assert all(statuses(report)[f"file {name}"] == "OK" for name in weights)


def test_the_champion_pointer_is_looked_at(version, tmp_path):
    store = open_store(str(tmp_path / "root"))
    move_champion(store, "tiny", Measured(version.name, "a" * 64, {}), GateConfig())
    assert statuses(verify(str(version)))["champion"] == "OK"
    pointer = version.parent / "champion.json"
    data = pointer.read_bytes()
    pointer.write_bytes(data.replace(version.name.encode(), b"0" * 64))
    report = verify(str(version))
    assert statuses(report)["champion"] == "NOT CHECKED"
    assert "another version is champion" in report.claims[-1].detail
    pointer.write_bytes(data.replace(b'"name":"tiny"', b'"name":"other"'))
    assert "pointer of the model 'other'" in failures(verify(str(version)))["champion"]
    pointer.write_bytes(data[:-5])
    assert "champion" in failures(verify(str(version)))


def test_a_gate_that_refused_verifies_too(tmp_path, stage, build):
    folder = stage()
    champion = Measured("b" * 64, "a" * 64, {"link.mrr": 0.95, "link.n": 600.0})
    manifest = build(folder, champion=champion)
    assert not manifest.parents.gate.accepted
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    report = verify(str(folder))
    assert report.exit_code == 0
    assert "refused" in next(c.detail for c in report.claims if c.name == "gate decision")


def test_a_file_uri_without_a_bucket_is_refused():
    with pytest.raises((ConfigError, StoreAccessError, NotFoundError)):
        verify("s3://")
