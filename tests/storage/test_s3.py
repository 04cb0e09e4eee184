"""The S3 store against a real server: faults on the way, and refusals that say what to set."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hopline.errors import (
    ConfigError,
    HoplineError,
    IntegrityError,
    NotFoundError,
    StoreAccessError,
    StoreError,
    StoreUnavailableError,
)
from hopline.storage import PreconditionFailed, open_store, sha256_bytes
from hopline.storage.s3 import S3Store
from hopline.storage.s3_client import RetryPolicy

pytestmark = pytest.mark.s3

BIG = bytes(range(256)) * 12_289
POLICY = RetryPolicy(attempts=4, base_delay=0.01, max_delay=0.05, connect_timeout=5, read_timeout=20)


@pytest.fixture
def direct(s3_root: str) -> S3Store:
    """The store without the proxy."""
    store = open_store(s3_root)
    assert isinstance(store, S3Store)
    return store


@pytest.fixture
def store(direct: S3Store, fault_proxy) -> S3Store:
    """The same store through the proxy."""
    return S3Store(direct.bucket, direct.prefix, endpoint=fault_proxy.url, policy=POLICY)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(BIG)
    return path


CONFLICT = (409, "<Error><Code>ConditionalRequestConflict</Code></Error>")


@pytest.mark.parametrize("fault", ["refuse", "drop", "lose", "corrupt", CONFLICT], ids=str)
@pytest.mark.parametrize("times", [1, 3])
def test_an_immutable_put_survives_faults(store, direct, fault_proxy, source, fault, times) -> None:
    fault_proxy.plan = [("PUT", fault)] * times
    store.put_file("a", source, sha256=sha256_bytes(BIG))
    assert direct.get_bytes("a") == BIG
    assert fault_proxy.count("PUT") == times + 1


def test_after_a_lost_answer_other_bytes_are_still_refused(store, direct, fault_proxy) -> None:
    direct.put_bytes("a", b"other")
    fault_proxy.plan = [("PUT", "lose")]
    with pytest.raises(IntegrityError, match="already holds other bytes"):
        store.put_bytes("a", b"mine", if_absent=True)
    assert direct.get_bytes("a") == b"other"


@pytest.mark.parametrize("fault", ["refuse", "drop", "lose", CONFLICT], ids=str)
def test_compare_and_swap_survives_faults(store, direct, fault_proxy, fault) -> None:
    fault_proxy.plan = [("PUT", fault)]
    first = store.compare_and_swap("p", b"1", expected_etag=None)
    assert direct.get_bytes_with_etag("p") == (b"1", first)
    fault_proxy.plan = [("PUT", fault)]
    second = store.compare_and_swap("p", b"2", expected_etag=first)
    assert direct.get_bytes_with_etag("p") == (b"2", second)
    assert not fault_proxy.plan


@pytest.mark.parametrize("created", [True, False])
def test_a_race_lost_during_a_fault_is_a_lost_race(store, direct, fault_proxy, created: bool) -> None:
    etag = None if created else direct.compare_and_swap("p", b"before", expected_etag=None)
    fault_proxy.plan = [("PUT", "drop")]
    fault_proxy.on_fault = lambda: direct.compare_and_swap("p", b"theirs", expected_etag=etag)
    with pytest.raises(PreconditionFailed):
        store.compare_and_swap("p", b"mine", expected_etag=etag)
    assert direct.get_bytes("p") == b"theirs"


def test_a_store_that_keeps_no_checksums_is_read_back(store, direct, fault_proxy, source) -> None:
    direct.put_file("a", source, sha256=sha256_bytes(BIG))
    fault_proxy.plan = [("HEAD", "bare")]
    store.put_file("a", source, sha256=sha256_bytes(BIG))
    assert fault_proxy.count("GET") == 1
    fault_proxy.plan = [("HEAD", "bare")]
    with pytest.raises(IntegrityError, match=sha256_bytes(BIG)):
        store.put_bytes("a", BIG[::-1], if_absent=True)


def test_a_cut_download_goes_on_where_it_stopped(store, direct, fault_proxy, source, tmp_path) -> None:
    direct.put_file("a", source, sha256=sha256_bytes(BIG))
    fault_proxy.plan = [("GET", "cut"), ("GET", "cut"), ("GET", "refuse")]
    store.get_file("a", tmp_path / "out", sha256=sha256_bytes(BIG), size=len(BIG))
    assert (tmp_path / "out").read_bytes() == BIG
    ranges = [content_range for method, content_range in fault_proxy.seen if method == "GET"]
    assert len(ranges) == 4
    assert ranges[0] is None
    starts = [int(content_range.removeprefix("bytes=").rstrip("-")) for content_range in ranges[1:]]
    assert 0 < starts[0] < starts[1] == starts[2]


def test_an_object_replaced_during_a_cut_download_is_not_mixed(store, direct, fault_proxy, source, tmp_path) -> None:
    direct.put_file("a", source, sha256=sha256_bytes(BIG))
    fault_proxy.plan = [("GET", "cut")]
    seen = fault_proxy.next_fault

    def replace_before_second(method: str, content_range: str | None) -> object:
        if content_range is not None:
            direct.put_bytes("a", BIG[::-1])
        return seen(method, content_range)

    fault_proxy.next_fault = replace_before_second
    with pytest.raises(IntegrityError, match="replaced while it was being read"):
        store.get_file("a", tmp_path / "out", sha256=None)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("cut", "connection was cut, after 4 tries"),
        ("drop", "connection was cut, after 4 tries"),
        ("refuse", "keeps failing .*503.* after 4 tries"),
        ("hang", "did not answer in time, after 4 tries"),
    ],
)
def test_faults_without_end_are_one_sentence(store, direct, fault_proxy, tmp_path, fault, message) -> None:
    direct.put_bytes("a", b"data")
    fault_proxy.plan = [("GET", fault)] * 20
    if fault == "hang":
        store = S3Store(
            direct.bucket, direct.prefix, endpoint=fault_proxy.url, policy=replace(POLICY, read_timeout=0.3)
        )
    with pytest.raises(StoreUnavailableError, match=message) as error:
        store.get_file("a", tmp_path / "out", sha256=None)
    assert f"{store.uri('a')} at {fault_proxy.url}" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_bytes_altered_on_the_way_are_refused(store, direct, fault_proxy, tmp_path) -> None:
    direct.put_bytes("a", b"data")
    fault_proxy.plan = [("GET", "flip")] * 2
    with pytest.raises(IntegrityError, match=f"a is altered: .*expected {sha256_bytes(b'data')}"):
        store.get_bytes("a", sha256=sha256_bytes(b"data"))
    with pytest.raises(IntegrityError, match="a is altered"):
        store.get_file("a", tmp_path / "out", sha256=sha256_bytes(b"data"))
    assert list(tmp_path.iterdir()) == []


def test_an_upload_altered_every_time_is_refused(store, direct, fault_proxy) -> None:
    fault_proxy.plan = [("PUT", "corrupt")] * 20
    with pytest.raises(IntegrityError, match="other bytes than those announced"):
        store.put_bytes("a", b"data")
    assert direct.head("a") is None


@pytest.mark.parametrize(
    ("status", "xml", "kind", "message"),
    [
        (403, "<Code>RequestTimeTooSkewed</Code>", StoreAccessError, "clock is wrong.*NTP"),
        (403, "<Code>AccessDenied</Code>", StoreAccessError, "access denied .*AccessDenied, HTTP 403.*s3:GetObject"),
        (403, "<Code>ExpiredToken</Code>", StoreAccessError, "unknown or has expired"),
        (301, "<Code>PermanentRedirect</Code><Region>eu-west-1</Region>", StoreAccessError, "set AWS_REGION=eu-west-1"),
        (400, "<Code>AuthorizationHeaderMalformed</Code>", StoreAccessError, "AWS_REGION to the bucket's region"),
        (501, "<Code>NotImplemented</Code>", StoreError, "does not support this request"),
        (400, "<Code>EntityTooLarge</Code>", StoreError, "larger than the store takes"),
        (400, "<Code>Odd</Code><Message>two\nlines</Message>", StoreError, "two lines .*Odd, HTTP 400"),
        (404, "<Code>NoSuchBucket</Code>", StoreAccessError, "there is no bucket 'hopline-tests'"),
        (404, "<Code>NoSuchKey</Code>", NotFoundError, "no such object"),
    ],
)
def test_refusals_say_what_to_set(store, fault_proxy, status, xml, kind, message) -> None:
    # botocore follows a redirect to another region by asking again, so the answer stays the same.
    fault_proxy.plan = [(method, (status, f"<Error>{xml}</Error>")) for method in ("GET", "HEAD") * 5]
    with pytest.raises(kind, match=message) as error:
        store.get_bytes("a")
    assert type(error.value) is kind
    assert "\n" not in str(error.value)
    assert fault_proxy.count("GET") <= 2


REQUESTS = {
    "put": lambda store: store.put_bytes("a", b"x"),
    "get": lambda store: store.get_bytes("a"),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list()),
    "swap": lambda store: store.compare_and_swap("a", b"x", expected_etag=None),
    "delete": lambda store: store.delete("a"),
}
every_request = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())


def refused(store, request_, kind: type[HoplineError], message: str) -> None:
    with pytest.raises(kind, match=message) as error:
        request_(store)
    assert type(error.value) is kind
    assert "\n" not in str(error.value)


@every_request
def test_a_missing_bucket(s3_root, request_) -> None:
    refused(
        open_store("s3://no-such-bucket/p"),
        request_,
        StoreAccessError,
        "no bucket 'no-such-bucket'.*make it, or correct the URI",
    )


@every_request
def test_a_wrong_secret(s3_root, monkeypatch, request_) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-value")
    with pytest.raises(StoreAccessError, match="AWS_SECRET_ACCESS_KEY") as error:
        request_(open_store(s3_root))
    assert "wrong-secret-value" not in str(error.value)


@every_request
def test_an_unknown_access_key(s3_root, monkeypatch, request_) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    refused(open_store(s3_root), request_, StoreAccessError, "AWS_ACCESS_KEY_ID")


def test_no_keys_at_all(s3_root, monkeypatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    refused(open_store(s3_root), REQUESTS["get"], StoreAccessError, "no S3 keys were found; set AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    refused(open_store(s3_root), REQUESTS["get"], StoreAccessError, "nobody")
    refused(open_store(s3_root), REQUESTS["put"], StoreAccessError, "nobody")


@every_request
def test_an_unreachable_endpoint(s3_root, monkeypatch, request_) -> None:
    with socket.socket() as unused:  # bound and not listening: every connection is refused
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
        refused(
            open_store(s3_root),
            request_,
            StoreUnavailableError,
            f"at {url}.*cannot be reached after 2 tries.*AWS_ENDPOINT_URL_S3",
        )


def test_an_endpoint_that_swallows_connections_is_given_up_in_time(direct) -> None:
    policy = RetryPolicy(attempts=100, base_delay=0.01, max_delay=0.02, connect_timeout=0.2, unreachable_after=1.0)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)  # the queue is full now: further connections get no answer at all
            store = S3Store("bucket", endpoint=f"http://127.0.0.1:{address[1]}", policy=policy)
            begin = time.monotonic()
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                store.get_bytes("a")
            assert 1.0 < time.monotonic() - begin < 10


def test_tls_where_none_is_spoken(s3_root, s3_server, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint.replace("http://", "https://"))
    refused(open_store(s3_root), REQUESTS["get"], StoreAccessError, "AWS_CA_BUNDLE")


def test_settings_that_are_wrong(s3_root, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "nonsense")
    refused(open_store(s3_root), REQUESTS["get"], ConfigError, "'nonsense' is not a URL; set AWS_ENDPOINT_URL_S3")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "many")
    with pytest.raises(ConfigError, match="AWS_MAX_ATTEMPTS is 'many'"):
        open_store(s3_root)


def test_a_file_over_five_gibibytes(direct, tmp_path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate((5 << 30) + 1)  # sparse: it takes no room
    with pytest.raises(StoreError, match=r"5 GiB.*cut it into smaller files"):
        direct.put_file("a", tmp_path / "huge", sha256="0" * 64)


def test_a_key_too_long_for_s3(s3_root) -> None:
    store = S3Store("bucket", "/".join(["p" * 200] * 4))
    with pytest.raises(ConfigError, match="longer than the 1024 bytes"):
        store.put_bytes("/".join(["k" * 200] * 4), b"x")


def test_many_objects_are_listed_over_several_pages(direct, monkeypatch) -> None:
    names = [f"n/{index:03}" for index in range(25)]
    for name in names:
        direct.put_bytes(name, b"")
    client = direct._s3.client()
    whole = client.list_objects_v2
    monkeypatch.setattr(client, "list_objects_v2", lambda **options: whole(MaxKeys=10, **options))
    assert [info.key for info in direct.list("n/")] == names


def test_markers_of_folders_are_not_objects(direct) -> None:
    direct._s3.client().put_object(Bucket=direct.bucket, Key=f"{direct.prefix}/folder/", Body=b"")
    direct.put_bytes("folder/a", b"x")
    assert [info.key for info in direct.list()] == ["folder/a"]
