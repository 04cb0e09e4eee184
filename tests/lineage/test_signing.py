"""Signed versions: what is signed, who signed it, and what the verifier says of both."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from securesystemslib import dsse
from securesystemslib.signer import SSlibKey

from hopline.errors import IntegrityError
from hopline.lineage import Manifest, publish_version, verify
from hopline.lineage.envelope import Envelope
from hopline.lineage.keys import SigningKey, make_key_pair, read_signing_keys
from hopline.lineage.publish import sign_published
from hopline.lineage.signing import make_envelope
from hopline.lineage.statement import BUILD_TYPE, PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE, statement
from hopline.progress import NullSink
from hopline.storage import canonical_json, open_store


class Publisher:
    """Two key pairs and a store to publish to."""

    def __init__(self, folder: Path, root: str) -> None:
        self.names = "old", "new"
        for name in self.names:
            make_key_pair(folder / name)
        self.folder, self.store, self.root = folder, open_store(root), root

    def keys(self, *names: str) -> tuple[SigningKey, ...]:
        return read_signing_keys([f"file:{self.folder}/{name}.key" for name in names], environ={}) if names else ()

    def public(self, *names: str) -> list[Path]:
        return [self.folder / f"{name}.pub" for name in names]


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path / "keys", str(tmp_path / "root"))


@pytest.fixture
def signed(publisher: Publisher, stage: Callable[..., Path], build: Callable[..., Manifest]) -> Path:
    """The folder of a version that is signed by the key ``old``."""
    folder = stage()
    manifest = build(folder)
    keys = publisher.keys("old")
    publish_version(publisher.store, "tiny", folder, manifest, keys=keys, sink=NullSink())
    return Path(publisher.root, "models/tiny", manifest.manifest_hash)


def signature(target: Path | str, *keys: Path) -> tuple[str, str]:
    """Status and detail of the claim, which stands once."""
    (claim,) = [claim for claim in verify(str(target), keys=keys).claims if claim.name == "signature"]
    assert claim.detail.isprintable()
    return claim.status, claim.detail


def manifest_of(folder: Path) -> Manifest:
    return Manifest.parse((folder / "manifest.json").read_bytes(), source="m")


def sign_again(folder: Path, keys: tuple[SigningKey, ...], change: Callable[[dict], object]) -> None:
    """What somebody with ``keys`` can do: change what is signed and sign it."""
    document = statement(manifest_of(folder))
    change(document)
    envelope = Envelope(PAYLOAD_TYPE, canonical_json(document)).with_signatures(keys)
    (folder / "manifest.dsse.json").write_bytes(envelope.to_bytes())


def test_the_publishers_key_verifies(signed: Path, publisher: Publisher) -> None:
    (old,) = publisher.public("old")
    report = verify(str(signed), keys=[old])
    assert report.exit_code == 0
    status, detail = signature(signed, old)
    assert status == "OK"
    assert str(old) in detail
    assert publisher.keys("old")[0].key_id[:12] in detail
    assert "6 files" in detail


def test_without_a_key_it_is_said_that_nothing_was_checked(signed: Path) -> None:
    status, detail = signature(signed)
    assert status == "NOT CHECKED"
    assert "give the publisher's public key" in detail


def test_another_key_does_not_verify(signed: Path, publisher: Publisher) -> None:
    (new,) = publisher.public("new")
    assert verify(str(signed), keys=[new]).exit_code == 1
    status, detail = signature(signed, new)
    assert status == "FAIL"
    assert f"not signed by {new}" in detail


def test_one_of_several_keys_is_enough(signed: Path, publisher: Publisher) -> None:
    assert signature(signed, *publisher.public("new", "old"))[0] == "OK"


def test_a_key_without_a_signature_fails(signed: Path, publisher: Publisher) -> None:
    (signed / "manifest.dsse.json").unlink()
    assert signature(signed)[0] == "NOT CHECKED"
    status, detail = signature(signed, *publisher.public("old"))
    assert (status, "nothing is signed" in detail) == ("FAIL", True)


def test_the_reference_implementation_verifies_a_published_version(signed: Path, publisher: Publisher) -> None:
    (key,) = publisher.keys("old")
    theirs = SSlibKey(key.key_id, "ed25519", "ed25519", {"public": key.public.key.public_bytes_raw().hex()})
    envelope = dsse.Envelope.from_dict(json.loads((signed / "manifest.dsse.json").read_bytes()))
    assert set(envelope.verify([theirs], 1)) == {key.key_id}
    assert envelope.payload_type == "application/vnd.in-toto+json"


def test_what_is_signed_is_provenance_of_every_file(signed: Path, publisher: Publisher) -> None:
    """in-toto Statement v1 and SLSA provenance v1: the fields that both require, and no null."""
    document = json.loads(Envelope.parse((signed / "manifest.dsse.json").read_bytes(), source="e").payload)
    assert (document["_type"], document["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    manifest = manifest_of(signed)
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in document["subject"]}
    files = {file.path: file.sha256 for file in manifest.subjects.files}
    assert subjects == {**files, "manifest.json": manifest.manifest_hash}
    definition = document["predicate"]["buildDefinition"]
    assert definition["buildType"] == BUILD_TYPE
    assert definition["externalParameters"]["config"] == manifest.config.resolved
    digests = {item["name"]: item["digest"] for item in definition["resolvedDependencies"]}
    assert digests["dataset"] == {"hopline_dataset": manifest.dataset.dataset_hash}
    details = document["predicate"]["runDetails"]
    assert details["builder"]["id"] == "urn:hopline:builder:process"
    assert len(details["byproducts"]) >= len(manifest.evaluation.candidates)
    for value in (definition["resolvedDependencies"], details):
        assert "null" not in json.dumps(value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["subject"].pop(0), "it says otherwise than the manifest"),
        (lambda d: d["subject"].append({"name": "evil.py", "digest": {"sha256": "0" * 64}}), "'evil.py'"),
        (lambda d: d["subject"].append(d["subject"][0]), "twice"),
        (lambda d: d["subject"][0]["digest"].update(sha256="0" * 64), "it says otherwise than the manifest"),
        (lambda d: d["subject"][0].pop("digest"), "not laid out"),
        (lambda d: d.update(subject=3), "not laid out"),
        (lambda d: d.update(subject=[{"name": ["x"], "digest": {"sha256": "0"}}]), "as no text"),
        (lambda d: d.update(_type="https://in-toto.io/Statement/v0.1"), "no in-toto statement"),
        (lambda d: d.update(predicateType="https://spdx.dev/Document\x1b"), "spdx"),
        (lambda d: d["predicate"]["buildDefinition"].update(buildType="urn:x"), "use a newer one"),
        (lambda d: d["predicate"].pop("buildDefinition"), "not laid out"),
        (
            lambda d: d["predicate"]["buildDefinition"]["externalParameters"]["config"].update(name="x"),
            "says otherwise",
        ),
        (lambda d: d["predicate"]["runDetails"]["builder"].update(id="urn:trusted"), "says otherwise"),
        (lambda d: d.update(more=1), "says otherwise"),
    ],
)
def test_a_statement_that_is_not_about_this_version_fails(
    signed: Path, publisher: Publisher, change: Callable[[dict], object], said: str
) -> None:
    """Even the publisher's own key does not make it true; and without a key it is seen too."""
    sign_again(signed, publisher.keys("old"), change)
    for keys in (publisher.public("old"), []):
        status, detail = signature(signed, *keys)
        assert status == "FAIL"
        assert said in detail


