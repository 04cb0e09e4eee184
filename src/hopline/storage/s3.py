"""A store in an S3 bucket: conditional writes, full-object SHA-256, and lost answers that lose nothing."""

from __future__ import annotations

import base64
import binascii
import builtins
import hashlib
import io
import mimetypes
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hopline.errors import ConfigError, IntegrityError, NotFoundError, StoreError
from hopline.storage.digest import CHUNK_BYTES, sha256_bytes
from hopline.storage.keys import is_key, validate_key, validate_prefix
from hopline.storage.local import check_content, copy_verified, open_source, os_errors, read_chunks, stage_file
from hopline.storage.s3_client import Answered, RetryPolicy, S3Connection
from hopline.storage.s3_errors import S3_ERRORS, error_code, status_of
from hopline.storage.store import ObjectInfo, PreconditionFailed

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import PutObjectOutputTypeDef

__all__ = ["MAX_PUT_BYTES", "S3Store"]

MAX_PUT_BYTES = 5 << 30
"""The most that S3 takes in one PUT: 5 GiB."""

# From this size on a look at what is already there costs less than to send it in vain.
_LOOK_FIRST_BYTES = 8 << 20


class S3Store:
    """The ``Store`` of ``s3://bucket/prefix``. Nothing is contacted before the first request.

    Keys come from the usual AWS settings (environment, profile, instance); the endpoint from ``AWS_ENDPOINT_URL_S3`` or
    ``AWS_ENDPOINT_URL``; the region from ``AWS_REGION`` or ``AWS_DEFAULT_REGION``, else us-east-1 where an endpoint is set.
    Every object is one PUT with its SHA-256, which the store checks; with no multipart uploads there are no remains of any.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.bucket = bucket
        self.prefix = validate_key(prefix) if prefix else ""
        self._s3 = S3Connection(bucket, endpoint, region, policy)

    @property
    def base_uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}" if self.prefix else f"s3://{self.bucket}"

    def uri(self, key: str) -> str:
        return f"{self.base_uri}/{validate_key(key)}"

    def put_file(self, key: str, path: Path, *, sha256: str, if_absent: bool = True) -> None:
        self._full(key)
        path = Path(path)
        with open_source(path) as source, os_errors("read", path):
            size = os.fstat(source.fileno()).st_size
            if size > MAX_PUT_BYTES:
                raise StoreError(
                    f"{path} has {size} bytes, and S3 takes at most {MAX_PUT_BYTES} (5 GiB) in one piece; "
                    "cut it into smaller files"
                )
            if if_absent and size >= _LOOK_FIRST_BYTES and self._holds(key, sha256, size):
                return
            digest = hashlib.sha256()
            for chunk in read_chunks(source):
                digest.update(chunk)
            check_content(str(path), digest.hexdigest(), size, sha256=sha256)
            self._put(key, source, size, sha256, if_absent=if_absent)

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self._put(key, io.BytesIO(data), len(data), sha256_bytes(data), if_absent=if_absent)

    def get_bytes(self, key: str, *, sha256: str | None = None, max_bytes: int | None = None) -> bytes:
        data = _ObjectReader(self._s3, self._full(key), self.uri(key)).read(max_bytes)
        if sha256 is not None:
            check_content(self.uri(key), sha256_bytes(data), len(data), sha256=sha256)
        return data

    def get_bytes_with_etag(self, key: str) -> tuple[bytes, str] | None:
        reader = _ObjectReader(self._s3, self._full(key), self.uri(key))
        try:
            return reader.read(None), reader.etag
        except NotFoundError:
            return None

    def get_file(self, key: str, path: Path, *, sha256: str | None, size: int | None = None) -> None:
        path = Path(path)
        reader = _ObjectReader(self._s3, self._full(key), self.uri(key))
        with os_errors("write", path), stage_file(path) as staged:
            copy_verified(reader.chunks(), staged.file, name=self.uri(key), sha256=sha256, size=size)
            staged.replace()

    def head(self, key: str) -> ObjectInfo | None:
        full = self._full(key)
        try:
            found = self._s3.call(
                "read",
                full,
                lambda client: client.head_object(Bucket=self.bucket, Key=full, ChecksumMode="ENABLED"),
                expect=(404,),
            )
        except Answered:
            self._s3.require_bucket(full)
            return None
        return ObjectInfo(key, found["ContentLength"], found["ETag"], _checksum(found))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        validate_prefix(prefix)
        start = f"{self.prefix}/" if self.prefix else ""
        found: builtins.list[ObjectInfo] = []
        more: dict[str, Any] = {}
        while True:
            page = self._s3.call(
                "list",
                start + prefix,
                lambda client, more=more: client.list_objects_v2(Bucket=self.bucket, Prefix=start + prefix, **more),  # type: ignore[misc]
            )
            for item in page.get("Contents", []):
                key = item["Key"].removeprefix(start)
                if is_key(key):  # not the markers that some tools leave for folders ("a/b/")
                    found.append(ObjectInfo(key, item["Size"], item["ETag"]))
            if not page.get("IsTruncated"):
                break
            more = {"ContinuationToken": page["NextContinuationToken"]}
        # Not every store lists in the order of keys, and the order is a promise of ours.
        yield from sorted(found, key=lambda info: info.key)

    def delete(self, key: str) -> None:
        full = self._full(key)
        try:
            self._s3.call(
                "delete", full, lambda client: client.delete_object(Bucket=self.bucket, Key=full), expect=(404,)
            )
        except Answered:
            return

    def compare_and_swap(self, key: str, data: bytes, *, expected_etag: str | None) -> str:
        full, sha256 = self._full(key), sha256_bytes(data)
        condition = {"IfNoneMatch": "*"} if expected_etag is None else {"IfMatch": expected_etag}
        send = self._sender(full, io.BytesIO(data), len(data), sha256, condition)
        try:
            return self._s3.call("write", full, send, expect=(404, 412))["ETag"]
        except Answered as answer:
            current = self.get_bytes_with_etag(key)
            # The answer to an earlier try was lost: if it was carried out, the refusal is of our own doing.
            if answer.uncertain and current is not None and current[0] == data:
                return current[1]
            found = None if current is None else current[1]
            raise PreconditionFailed(
                f"{self.uri(key)} was changed by another writer: its etag is {found}, expected {expected_etag}; "
                "read it again and decide again"
            ) from answer

    def local_path(self, key: str) -> Path | None:
        validate_key(key)
        return None

    def _full(self, key: str) -> str:
        full = f"{self.prefix}/{validate_key(key)}" if self.prefix else validate_key(key)
        if len(full.encode()) > 1024:
            raise ConfigError(f"{self.uri(key)}: prefix and key are longer than the 1024 bytes of S3; shorten the root")
        return full

    def _put(self, key: str, body: BinaryIO, size: int, sha256: str, *, if_absent: bool) -> None:
        full = self._full(key)
        send = self._sender(full, body, size, sha256, {"IfNoneMatch": "*"} if if_absent else {})
        try:
            self._s3.call("write", full, send, expect=(412,) if if_absent else ())
        except Answered as answer:
            # Already there: by an earlier run, by another writer, or by a try of ours whose answer was lost.
            if not self._holds(key, sha256, size):
                raise StoreError(f"{self.uri(key)} was deleted while it was being stored; try again") from answer

    def _sender(
        self, full: str, body: BinaryIO, size: int, sha256: str, condition: Mapping[str, str]
    ) -> Callable[[S3Client], PutObjectOutputTypeDef]:
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        content_type = mimetypes.guess_type(full)[0] or "application/octet-stream"

        def send(client: S3Client) -> PutObjectOutputTypeDef:
            body.seek(0)
            return client.put_object(
                Bucket=self.bucket,
                Key=full,
                Body=body,
                ContentLength=size,
                ContentType=content_type,
                ChecksumSHA256=checksum,
                **condition,  # type: ignore[arg-type]
            )

        return send

    def _holds(self, key: str, sha256: str, size: int) -> bool:
        """Whether the object is there, whole; raises ``IntegrityError`` if something else is there."""
        info = self.head(key)
        if info is None:
            return False
        found = info.sha256
        if found is None and info.size == size:  # a store that keeps no checksum: read the object back
            digest = hashlib.sha256()
            for chunk in _ObjectReader(self._s3, self._full(key), self.uri(key)).chunks():
                digest.update(chunk)
            found = digest.hexdigest()
        if info.size == size and found == sha256:
            return True
        raise IntegrityError(
            f"{self.uri(key)} already holds other bytes: sha256 {found or 'not known'} ({info.size} bytes), "
            f"expected {sha256} ({size} bytes); it is immutable, so delete it only if you know that it is broken"
        )


class _ObjectReader:
    """Reads one object from its beginning to its end, and goes on where a cut connection stopped."""

    def __init__(self, s3: S3Connection, full: str, uri: str) -> None:
        self._s3, self._full, self._uri = s3, full, uri
        self.etag = ""

    def read(self, max_bytes: int | None) -> bytes:
        data = bytearray()
        for chunk in self.chunks():
            data += chunk
            if max_bytes is not None and len(data) > max_bytes:
                raise IntegrityError(f"{self._uri} is larger than the {max_bytes} bytes that it may have")
        return bytes(data)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes, up to 1 MiB at a time."""
        offset, total, failed_at = 0, -1, 0
        client = self._client()
        attempts = self._s3.attempts("read", self._full)
        while offset != total:
            rest = {"Range": f"bytes={offset}-", "IfMatch": self.etag} if offset else {}
            try:
                answer = client.get_object(Bucket=self._s3.bucket, Key=self._full, **rest)  # type: ignore[arg-type]
                if offset and not answer.get("ContentRange", "").startswith(f"bytes {offset}-"):
                    raise StoreError(f"{self._uri}: the store does not honour ranges, so a cut transfer cannot go on")
                self.etag, total = answer["ETag"], offset + answer["ContentLength"]
                body = answer["Body"]
                try:
                    while chunk := body.read(CHUNK_BYTES):
                        offset += len(chunk)
                        yield chunk
                finally:
                    body.close()
                return
            except S3_ERRORS as error:
                self._refuse(error)
                if offset - failed_at >= CHUNK_BYTES:
                    attempts.progressed()
                failed_at = offset
                attempts.failed(error)

    def _client(self) -> S3Client:
        try:
            return self._s3.client()
        except S3_ERRORS as error:
            self._s3.attempts("read", self._full).failed(error)
            raise

    def _refuse(self, error: Exception) -> None:
        status = status_of(error)
        if status == 404 and error_code(error) != "NoSuchBucket":
            raise NotFoundError(f"{self._uri}: there is no such object; check the root and the name") from error
        if status == 412:
            raise IntegrityError(f"{self._uri} was replaced while it was being read; read it again") from error


def _checksum(answer: Mapping[str, Any]) -> str | None:
    """The SHA-256 of the whole object as hex, if the store gave one (a composite one, of parts, is no such digest)."""
    if answer.get("ChecksumType") == "COMPOSITE":
        return None
    try:
        digest = base64.b64decode(answer.get("ChecksumSHA256", ""), validate=True)
    except binascii.Error:
        return None
    return digest.hex() if len(digest) == 32 else None
