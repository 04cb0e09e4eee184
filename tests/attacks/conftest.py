"""A signed version, and what somebody has who did not make it: its files, the format, and a key of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from hopline.lineage import Manifest, SigningKey, make_key_pair, publish_version, read_signing_keys, verify
from hopline.progress import NullSink
from hopline.storage import open_store, sha256_bytes
from tests.lineage.conftest import build, stage

__all__ = ["build", "stage"]


@dataclass(frozen=True)
class Scene:
    """``version``: the folder of a published version, signed by ``publisher``; ``attacker`` has another key."""

    version: Path
    publisher: SigningKey
    attacker: SigningKey
    public: Path
    root: Path
    stage: Callable[..., Path]
    build: Callable[..., Manifest]

    def failures(self, folder: Path | None = None, *, key: bool = True) -> dict[str, str]:
        """The claims that fail, with their reasons; with the publisher's public key or without."""
        report = verify(str(folder or self.version), keys=[self.public] if key else [])
        assert all(claim.detail.isprintable() and claim.name.isprintable() for claim in report.claims)
        failed = {claim.name: claim.detail for claim in report.claims if claim.status == "FAIL"}
        assert report.exit_code == bool(failed)
        return failed

    def write(self, name: str, data: bytes) -> None:
        """Replace a file of the version."""
        (self.version / name).write_bytes(data)

    def edited(self, change: Callable[[dict[str, Any]], object]) -> Path:
        """The version with an edited manifest, in canonical form and under the name of its new hash."""
        document = json.loads((self.version / "manifest.json").read_bytes())
        change(document)
        data = rfc8785.dumps(document)
        self.write("manifest.json", data)
        return self.version.rename(self.version.parent / sha256_bytes(data))

    def publish(self, name: str, seed: int, *keys: SigningKey) -> Path:
        """Publish other weights to a root of their own."""
        folder = self.stage(seed, folder=self.root.parent / f"{name}-{seed}")
        manifest = self.build(folder, mrr=0.9)
        root = self.root.parent / f"root-{name}-{seed}"
        publish_version(open_store(str(root)), "tiny", folder, manifest, keys=keys, sink=NullSink())
        return root / "models/tiny" / manifest.manifest_hash


@pytest.fixture
def scene(tmp_path: Path, stage: Callable[..., Path], build: Callable[..., Manifest]) -> Scene:
    """A version that verifies."""
    keys = []
    for name in ("publisher", "attacker"):
        pair = make_key_pair(tmp_path / "keys" / name)
        keys += read_signing_keys([f"file:{pair.private}"], environ={})
    folder, root = stage(), tmp_path / "root"
    manifest = build(folder)
    publish_version(open_store(str(root)), "tiny", folder, manifest, keys=keys[:1], sink=NullSink())
    version = root / "models/tiny" / manifest.manifest_hash
    made = Scene(version, keys[0], keys[1], tmp_path / "keys/publisher.pub", root, stage, build)
    assert made.failures() == {}
    return made
