"""Request records: how a stage finds the output that it, or another process, made from the same inputs.

``request_hash`` is the sha256 of everything that goes into a stage, as canonical JSON. The record
``requests/<stage>/<request_hash>.json`` maps it to the stage's result, and is written last: a record that can be read
means that the output was complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from hopline.errors import DataError
from hopline.stages.identity import STAGE_PACKAGES, code_digest, stage_code
from hopline.stages.results import StageResult
from hopline.storage import Store, canonical_json, parse_json, sha256_bytes

__all__ = ["Request", "read_record", "read_record_by_hash", "write_record"]

_SCHEMA: Final = 2

Result = TypeVar("Result", bound=StageResult)


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that decides what a stage produces.

    Attributes:
        stage: ``generate``, ``train``, ``evaluate`` or ``publish``.
        inputs: JSON values by name: config sections, hashes of other stages' outputs, digests of source files.
    """

    stage: str
    inputs: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """What is hashed, and kept in the record for people who ask why a stage was redone."""
        return {"schema": _SCHEMA, "stage": self.stage, "code": stage_code(self.stage), "inputs": dict(self.inputs)}

    @property
    def hash(self) -> str:
        return sha256_bytes(canonical_json(self.document()))

    @property
    def key(self) -> str:
        """Key of the record."""
        return _record_key(self.stage, self.hash)

    @property
    def work_prefix(self) -> str:
        """Keys of work in progress begin with this."""
        return f"requests/{self.stage}/{self.hash}.work"


def read_record(store: Store, request: Request, kind: type[Result]) -> Result | None:
    """The result recorded for a request, marked as reused; None if there is none.

    Raises:
        DataError: the record is damaged.
    """
    return read_record_by_hash(store, request.stage, request.hash, kind)


def read_record_by_hash(store: Store, stage: str, request_hash: str, kind: type[Result]) -> Result | None:
    """As :func:`read_record`, for whoever has been told the hash and not what went into it."""
    key = _record_key(stage, request_hash)
    found = store.get_bytes_with_etag(key)
    if found is None:
        return None
    uri = store.uri(key)
    document = parse_json(found[0], source=uri)
    try:
        if sha256_bytes(canonical_json(document["request"])) != request_hash:
            raise DataError(f"{uri}: the record is for another request than its name says; delete it to redo the stage")
        if not isinstance(document["root"], str):
            raise TypeError(f"root is {document['root']!r}")
        result = _moved(document["result"], document["root"], store.base_uri)
        return kind.model_validate({**result, "reused": True})
    except (KeyError, TypeError, ValidationError) as error:
        what = " ".join(str(error).split())
        raise DataError(f"{uri}: no record of a {stage} result ({what}); delete it to redo the stage") from None


def write_record(store: Store, request: Request, result: StageResult) -> None:
    """Record a result; the last write of a stage. A record that is already there with the same result is success."""
    document = {
        "request": request.document(),
        "root": store.base_uri,
        # Not hashed: they say which package it was, where the code differs.
        "packages": {name: code_digest([name]) for name in STAGE_PACKAGES[request.stage]},
        "result": result.model_dump(mode="json", exclude={"reused"}),
    }
    store.put_bytes(request.key, canonical_json(document), if_absent=False)


def _record_key(stage: str, request_hash: str) -> str:
    return f"requests/{stage}/{request_hash}.json"


def _moved(value: Any, before: str, now: str) -> Any:
    """A result as its URIs are since the root was moved, copied or mounted elsewhere."""
    if isinstance(value, dict):
        return {name: _moved(item, before, now) for name, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, before, now) for item in value]
    if isinstance(value, str) and value.startswith(f"{before}/"):
        return now + value.removeprefix(before)
    return value