def test_other_bytes_of_the_same_statement_hold(signed: Path, publisher: Publisher) -> None:
    """A signature by another tool need not be over canonical JSON."""
    text = json.dumps(statement(manifest_of(signed)), indent=1).encode()
    data = Envelope(PAYLOAD_TYPE, text).with_signatures(publisher.keys("old")).to_bytes()
    (signed / "manifest.dsse.json").write_bytes(data)
    assert signature(signed, *publisher.public("old"))[0] == "OK"


def test_a_signed_payload_of_another_type_fails(signed: Path, publisher: Publisher) -> None:
    payload = canonical_json(statement(manifest_of(signed)))
    data = Envelope("application/json", payload).with_signatures(publisher.keys("old")).to_bytes()
    (signed / "manifest.dsse.json").write_bytes(data)
    assert "application/json" in signature(signed, *publisher.public("old"))[1]
    assert signature(signed)[0] == "FAIL"


def test_an_envelope_that_is_no_file_or_too_large(signed: Path, publisher: Publisher) -> None:
    path = signed / "manifest.dsse.json"
    path.rename(signed.parent / "elsewhere.json")
    path.symlink_to(signed.parent / "elsewhere.json")
    assert signature(signed, *publisher.public("old")) == ("FAIL", "manifest.dsse.json is no ordinary file")
    path.unlink()
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert "more than the" in signature(signed)[1]


def test_a_damaged_manifest_is_never_ok(signed: Path, publisher: Publisher) -> None:
    path = signed / "manifest.json"
    path.write_bytes(path.read_bytes()[:-3])
    for keys in (publisher.public("old"), []):
        status, detail = signature(signed, *keys)
        assert (status, "another manifest is signed" in detail) == ("FAIL", True)


def test_the_signature_of_a_manifest_that_cannot_be_read(signed: Path, publisher: Publisher) -> None:
    """Signed as it is, and still no manifest: the claim says no more than that."""
    path = signed / "manifest.json"
    path.write_bytes(path.read_bytes() + b"\n")
    broken = verify(str(signed)).manifest_hash

    def change(document: dict) -> None:
        for subject in document["subject"]:
            if subject["name"] == "manifest.json":
                subject["digest"]["sha256"] = broken

    path.write_bytes(path.read_bytes()[:-1])
    sign_again(signed, publisher.keys("old"), change)
    path.write_bytes(path.read_bytes() + b"\n")
    assert signature(signed, *publisher.public("old"))[0] == "NOT CHECKED"
    assert verify(str(signed), keys=publisher.public("old")).exit_code == 1


