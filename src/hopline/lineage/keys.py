"""Ed25519 keys: made, read from files, environment variables and mounted secrets, and named by their digest."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hopline.errors import ConfigError, DataError, NotFoundError
from hopline.storage.local import os_errors

__all__ = [
    "KEY_FILE_VARIABLE",
    "KEY_VARIABLE",
    "KeyPair",
    "PublicKey",
    "SigningKey",
    "make_key_pair",
    "read_public_key",
    "read_signing_keys",
]

KEY_VARIABLE: Final = "HOPLINE_SIGNING_KEY"
"""Environment variable with the publisher's private key itself, as PEM; several keys may follow each other."""
KEY_FILE_VARIABLE: Final = "HOPLINE_SIGNING_KEY_FILE"
"""Environment variable with the path of a private key's file or of a folder of them, several with ``os.pathsep`` between."""

_MAX_BYTES: Final = 1 << 16
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that checks signatures. ``key_id`` is the sha256 of its DER form (SubjectPublicKeyInfo), ``source`` its file."""

    key_id: str
    source: str = field(compare=False)
    key: Ed25519PublicKey = field(compare=False, repr=False)

    @classmethod
    def of(cls, key: Ed25519PublicKey, source: str) -> PublicKey:
        """Name a key by its digest."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return cls(hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest(), source, key)

    def holds(self, signature: bytes, message: bytes) -> bool:
        """Whether ``signature`` is this key's over ``message``."""
        try:
            self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def to_pem(self) -> bytes:
        """The key as a file holds it."""
        return self.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs. What it is made of shows nowhere: not in ``repr``, no error, no log."""

    public: PublicKey
    key: Ed25519PrivateKey = field(compare=False, repr=False)

    @property
    def key_id(self) -> str:
        """The public key's id."""
        return self.public.key_id

    def sign(self, message: bytes) -> bytes:
        """The signature of ``message``, 64 bytes; the same each time (RFC 8032)."""
        return self.key.sign(message)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The two files of a new key."""

    key_id: str
    private: Path
    public: Path


def make_key_pair(name: Path) -> KeyPair:
    """Make an Ed25519 key: ``<name>.key``, which only its owner may read, and ``<name>.pub`` for everybody.

    Raises:
        ConfigError: one of the files is there already; a key is never overwritten.
        StoreError: the folder cannot be written.
    """
    private, public = Path(f"{name}.key"), Path(f"{name}.pub")
    for path in (private, public):
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{path}: is there already, and a key is never overwritten; choose another name")
    key = Ed25519PrivateKey.generate()
    found = PublicKey.of(key.public_key(), str(public))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for path, data, mode in ((private, secret, 0o600), (public, found.to_pem(), 0o644)):
        with os_errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
    return KeyPair(found.key_id, private, public)


def read_public_key(path: Path) -> PublicKey:
    """Read a publisher's public key, a PEM file.

    Raises:
        NotFoundError: there is no such file.
        DataError: it is none, is a private key, or is a key of another kind than Ed25519.
        StoreError: it cannot be read.
    """
    text = _read(Path(path), "public key")
    if "PRIVATE KEY-----" in text:
        raise DataError(f"{path}: is a private key, which only the publisher has; expected the public one (.pub)")
    try:
        key = serialization.load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise DataError(f"{path}: is no public key; expected a PEM file as `hopline keygen` makes") from None
    if not isinstance(key, Ed25519PublicKey):
        raise DataError(f"{path}: is a public key of another kind; expected Ed25519, as `hopline keygen` makes")
    return PublicKey.of(key, str(path))


def read_signing_keys(
    references: Sequence[str] = (), *, environ: Mapping[str, str] | None = None
) -> tuple[SigningKey, ...]:
    """Read the keys that a publisher signs with; none = versions are not signed.

    Args:
        references: ``file:PATH`` - a PEM file, or a folder such as a mounted secret, of which every ``*.key`` is taken - or
            ``env:NAME``, a variable that holds PEM. Empty: ``HOPLINE_SIGNING_KEY`` and ``HOPLINE_SIGNING_KEY_FILE``.
        environ: the environment; None = that of the process.

    Raises:
        ConfigError: a variable is not set, or what was found is no Ed25519 private key. It never says what was found.
        NotFoundError: there is no such file, or no key in the folder.
        StoreError: a file cannot be read.
    """
    environ = os.environ if environ is None else environ
    if not references:
        references = [f"env:{KEY_VARIABLE}"] if environ.get(KEY_VARIABLE) else []
        references += [f"file:{path}" for path in environ.get(KEY_FILE_VARIABLE, "").split(os.pathsep) if path]
    keys: dict[str, SigningKey] = {}
    for reference in references:
        kind, _, place = reference.partition(":")
        for text, source in _secrets(place, environ) if kind == "env" else _secret_files(Path(place)):
            for key in _private_keys(text, source):
                keys.setdefault(key.key_id, key)
    return tuple(keys[key_id] for key_id in sorted(keys))


def _secrets(name: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if not environ.get(name):
        raise ConfigError(f"{name}: the variable is not set, and the config says that it holds the signing key; set it")
    yield environ[name], name


def _secret_files(path: Path) -> Iterator[tuple[str, str]]:
    if not path.is_dir():
        yield _read(path, "signing key"), str(path)
        return
    with os_errors("list", path):
        files = sorted(file for file in path.iterdir() if file.suffix == ".key" and file.is_file())
    if not files:
        raise NotFoundError(f"{path}: holds no signing key; expected files *.key, as `hopline keygen` makes")
    for file in files:
        yield _read(file, "signing key"), str(file)


def _private_keys(text: str, source: str) -> Iterator[SigningKey]:
    blocks = [match.group() for match in _PEM.finditer(text)]
    if not blocks:
        raise ConfigError(f"{source}: holds no private key; expected PEM, as `hopline keygen` makes")
    for block in blocks:
        try:
            key = serialization.load_pem_private_key(block.encode(), password=None)
        except TypeError:
            raise ConfigError(f"{source}: the private key is encrypted; expected one without a passphrase") from None
        except (ValueError, UnsupportedAlgorithm):
            raise ConfigError(f"{source}: is no private key; expected PEM, as `hopline keygen` makes") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(
                f"{source}: is a private key of another kind; expected Ed25519, as `hopline keygen` makes"
            )
        yield SigningKey(PublicKey.of(key.public_key(), source), key)


def _read(path: Path, what: str) -> str:
    if not path.exists():
        raise NotFoundError(f"{path}: there is no such {what}")
    with os_errors("read", path), path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise DataError(f"{path}: is too large to be a {what}; expected a PEM file as `hopline keygen` makes")
    return data.decode("ascii", errors="replace")
