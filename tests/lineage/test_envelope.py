"""DSSE envelopes, beside the reference implementation of its authors (securesystemslib)."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib import dsse
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from hopline.errors import DataError
from hopline.lineage.envelope import Envelope, Signature
from hopline.lineage.keys import make_key_pair, read_public_key, read_signing_keys

TYPE = "application/vnd.in-toto+json"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two signing keys, in the order of their ids."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("a", "b"):
        make_key_pair(folder / name)
    return read_signing_keys([f"file:{folder}"], environ={})


def theirs(key) -> SSlibKey:
    """A public key as securesystemslib has it, under our key id."""
    return SSlibKey(key.key_id, "ed25519", "ed25519", {"public": key.public.key.public_bytes_raw().hex()})


def test_the_example_of_the_specification() -> None:
    """DSSE protocol: PAE("http://example.com/HelloWorld", "hello world")."""
    envelope = Envelope("http://example.com/HelloWorld", b"hello world")
    assert envelope.signed_bytes() == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.binary(max_size=40))
def test_the_signed_bytes_are_those_of_the_reference(kind: str, payload: bytes) -> None:
    assert Envelope(kind, payload).signed_bytes() == dsse.Envelope(payload, kind, {}).pae()


def test_the_reference_verifies_ours(keys) -> None:
    data = Envelope(TYPE, b"{}").with_signatures(keys).to_bytes()
    read = dsse.Envelope.from_dict(json.loads(data))
    assert set(read.verify([theirs(key) for key in keys], 2)) == {key.key_id for key in keys}
    altered = json.loads(data)
    altered["payload"] = base64.b64encode(b"[]").decode()
    with pytest.raises(VerificationError):
        dsse.Envelope.from_dict(altered).verify([theirs(keys[0])], 1)


def test_ours_verifies_the_reference(keys) -> None:
    envelope = dsse.Envelope(b"payload", TYPE, {})
    envelope.sign(CryptoSigner(keys[0].key, theirs(keys[0])))
    read = Envelope.parse(json.dumps(envelope.to_dict(), indent=2).encode(), source="e")
    assert (read.payload_type, read.payload) == (TYPE, b"payload")
    assert read.signed_by([keys[0].public, keys[1].public]) == (keys[0].public,)
    assert read.signed_by([keys[1].public]) == ()


def test_what_is_written_reads_back_and_is_the_same_in_any_order(keys) -> None:
    forth = Envelope(TYPE, b"p").with_signatures(keys)
    back = Envelope(TYPE, b"p").with_signatures(keys[1:]).with_signatures(keys[::-1])
    assert forth.to_bytes() == back.to_bytes()
    assert Envelope.parse(forth.to_bytes(), source="e") == forth


def test_type_and_payload_are_both_signed(keys) -> None:
    signed = Envelope(TYPE, b"payload").with_signatures(keys[:1])
    for kind, payload in (("text/plain", b"payload"), (TYPE, b"Payload"), (f"{TYPE} 7", b"ayload"), (TYPE, b"")):
        assert Envelope(kind, payload, signed.signatures).signed_by([keys[0].public]) == ()


def test_key_ids_are_hints_alone(keys) -> None:
    """A signature counts under a wrong id or none; a right id makes no signature count."""
    a, b = keys
    envelope = Envelope(TYPE, b"p")
    message = envelope.signed_bytes()
    swapped = (Signature(b.key_id, a.sign(message)), Signature(a.key_id, bytes(64)))
    found = Envelope(TYPE, b"p", swapped)
    assert found.signed_by([a.public, b.public]) == (a.public,)
    assert Envelope(TYPE, b"p", (Signature("", a.sign(message)),)).signed_by([a.public]) == (a.public,)
    assert Envelope(TYPE, b"p", (Signature(a.key_id, b.sign(message)),)).signed_by([a.public]) == ()


def test_the_same_signature_many_times_is_one_key(keys) -> None:
    a, b = keys
    value = a.sign(Envelope(TYPE, b"p").signed_bytes())
    many = Envelope(TYPE, b"p", tuple(Signature(key_id, value) for key_id in (a.key_id, b.key_id, "", a.key_id)))
    assert many.signed_by([a.public, a.public, b.public]) == (a.public,)


def test_signatures_have_one_form(keys) -> None:
    """Ed25519 by RFC 8032: the same signature with the group order added to S is refused."""
    order = 2**252 + 27742317777372353535851937790883648493
    value = keys[0].sign(Envelope(TYPE, b"p").signed_bytes())
    other = value[:32] + (int.from_bytes(value[32:], "little") + order).to_bytes(32, "little")
    assert Envelope(TYPE, b"p", (Signature("", other),)).signed_by([keys[0].public]) == ()


def test_url_safe_base64_and_unknown_keys_are_read(keys) -> None:
    payload = bytes(range(248, 256)) * 4
    document = json.loads(Envelope(TYPE, payload).with_signatures(keys[:1]).to_bytes())
    document["payload"] = document["payload"].replace("+", "-").replace("/", "_")
    document["comment"] = document["signatures"][0]["extra"] = {"more": 1}
    del document["signatures"][0]["keyid"]
    assert set("-_") & set(document["payload"])
    read = Envelope.parse(json.dumps(document).encode(), source="e")
    assert read.payload == payload
    assert read.signed_by([keys[0].public]) == (keys[0].public,)


GOOD = {"payload": "e30=", "payloadType": TYPE, "signatures": [{"keyid": "k", "sig": "AAAA"}]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"payload": "e30"}, "payload is not base64"),
        ({"payload": "e31="}, "as an encoder writes it"),  # the same bytes, written otherwise
        ({"payload": "e30=\n"}, "not base64"),
        ({"payload": "ë30="}, "not base64"),
        ({"payload": None}, "payload is NoneType"),
        ({"payloadType": 3}, "payloadType is int"),
        ({"signatures": []}, "1 to 100 signatures"),
        ({"signatures": {}}, "1 to 100 signatures"),
        ({"signatures": GOOD["signatures"] * 101}, "1 to 100 signatures"),
        ({"signatures": ["sig"]}, "a signature is str"),
        ({"signatures": [{"keyid": "k"}]}, "sig is NoneType"),
        ({"signatures": [{"keyid": 3, "sig": "AAAA"}]}, "keyid is int"),
    ],
)
def test_what_is_no_envelope(change: dict, problem: str) -> None:
    Envelope.parse(json.dumps(GOOD).encode(), source="here.json")
    with pytest.raises(DataError, match=problem) as caught:
        Envelope.parse(json.dumps({**GOOD, **change}).encode(), source="here.json")
    assert str(caught.value).startswith("here.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b'{"payload":"","payload":""}'])
def test_what_is_no_json_object(data: bytes) -> None:
    with pytest.raises(DataError):
        Envelope.parse(data, source="here.json")


def test_public_keys_read_from_files_are_the_same(tmp_path: Path, keys) -> None:
    (tmp_path / "p.pub").write_bytes(keys[0].public.to_pem())
    assert read_public_key(tmp_path / "p.pub") == keys[0].public