def test_equal_versions_get_equal_envelopes(signed: Path, publisher: Publisher) -> None:
    assert (
        make_envelope(manifest_of(signed), publisher.keys("old")).to_bytes()
        == (signed / "manifest.dsse.json").read_bytes()
    )


def test_a_new_key_signs_beside_the_old_one(signed: Path, publisher: Publisher) -> None:
    """Rotation: whoever has either public key can check the version, and nothing else changes."""
    before = (signed / "manifest.dsse.json").read_bytes()
    sign_published(publisher.store, "tiny", signed.name, ())
    sign_published(publisher.store, "tiny", signed.name, publisher.keys("old"))
    assert (signed / "manifest.dsse.json").read_bytes() == before
    sign_published(publisher.store, "tiny", signed.name, publisher.keys("new"))
    for names in (["old"], ["new"], ["old", "new"]):
        assert signature(signed, *publisher.public(*names))[0] == "OK"
    document = json.loads((signed / "manifest.dsse.json").read_bytes())
    assert len(document["signatures"]) == 2
    assert document["payload"] == json.loads(before)["payload"]


def test_a_version_that_was_published_unsigned_can_be_signed(signed: Path, publisher: Publisher) -> None:
    expected = (signed / "manifest.dsse.json").read_bytes()
    (signed / "manifest.dsse.json").unlink()
    sign_published(publisher.store, "tiny", signed.name, publisher.keys("old"))
    assert (signed / "manifest.dsse.json").read_bytes() == expected


def test_signatures_at_the_same_time_are_all_kept(signed: Path, publisher: Publisher, tmp_path: Path) -> None:
    for number in range(6):
        make_key_pair(tmp_path / f"racers/{number}")
    keys = read_signing_keys([f"file:{tmp_path}/racers"], environ={})
    with ThreadPoolExecutor(len(keys)) as pool:
        list(pool.map(lambda key: sign_published(publisher.store, "tiny", signed.name, (key,)), keys))
    for number in range(6):
        assert signature(signed, tmp_path / f"racers/{number}.pub")[0] == "OK"
    assert signature(signed, *publisher.public("old"))[0] == "OK"


def test_an_envelope_about_something_else_is_not_signed_over(signed: Path, publisher: Publisher) -> None:
    sign_again(signed, publisher.keys("old"), lambda d: d["subject"].pop())
    for data in ((signed / "manifest.dsse.json").read_bytes(), b"{}", b"\xff"):
        (signed / "manifest.dsse.json").write_bytes(data)
        with pytest.raises(IntegrityError, match=r"manifest\.dsse\.json.*restore it, or remove it"):
            sign_published(publisher.store, "tiny", signed.name, publisher.keys("new"))
        assert (signed / "manifest.dsse.json").read_bytes() == data


def test_an_altered_manifest_is_not_signed(signed: Path, publisher: Publisher) -> None:
    path = signed / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"value":0.8', b'"value":0.9'))
    with pytest.raises(IntegrityError):
        sign_published(publisher.store, "tiny", signed.name, publisher.keys("new"))


@pytest.mark.s3
def test_a_signed_version_in_s3(s3_root: str, tmp_path: Path, stage, build) -> None:
    publisher = Publisher(tmp_path / "keys", s3_root)
    folder = stage()
    manifest = build(folder)
    keys = publisher.keys("old")
    version = publish_version(publisher.store, "tiny", folder, manifest, keys=keys, sink=NullSink())
    sign_published(publisher.store, "tiny", version.manifest_hash, publisher.keys("old", "new"))
    assert signature(version.manifest_uri, *publisher.public("new"))[0] == "OK"
    assert verify(version.manifest_uri, keys=publisher.public("old")).exit_code == 0


def test_the_payload_is_plain_base64(signed: Path) -> None:
    """What a person does with jq and base64 -d."""
    document = json.loads((signed / "manifest.dsse.json").read_bytes())
    assert json.loads(base64.b64decode(document["payload"], validate=True))["_type"] == STATEMENT_TYPE


@pytest.mark.skipif(not (shutil.which("jq") and shutil.which("openssl")), reason="needs jq and openssl")
def test_the_commands_of_the_documentation_check_a_version_without_hopline(
    signed: Path, publisher: Publisher, tmp_path: Path
) -> None:
    page = Path(__file__).parents[2] / "docs/check-a-model.md"
    (block,) = [text for text in page.read_text().split("```") if "openssl pkeyutl" in text]
    commands = block.replace("/tmp/", f"{tmp_path}/").replace("../publisher.pub", str(publisher.public("old")[0]))

    def run() -> str:
        done = subprocess.run(["bash", "-c", commands], cwd=signed, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert run().count(": OK") == len(list(signed.iterdir())) - 1
    assert "Signature Verified Successfully" in run()
    document = json.loads((signed / "manifest.dsse.json").read_bytes())
    document["payload"] = base64.b64encode(base64.b64decode(document["payload"]) + b" ").decode()
    (signed / "manifest.dsse.json").write_text(json.dumps(document))
    assert "Signature Verification Failure" in run()
