"""Somebody without the publisher's key tries to have a signature accepted."""

from __future__ import annotations

import base64
import json
import shutil

import pytest

from hopline.lineage import Manifest
from hopline.lineage.envelope import Envelope, Signature
from hopline.lineage.signing import make_envelope
from tests.attacks.conftest import Scene


def envelope_of(scene: Scene) -> Envelope:
    return Envelope.parse((scene.version / "manifest.dsse.json").read_bytes(), source="e")


def manifest_of(scene: Scene) -> Manifest:
    return Manifest.parse((scene.version / "manifest.json").read_bytes(), source="m")


def put(scene: Scene, *signatures: Signature, payload: bytes | None = None) -> None:
    there = envelope_of(scene)
    scene.write("manifest.dsse.json", Envelope(there.payload_type, payload or there.payload, signatures).to_bytes())


def test_the_signature_is_taken_away(scene: Scene) -> None:
    (scene.version / "manifest.dsse.json").unlink()
    assert "nothing is signed" in scene.failures()["signature"]


def test_signed_again_with_another_key(scene: Scene) -> None:
    scene.write("manifest.dsse.json", make_envelope(manifest_of(scene), [scene.attacker]).to_bytes())
    assert "not signed by" in scene.failures()["signature"]


def test_signed_with_another_key_under_the_publishers_id(scene: Scene) -> None:
    forged = scene.attacker.sign(envelope_of(scene).signed_bytes())
    put(scene, Signature(scene.publisher.key_id, forged))
    assert "not signed by" in scene.failures()["signature"]


def test_the_publishers_signature_of_another_version(scene: Scene) -> None:
    """Genuine, of the right key, and over something else."""
    other = scene.publish("other", 5, scene.publisher)
    theirs = Envelope.parse((other / "manifest.dsse.json").read_bytes(), source="e")
    put(scene, *theirs.signatures)
    assert "not signed by" in scene.failures()["signature"]
    shutil.copy(other / "manifest.dsse.json", scene.version / "manifest.dsse.json")
    assert "another manifest is signed" in scene.failures()["signature"]
    assert "another manifest is signed" in scene.failures(key=False)["signature"]


def test_one_signature_many_times(scene: Scene) -> None:
    forged = scene.attacker.sign(envelope_of(scene).signed_bytes())
    put(scene, *[Signature(key_id, forged) for key_id in (scene.publisher.key_id, scene.attacker.key_id, "", "x")] * 20)
    assert "not signed by" in scene.failures()["signature"]


def test_a_payload_that_was_altered_after_signing(scene: Scene) -> None:
    there = envelope_of(scene)
    document = json.loads(there.payload)
    document["predicate"]["runDetails"]["builder"]["id"] = "urn:trusted"
    put(scene, *there.signatures, payload=json.dumps(document).encode())
    assert "not signed by" in scene.failures()["signature"]
    assert "says otherwise" in scene.failures(key=False)["signature"]


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_second_payload_in_the_same_envelope(scene: Scene, where: str) -> None:
    """One reader takes the first of two equal keys, another the last."""
    text = (scene.version / "manifest.dsse.json").read_text()
    evil = f'"payload":"{base64.b64encode(b"{}").decode()}"'
    text = text.replace("{", "{" + evil + ",", 1) if where == "first" else text[:-1] + "," + evil + "}"
    scene.write("manifest.dsse.json", text.encode())
    assert "'payload' stands twice" in scene.failures()["signature"]


@pytest.mark.parametrize("value", [b"", bytes(64), b"\xff" * 64, bytes(63), bytes(65), bytes(100_000)])
def test_signatures_that_are_none(scene: Scene, value: bytes) -> None:
    put(scene, Signature(scene.publisher.key_id, value))
    assert "not signed by" in scene.failures()["signature"]


def test_a_key_id_that_writes_to_the_terminal(scene: Scene) -> None:
    """The id is shown where no key was given: escapes could draw a line that says OK."""
    evil = Signature("\x1b[2K\rOK  signature\u202e", envelope_of(scene).signatures[0].value)
    put(scene, evil)
    assert scene.failures() == {}  # the signature is genuine, whatever it is called
    assert scene.failures(key=False) == {}
    put(scene, Signature(evil.key_id, bytes(64)))
    assert "\\x1b" in scene.failures()["signature"]
