"""Keys: made, read from where they may lie, and never shown."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hopline.errors import ConfigError, DataError, HoplineError, NotFoundError, StoreError
from hopline.lineage.keys import (
    KEY_FILE_VARIABLE,
    KEY_VARIABLE,
    make_key_pair,
    read_public_key,
    read_signing_keys,
)

PKCS8 = serialization.PrivateFormat.PKCS8
PEM = serialization.Encoding.PEM


@pytest.fixture
def pairs(tmp_path: Path) -> list:
    """Two key pairs, the one with the lower key id first."""
    return sorted((make_key_pair(tmp_path / name) for name in ("a", "b")), key=lambda pair: pair.key_id)


def test_a_pair_signs_and_checks(pairs) -> None:
    (key,) = read_signing_keys([f"file:{pairs[0].private}"], environ={})
    public = read_public_key(pairs[0].public)
    assert key.key_id == public.key_id == pairs[0].key_id
    signature = key.sign(b"text")
    assert public.holds(signature, b"text")
    assert key.sign(b"text") == signature
    assert not public.holds(signature, b"texts")
    assert not public.holds(signature[:-1], b"text")
    assert not read_public_key(pairs[1].public).holds(signature, b"text")


def test_only_its_owner_may_read_a_private_key(pairs) -> None:
    assert stat.S_IMODE(pairs[0].private.stat().st_mode) == 0o600


def test_a_key_is_never_overwritten(tmp_path: Path, pairs) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"a\.key: is there already"):
        make_key_pair(tmp_path / "a")
    (tmp_path / "c.pub").write_text("")
    with pytest.raises(ConfigError, match=r"c\.pub: is there already"):
        make_key_pair(tmp_path / "c")
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != "c.pub"} == before


def test_keys_from_files_folders_and_variables(tmp_path: Path, pairs) -> None:
    ids = [pair.key_id for pair in pairs]
    first, second = (pair.private for pair in pairs)
    both = first.read_text() + second.read_text()

    def found(*references: str, **environ: str) -> list[str]:
        return [key.key_id for key in read_signing_keys(references, environ=environ)]

    assert found() == []
    assert found(f"file:{first}") == ids[:1]
    assert found(f"file:{second}", f"file:{first}", f"file:{first}") == ids
    assert found("env:MINE", MINE=first.read_text()) == ids[:1]
    assert found("env:MINE", MINE=both) == ids
    assert found(**{KEY_VARIABLE: both}) == ids
    assert found(**{KEY_FILE_VARIABLE: str(second)}) == ids[1:]
    assert found(**{KEY_FILE_VARIABLE: f"{second}{os.pathsep}{first}"}) == ids
    assert found(**{KEY_VARIABLE: first.read_text(), KEY_FILE_VARIABLE: str(second)}) == ids
    assert found(f"file:{first}", **{KEY_VARIABLE: second.read_text()}) == ids[:1]
    assert found(**{KEY_VARIABLE: "", KEY_FILE_VARIABLE: ""}) == []
    # As Kubernetes mounts a secret: names that lead by two links to a folder with a date.
    mounted = tmp_path / "secret"
    (mounted / "..2026").mkdir(parents=True)
    (mounted / "..data").symlink_to("..2026")
    for name, pair in zip(("old", "new"), pairs, strict=True):
        (mounted / f"..2026/{name}.key").write_bytes(pair.private.read_bytes())
        (mounted / f"{name}.key").symlink_to(f"..data/{name}.key")
    assert found(f"file:{mounted}") == ids


def test_windows_line_ends(tmp_path: Path, pairs) -> None:
    for source in (pairs[0].private, pairs[0].public):
        (tmp_path / f"w{source.suffix}").write_bytes(source.read_bytes().replace(b"\n", b"\r\n"))
    (key,) = read_signing_keys([f"file:{tmp_path}/w.key"], environ={})
    assert key.public == read_public_key(tmp_path / "w.pub")


def test_what_is_no_signing_key(tmp_path: Path, pairs) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    secret = Ed25519PrivateKey.generate()
    contents = {
        "empty": b"",
        "rubbish": b"\xff\x00 hello",
        "public": pairs[0].public.read_bytes(),
        "cut": pairs[0].private.read_bytes().replace(b"MC4C", b"MC4"),
        "ec": other.private_bytes(PEM, PKCS8, serialization.NoEncryption()),
        "locked": secret.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"x")),
        "long": b"x" * 100_000,
    }
    for name, data in contents.items():
        path = tmp_path / f"{name}.pem"
        path.write_bytes(data)
        with pytest.raises((ConfigError, DataError)) as caught:
            read_signing_keys([f"file:{path}"], environ={})
        _is_one_careful_line(caught.value, str(path), data)
    with pytest.raises(NotFoundError, match=r"gone\.key"):
        read_signing_keys([f"file:{tmp_path}/gone.key"], environ={})
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotFoundError, match="holds no signing key"):
        read_signing_keys([f"file:{tmp_path}/folder"], environ={})
    for environ in ({}, {"MINE": ""}):
        with pytest.raises(ConfigError, match="MINE: the variable is not set"):
            read_signing_keys(["env:MINE"], environ=environ)
    with pytest.raises(ConfigError) as caught:
        read_signing_keys(["env:MINE"], environ={"MINE": "c2VjcmV0IHNlY3JldA"})
    assert "c2VjcmV0" not in str(caught.value)


def test_what_is_no_public_key(tmp_path: Path, pairs) -> None:
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    contents = {
        "empty": b"",
        "rubbish": b"\xff\x00 hello",
        "private": pairs[0].private.read_bytes(),
        "ec": other.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    }
    for name, data in contents.items():
        path = tmp_path / f"{name}.pem"
        path.write_bytes(data)
        with pytest.raises(DataError) as caught:
            read_public_key(path)
        _is_one_careful_line(caught.value, str(path), data)
    with pytest.raises(NotFoundError, match="no such public key"):
        read_public_key(tmp_path / "gone.pub")
    with pytest.raises(StoreError):
        read_public_key(tmp_path)


def test_a_signing_key_does_not_show(pairs) -> None:
    (key,) = read_signing_keys([f"file:{pairs[0].private}"], environ={})
    secret = key.key.private_bytes_raw()
    for text in (repr(key), str(key), f"{key.public}"):
        assert secret.hex() not in text
        assert "Private" not in text


def _is_one_careful_line(error: HoplineError, path: str, content: bytes) -> None:
    text = str(error)
    assert error.exit_code == 2
    assert text.startswith(path)
    assert "\n" not in text
    lines = [line for line in content.decode("ascii", "replace").splitlines() if len(line) > 40 and "-----" not in line]
    assert not any(line[:40] in text for line in lines)
