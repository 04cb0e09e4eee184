"""Where bytes live: one small protocol, a folder or an S3 bucket behind it, and every byte checked against its digest."""

from hopline.storage.canonical import canonical_json, parse_json
from hopline.storage.digest import sha256_bytes, sha256_file
from hopline.storage.keys import validate_key
from hopline.storage.store import ObjectInfo, PreconditionFailed, Store
from hopline.storage.uri import join_uri, open_object, open_store, split_uri

__all__ = [
    "ObjectInfo",
    "PreconditionFailed",
    "Store",
    "canonical_json",
    "join_uri",
    "open_object",
    "open_store",
    "parse_json",
    "sha256_bytes",
    "sha256_file",
    "split_uri",
    "validate_key",
]
