"""Check a published version, with nothing but its files: one line for each claim, and never a silent skip."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopline.errors import DataError, HoplineError, NotFoundError
from hopline.lineage.champion import ChampionPointer
from hopline.lineage.claims import Claim, manifest_claims
from hopline.lineage.data import dataset_claims, vocabulary_digest
from hopline.lineage.envelope import MAX_ENVELOPE_BYTES
from hopline.lineage.folder import Listing, VersionFolder, open_version
from hopline.lineage.keys import PublicKey, read_public_key
from hopline.lineage.manifest import ForeignManifestError, Manifest
from hopline.lineage.names import ENVELOPE, MANIFEST
from hopline.lineage.schema import (
    FileRecord,
)
from hopline.lineage.signing import signature_claim
from hopline.lineage.subjects import combine_tensor_digests
from hopline.lineage.tensorfile import FileDigest, digest_tensor_file
from hopline.lineage.values import portable
from hopline.storage import parse_json, sha256_bytes, sha256_file
from hopline.storage.local import os_errors

__all__ = ["VerifyReport", "verify"]

CHEAP_BYTES: Final = 1 << 30
"""Weights of up to so many bytes are digested tensor by tensor even without ``deep``: it takes about a second."""

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_CONFIG: Final = "config.json"
_VOCABULARY: Final = "vocabulary.json"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Every claim of a version. ``manifest_hash`` is the sha256 of the manifest's bytes as they were found."""

    target: str
    manifest_hash: str
    claims: tuple[Claim, ...]

    @property
    def exit_code(self) -> int:
        """0 if no claim fails, else 1."""
        return int(any(claim.status == "FAIL" for claim in self.claims))

    def lines(self) -> list[str]:
        """One line a claim, for a person."""
        return [f"{claim.status:<11}  {claim.name}: {claim.detail}" for claim in self.claims]

    def to_json(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return {
            "target": self.target,
            "manifest_hash": self.manifest_hash,
            "ok": self.exit_code == 0,
            "claims": [{"name": c.name, "status": c.status, "detail": c.detail} for c in self.claims],
        }


def verify(target: str, *, keys: Sequence[Path] = (), dataset: Path | None = None, deep: bool = False) -> VerifyReport:
    """Check the version at ``target``: its folder or its manifest.json, as a local path, ``file://`` or ``s3://``.

    Args:
        keys: files with public keys of the publisher, such as an old one and the one that replaced it: one that signed
            the version is enough. With a key, a missing signature fails.
        dataset: folder of the dataset that the version was made from, to check it too.
        deep: recompute what takes another pass over the bytes: the tensors digest of large weights, the dataset's shards.

    Raises:
        NotFoundError: there is no such version, key or dataset folder.
        ForeignManifestError: the manifest is none of Hopline's, or of another schema version.
        StoreError: something cannot be read.
    """
    trusted = [read_public_key(path) for path in keys]
    if dataset is not None and not dataset.exists():
        raise NotFoundError(f"{dataset}: there is no such dataset folder")
    folder = open_version(target)
    data = folder.manifest()
    digest = sha256_bytes(data)
    manifest, claims = _manifest(folder, data, digest)
    listing = folder.listing()
    claims.append(_signature(folder, listing, trusted, digest, manifest))
    if manifest is None:
        why = "the manifest cannot be read"
        claims += [
            Claim(name, "NOT CHECKED", why) for name in ("files", "tensors digest", "manifest claims", "dataset")
        ]
    else:
        claims += _files(folder, manifest, listing, deep)
        claims += _copies(folder, manifest, listing)
        claims += manifest_claims(manifest)
        claims += dataset_claims(manifest, dataset, deep)
        claims += _not_repeatable(manifest)
        claims.append(_champion(folder, manifest, digest))
    return VerifyReport(folder.uri, digest, tuple(claims))


def _manifest(folder: VersionFolder, data: bytes, digest: str) -> tuple[Manifest | None, list[Claim]]:
    named = bool(_HASH.fullmatch(folder.name))
    if not named:
        detail = f"the folder is called {folder.name!r}, not by a hash; compare this with what you were told: {digest}"
        address = Claim("manifest hash", "NOT CHECKED", detail)
    elif folder.name != digest:
        detail = f"its sha256 is {digest}, and the folder is {folder.name}: it was altered, or is another version's"
        address = Claim("manifest hash", "FAIL", detail)
    else:
        address = Claim("manifest hash", "OK", digest)
    try:
        manifest = Manifest.parse(data, source=MANIFEST)
    except ForeignManifestError as error:
        if address.status == "FAIL":
            return None, [Claim("manifest", "FAIL", str(error)), address]
        raise ForeignManifestError(f"{folder.uri}/{error}") from None
    except DataError as error:
        return None, [Claim("manifest", "FAIL", str(error)), address]
    detail = f"canonical, schema {manifest.schema_id} version {manifest.schema_version}, model {manifest.name}"
    return manifest, [Claim("manifest", "OK", detail), address]


def _signature(
    folder: VersionFolder, listing: Listing, keys: Sequence[PublicKey], digest: str, manifest: Manifest | None
) -> Claim:
    size = listing.sizes.get(ENVELOPE)
    if size is None:
        if ENVELOPE in listing.odd:
            return Claim("signature", "FAIL", f"{ENVELOPE} is no ordinary file")
        return signature_claim(None, keys, digest, manifest)
    if size > MAX_ENVELOPE_BYTES:
        return Claim("signature", "FAIL", f"{ENVELOPE} has more than the {MAX_ENVELOPE_BYTES} bytes that are read")
    with folder.local(ENVELOPE) as path, os_errors("read", path):
        return signature_claim(path.read_bytes(), keys, digest, manifest)


def _files(folder: VersionFolder, manifest: Manifest, listing: Listing, deep: bool) -> Iterator[Claim]:
    weights = [file for file in manifest.subjects.files if file.path.endswith(".safetensors")]
    total = sum(file.size for file in weights)
    by_tensor = deep or total <= CHEAP_BYTES
    digests: list[FileDigest] = []
    damaged = ""
    for file in manifest.subjects.files:
        claim, found, problem = _file(folder, file, listing, by_tensor and file in weights)
        yield claim
        if found is not None:
            digests.append(found)
        elif file in weights:
            damaged = damaged or f"{file.path}: {problem}"
    yield _no_others(manifest, listing)
    if not by_tensor:
        yield Claim("tensors digest", "NOT CHECKED", f"{total} bytes of weights; ask for a deep check")
    elif damaged:
        yield Claim("tensors digest", "FAIL", damaged)
    else:
        yield _tensors(manifest, digests)


def _file(
    folder: VersionFolder, file: FileRecord, listing: Listing, by_tensor: bool
) -> tuple[Claim, FileDigest | None, str]:
    """Check a file; for weights that are digested by tensor also their digest, or why there is none."""
    name = f"file {file.path}"
    size = listing.sizes.get(file.path)
    if size is None:
        what = "is no ordinary file" if file.path in listing.odd else "is missing"
        return Claim(name, "FAIL", what), None, what
    found: FileDigest | None = None
    problem = ""
    with ExitStack() as stack:
        try:
            path = stack.enter_context(folder.local(file.path))
        except NotFoundError:
            return Claim(name, "FAIL", "is missing"), None, "is missing"
        if by_tensor:
            try:
                found = digest_tensor_file(path)
            except DataError as error:
                problem = str(error).removeprefix(f"{path}: ")
        if found is not None:
            sha256, size = found.sha256, found.size
        else:
            with os_errors("read", path):
                sha256, size = sha256_file(path), path.stat().st_size
    if size != file.size:
        state = "truncated" if size < file.size else "longer"
        return Claim(name, "FAIL", f"{state}: {size} bytes, expected {file.size}"), found, problem
    if sha256 != file.sha256:
        return Claim(name, "FAIL", f"altered: sha256 {sha256}, expected {file.sha256}"), found, problem
    return Claim(name, "OK", f"{size} bytes, sha256 {sha256[:12]}"), found, problem


def _no_others(manifest: Manifest, listing: Listing) -> Claim:
    wanted = {file.path for file in manifest.subjects.files} | {MANIFEST, ENVELOPE}
    others = sorted((set(listing.sizes) - wanted) | (set(listing.odd) - wanted))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        return Claim("no other files", "FAIL", f"{others[0]!a}{more} is not in the manifest")
    left = (
        f"; {len(listing.unfinished)} unfinished temporary files of a publisher ignored" if listing.unfinished else ""
    )
    return Claim("no other files", "OK", f"{len(listing.sizes)} files{left}")


def _tensors(manifest: Manifest, digests: list[FileDigest]) -> Claim:
    said = manifest.subjects.tensors_digest
    try:
        found = combine_tensor_digests(digests, source="the weights")
    except DataError as error:
        return Claim("tensors digest", "FAIL", str(error))
    if found != said:
        return Claim("tensors digest", "FAIL", f"the tensors give {found}, the manifest says {said}")
    return Claim("tensors digest", "OK", f"{sum(len(d.tensors) for d in digests)} tensors, {found[:12]}")


def _copies(folder: VersionFolder, manifest: Manifest, listing: Listing) -> Iterator[Claim]:
    """The files that say again what the manifest says."""
    config, problem = _json(folder, listing, _CONFIG)
    if problem:
        yield Claim(_CONFIG, "NOT CHECKED", problem)
    elif _same_config(config, manifest):
        yield Claim(_CONFIG, "OK", "it is the config in the manifest")
    else:
        yield Claim(_CONFIG, "FAIL", "it is not the config in the manifest")
    vocabulary, problem = _json(folder, listing, _VOCABULARY)
    if problem:
        yield Claim(_VOCABULARY, "NOT CHECKED", problem)
        return
    try:
        found, said = vocabulary_digest(vocabulary), manifest.dataset.vocabulary_digest
    except DataError as error:
        yield Claim(_VOCABULARY, "FAIL", str(error))
        return
    if found != said:
        yield Claim(_VOCABULARY, "FAIL", f"its digest is {found}, the dataset's vocabulary has {said}")
    else:
        yield Claim(_VOCABULARY, "OK", f"it is the dataset's vocabulary, {said[:12]}")


def _same_config(document: Any, manifest: Manifest) -> bool:
    """Whether the file holds the config, alone or under the key ``config`` beside other things."""
    said = manifest.config.resolved
    found = portable(document)
    return bool(found == said or (isinstance(found, dict) and found.get("config") == said))


def _json(folder: VersionFolder, listing: Listing, name: str) -> tuple[Any, str]:
    if name not in listing.sizes:
        return None, "there is no such file"
    try:
        with folder.local(name) as path, os_errors("read", path):
            return parse_json(path.read_bytes(), source=name), ""
    except DataError as error:
        return None, str(error)


def _not_repeatable(manifest: Manifest) -> Iterator[Claim]:
    evaluation, code = manifest.evaluation, manifest.code
    yield Claim(
        "metrics",
        "NOT CHECKED",
        f"{len(evaluation.metrics)} metrics on {evaluation.split}; evaluate the model on the dataset again to check them",
    )
    made_by = f"commit {code.git_commit}" if code.git_commit else f"no commit ({code.reasons['git_commit']})"
    dirty = ", with changes beside it" if code.git_dirty else ""
    yield Claim("code", "NOT CHECKED", f"recorded is {made_by}{dirty}; train again from it to check")


def _champion(folder: VersionFolder, manifest: Manifest, digest: str) -> Claim:
    name = "champion"
    try:
        found = folder.pointer()
        if found is None:
            return Claim(name, "NOT CHECKED", "there is no champion pointer beside this folder")
        pointer = ChampionPointer.parse(found[1], source=found[0])
    except DataError as error:
        return Claim(name, "FAIL", str(error))
    except HoplineError as error:
        return Claim(name, "NOT CHECKED", f"the pointer cannot be read: {error}")
    if pointer.name != manifest.name:
        return Claim(name, "FAIL", f"{found[0]} is the pointer of the model {pointer.name!r}, not of {manifest.name!r}")
    if pointer.manifest_hash != digest:
        return Claim(name, "NOT CHECKED", f"another version is champion: {pointer.manifest_hash}")
    return Claim(name, "OK", f"this version is champion since {pointer.decided_at}")
