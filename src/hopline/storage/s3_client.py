"""One configured, retried S3 client: settings from the environment, every try counted, every failure explained."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from hopline.errors import ConfigError
from hopline.storage.s3_errors import S3_ERRORS, Place, error_code, explain, is_transient, is_unreachable, status_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["Answered", "RetryPolicy", "S3Connection"]

T = TypeVar("T")

# Spreads the retries of many clients in time; it touches no result, so it need not be repeatable.
_JITTER = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait and how often to try again. Times are in seconds.

    A request is tried ``attempts`` times with pauses that double from ``base_delay`` to ``max_delay``; while no connection
    can be made at all, only until ``unreachable_after``.
    """

    attempts: int = 8
    base_delay: float = 0.2
    max_delay: float = 5.0
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    unreachable_after: float = 30.0

    @classmethod
    def from_env(cls) -> RetryPolicy:
        """The defaults, with the number of tries from ``AWS_MAX_ATTEMPTS`` where that is set. Raises ``ConfigError``."""
        text = os.environ.get("AWS_MAX_ATTEMPTS")
        if not text:
            return cls()
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(f"AWS_MAX_ATTEMPTS is {text!r}; expected a whole number of at least 1")
        return cls(attempts=int(text))

    def pause(self, failures: int) -> float:
        """Seconds to wait after the ``failures``-th failure in a row: half fixed, half jitter."""
        return min(self.max_delay, self.base_delay * 2.0 ** (failures - 1)) * _JITTER.uniform(0.5, 1.0)


class Answered(Exception):  # noqa: N818 - not an error: an answer that the caller asked to be told of
    """The store answered with one of the statuses that the caller expects (404, 412).

    ``uncertain``: an earlier try of the same request got no clear answer, and may have been carried out.
    """

    def __init__(self, status: int, *, uncertain: bool) -> None:
        super().__init__(status)
        self.status = status
        self.uncertain = uncertain


class Attempts:
    """The tries of one request: decides after each failure whether there is another, and waits for it."""

    def __init__(self, policy: RetryPolicy, action: str, place: Place) -> None:
        self._policy, self._action, self._place = policy, action, place
        self._start = time.monotonic()
        self._reached = False
        self.failures = 0

    def failed(self, error: Exception) -> None:
        """Wait before the next try, or raise what ``error`` means: it is final, or it was the last try."""
        self.failures += 1
        self._reached = self._reached or not is_unreachable(error)
        late = not self._reached and time.monotonic() - self._start > self._policy.unreachable_after
        if not is_transient(error) or self.failures >= self._policy.attempts or late:
            raise explain(error, self._action, self._place, self.failures) from error
        time.sleep(self._policy.pause(self.failures))

    def progressed(self) -> None:
        """Bytes arrived: the next failure counts as the first again."""
        self.failures = 0
        self._reached = True


class S3Connection:
    """The client of one bucket, made when it is first used. Safe to use from several threads."""

    def __init__(self, bucket: str, endpoint: str | None, region: str | None, policy: RetryPolicy | None) -> None:
        self.bucket = bucket
        self.policy = RetryPolicy.from_env() if policy is None else policy
        self._endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        self._region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
        self._client: S3Client | None = None
        self._lock = threading.Lock()
        self._bucket_seen = False

    def client(self) -> S3Client:
        """The boto3 client. Raises ``ConfigError`` for an endpoint that is no URL, and ``S3_ERRORS``."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def place(self, key: str) -> Place:
        endpoint = self._client.meta.endpoint_url if self._client is not None else self._endpoint or "Amazon S3"
        return Place(endpoint, self.bucket, key)

    def attempts(self, action: str, key: str) -> Attempts:
        """Start to count the tries of one request."""
        return Attempts(self.policy, action, self.place(key))

    def call(self, action: str, key: str, request: Callable[[S3Client], T], expect: tuple[int, ...] = ()) -> T:
        """Carry out ``request``, again if need be. Raises ``Answered`` for a status in ``expect``, else what went wrong."""
        attempts: Attempts | None = None
        while True:
            try:
                client = self.client()
                attempts = attempts or self.attempts(action, key)
                return request(client)
            except S3_ERRORS as error:
                attempts = attempts or self.attempts(action, key)
                status = status_of(error)
                if status is not None and status in expect and error_code(error) != "NoSuchBucket":
                    raise Answered(status, uncertain=attempts.failures > 0) from error
                attempts.failed(error)

    def require_bucket(self, key: str) -> None:
        """Raise ``StoreAccessError`` if the bucket is missing: a bare 404, as HEAD gives, does not say what is missing."""
        if self._bucket_seen:
            return
        try:
            self.call("read", key, lambda client: client.head_bucket(Bucket=self.bucket), expect=(403, 404))
        except Answered as answer:
            if answer.status == 404:
                gone = ClientError(
                    {"Error": {"Code": "NoSuchBucket"}, "ResponseMetadata": {"HTTPStatusCode": 404}},  # type: ignore[typeddict-item]
                    "HeadBucket",
                )
                raise explain(gone, "read", self.place(key), 1) from answer
        self._bucket_seen = True

    def _connect(self) -> S3Client:
        session = boto3.session.Session()
        host = urlsplit(self._endpoint).hostname if self._endpoint else None
        elsewhere = host is not None and not host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        region = self._region or session.region_name or ("us-east-1" if self._endpoint else None)
        config = Config(
            connect_timeout=self.policy.connect_timeout,
            read_timeout=self.policy.read_timeout,
            retries={"total_max_attempts": 1},  # we retry ourselves, since only we know what a lost answer means
            max_pool_connections=32,
            # Every put carries its own full SHA-256; botocore's default trailers break and corrupt on other stores.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            # Payload signing: a store that ignores checksums still verifies the digest in the signature.
            s3={"addressing_style": "path", "payload_signing_enabled": True} if elsewhere else {},
        )
        try:
            return session.client("s3", endpoint_url=self._endpoint, region_name=region, config=config)
        except ValueError as error:
            raise ConfigError(
                f"the S3 endpoint {self._endpoint!r} is not a URL; set AWS_ENDPOINT_URL_S3 to one such as http://127.0.0.1:9000"
            ) from error
