"""Proof of what was published: the manifest, its signature, publishing, the champion and its gate, and the verifier."""

from hopline.lineage.champion import (
    ChampionMove,
    ChampionPointer,
    history,
    measured_at_publishing,
    move_champion,
    read_champion,
)
from hopline.lineage.claims import Claim
from hopline.lineage.data import dataset_part, split_digest, vocabulary_digest
from hopline.lineage.differences import RUN_FACTS, Difference, compare_manifests, read_manifest
from hopline.lineage.facts import (
    candidate,
    code_part,
    config_part,
    environment_part,
    gate_record,
    metrics_table,
    pipeline_part,
)
from hopline.lineage.fetch import FetchedVersion, fetch_version
from hopline.lineage.gate import GateDecision, Measured, decide
from hopline.lineage.keys import (
    KeyPair,
    PublicKey,
    SigningKey,
    make_key_pair,
    read_public_key,
    read_signing_keys,
)
from hopline.lineage.manifest import SCHEMA_ID, SCHEMA_VERSION, ForeignManifestError, Manifest
from hopline.lineage.names import ENVELOPE, MANIFEST
from hopline.lineage.publish import PublishedVersion, publish_version, sign_published, version_prefix
from hopline.lineage.record import RunManifest
from hopline.lineage.subjects import describe_files, tensors_digest
from hopline.lineage.verify import VerifyReport, verify
from hopline.lineage.weights import read_weights, weight_files, write_weight_shards

__all__ = [
    "ENVELOPE",
    "MANIFEST",
    "RUN_FACTS",
    "SCHEMA_ID",
    "SCHEMA_VERSION",
    "ChampionMove",
    "ChampionPointer",
    "Claim",
    "Difference",
    "FetchedVersion",
    "ForeignManifestError",
    "GateDecision",
    "KeyPair",
    "Manifest",
    "Measured",
    "PublicKey",
    "PublishedVersion",
    "RunManifest",
    "SigningKey",
    "VerifyReport",
    "candidate",
    "code_part",
    "compare_manifests",
    "config_part",
    "dataset_part",
    "decide",
    "describe_files",
    "environment_part",
    "fetch_version",
    "gate_record",
    "history",
    "make_key_pair",
    "measured_at_publishing",
    "metrics_table",
    "move_champion",
    "pipeline_part",
    "publish_version",
    "read_champion",
    "read_manifest",
    "read_public_key",
    "read_signing_keys",
    "read_weights",
    "sign_published",
    "split_digest",
    "tensors_digest",
    "verify",
    "version_prefix",
    "vocabulary_digest",
    "weight_files",
    "write_weight_shards",
]
