"""What an S3 failure means: worth another try, or one sentence that says what to set."""

from __future__ import annotations

from dataclasses import dataclass

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError

from hopline.errors import HoplineError, IntegrityError, StoreAccessError, StoreError, StoreUnavailableError

__all__ = ["S3_ERRORS", "Place", "error_code", "explain", "is_transient", "is_unreachable", "status_of"]

S3_ERRORS = (ClientError, BotoCoreError)
"""What boto3 raises; everything else is a defect of ours."""

_TRANSIENT_CODES = frozenset(
    # BadDigest and its kin: the bytes were altered on their way (the file itself was checked before it was sent).
    {
        "BadDigest",
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
_DIGEST_CODES = frozenset({"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"})
_REGION_CODES = frozenset(
    {
        "301",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "TemporaryRedirect",
    }
)
_SET_KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was tried, for error sentences."""

    endpoint: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key} at {self.endpoint}"


def status_of(error: BaseException) -> int | None:
    """The HTTP status that the store answered with, or None where it did not answer."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return None if status is None else int(status)
    return None


def error_code(error: BaseException) -> str:
    """The S3 error code of an answer, such as ``NoSuchKey``; empty where the store did not answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def is_transient(error: BaseException) -> bool:
    """Whether another try of the same request may succeed: server errors, throttling, conflicts, dropped connections."""
    if isinstance(error, ClientError):
        status = status_of(error) or 0
        if status == 501:  # Not Implemented: it will not be implemented a second later either
            return False
        return status >= 500 or status in (408, 409, 429) or error_code(error) in _TRANSIENT_CODES
    if isinstance(error, SSLError):
        return False
    return isinstance(error, (HTTPClientError, BotoConnectionError, IncompleteReadError))


def is_unreachable(error: BaseException) -> bool:
    """Whether no connection could be made at all."""
    return isinstance(error, (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError))


def explain(error: BaseException, action: str, place: Place, attempts: int) -> HoplineError:
    """Return the error that says in one sentence what failed (``action``), where, why, and what to do."""
    start = f"cannot {action} {place}"
    if isinstance(error, ClientError):
        return _explain_answer(error, start, place, attempts)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return StoreAccessError(f"{start}: no S3 keys were found; {_SET_KEYS}")
    if isinstance(error, (CredentialRetrievalError, TokenRetrievalError, ProfileNotFound)):
        return StoreAccessError(f"{start}: the S3 keys cannot be had ({_line(error)}); {_SET_KEYS}")
    if isinstance(error, NoRegionError):
        return StoreAccessError(f"{start}: no region is set; set AWS_REGION")
    if isinstance(error, SSLError):
        return StoreAccessError(
            f"{start}: the TLS certificate is not trusted or TLS is not spoken there ({_line(error)}); "
            "set AWS_CA_BUNDLE to the authority's certificate, or http:// in AWS_ENDPOINT_URL_S3"
        )
    tries = f"after {attempts} {'try' if attempts == 1 else 'tries'}"
    if is_unreachable(error):
        return StoreUnavailableError(
            f"{start}: the endpoint cannot be reached {tries}; check AWS_ENDPOINT_URL_S3 and the network"
        )
    if isinstance(error, ReadTimeoutError):
        return StoreUnavailableError(f"{start}: the endpoint did not answer in time, {tries}; try again later")
    if is_transient(error):
        return StoreUnavailableError(f"{start}: the connection was cut, {tries}; try again later")
    return StoreError(f"{start}: {_line(error)}")


def _explain_answer(error: ClientError, start: str, place: Place, attempts: int) -> HoplineError:
    code, status = error_code(error), status_of(error)
    answer = f"{code}, HTTP {status}" if code and code != str(status) else f"HTTP {status}"
    if code == "NoSuchBucket":
        return StoreAccessError(f"{start}: there is no bucket {place.bucket!r} ({answer}); make it, or correct the URI")
    if code in ("InvalidAccessKeyId", "InvalidToken", "ExpiredToken", "TokenRefreshRequired"):
        return StoreAccessError(f"{start}: the access key is unknown or has expired ({answer}); {_SET_KEYS}")
    if code == "SignatureDoesNotMatch":
        return StoreAccessError(
            f"{start}: the secret key does not fit the access key ({answer}); set AWS_SECRET_ACCESS_KEY to the right one"
        )
    if code in ("RequestTimeTooSkewed", "RequestExpired"):
        return StoreAccessError(f"{start}: this machine's clock is wrong ({answer}); set the clock (NTP) and try again")
    if code in _REGION_CODES:
        region = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("x-amz-bucket-region")
        region = region or error.response.get("Error", {}).get("Region")
        right = f"set AWS_REGION={region}" if region else "set AWS_REGION to the bucket's region"
        return StoreAccessError(f"{start}: the bucket is in another region ({answer}); {right}")
    if code in _DIGEST_CODES:
        return IntegrityError(
            f"{start}: the store received other bytes than those announced ({answer}), {attempts} times; "
            "check that the file is not being changed, and the network"
        )
    if code == "EntityTooLarge":
        return StoreError(f"{start}: larger than the store takes in one piece ({answer})")
    if status in (401, 403):
        return StoreAccessError(
            f"{start}: access denied ({answer}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what this key may do "
            "with the bucket (s3:GetObject, s3:PutObject, s3:ListBucket)"
        )
    if is_transient(error):
        return StoreUnavailableError(
            f"{start}: the store keeps failing ({answer}) after {attempts} tries; try again later"
        )
    if status == 501:
        return StoreError(
            f"{start}: the store does not support this request ({answer}); use a store with conditional writes"
        )
    return StoreError(f"{start}: {_line(error)} ({answer})")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
