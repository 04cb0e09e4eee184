"""What every store promises, tried on a folder and on a real S3 server."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hopline.errors import ConfigError, IntegrityError, NotFoundError
from hopline.storage import PreconditionFailed, Store, join_uri, open_object, open_store, sha256_bytes

BIG = bytes(range(256)) * 12_289  # a little over 3 MiB: several chunks, and no whole number of them


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "root") if request.param == "file" else request.getfixturevalue("s3_root")


@pytest.fixture
def store(root: str) -> Store:
    return open_store(root)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def keys(store: Store, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def test_a_store_is_a_store(store: Store) -> None:
    assert isinstance(store, Store)


@pytest.mark.parametrize("data", [b"", b"x", BIG], ids=["empty", "byte", "big"])
def test_a_file_comes_back_as_it_went(store: Store, tmp_path: Path, data: bytes) -> None:
    digest = sha256_bytes(data)
    store.put_file("a/b.bin", write(tmp_path / "in", data), sha256=digest)
    store.get_file("a/b.bin", tmp_path / "deep" / "out", sha256=digest, size=len(data))
    assert (tmp_path / "deep" / "out").read_bytes() == data
    assert store.get_bytes("a/b.bin", sha256=digest, max_bytes=len(data)) == data
    info = store.head("a/b.bin")
    assert info is not None
    assert (info.key, info.size) == ("a/b.bin", len(data))
    assert info.sha256 in (digest, None)


@pytest.mark.parametrize(
    "key", ["with space/ü-✓.json", "a+b=c&d?e#f%41", "x" * 200 + "/y", "-", "~a/'quoted\"", "a/.hidden"]
)
def test_keys_and_uris_of_all_kinds(store: Store, root: str, key: str) -> None:
    store.put_bytes(key, b"data")
    assert keys(store) == [key]
    assert store.get_bytes(key) == b"data"
    other, name = open_object(store.uri(key))
    assert other.get_bytes(name) == b"data"
    other, name = open_object(join_uri(store.base_uri, *key.split("/")))
    assert other.get_bytes(name) == b"data"
    store.delete(key)
    assert keys(store) == []


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "a\\b", "a\nb", "a\x00b", ".tmp-x", "a/.tmp-x"]
)
def test_a_key_cannot_leave_its_root(store: Store, tmp_path: Path, key: str) -> None:
    for attempt in (
        lambda: store.put_bytes(key, b"x"),
        lambda: store.put_file(key, tmp_path, sha256="0" * 64),
        lambda: store.get_bytes(key),
        lambda: store.get_bytes_with_etag(key),
        lambda: store.get_file(key, tmp_path / "out", sha256=None),
        lambda: store.head(key),
        lambda: store.delete(key),
        lambda: store.compare_and_swap(key, b"x", expected_etag=None),
        lambda: store.local_path(key),
        lambda: store.uri(key),
    ):
        with pytest.raises(ConfigError, match="cannot be used"):
            attempt()


def test_what_is_not_there(store: Store, tmp_path: Path) -> None:
    store.put_bytes("folder/object", b"x")
    for key in ("nothing", "folder", "folder/object/below", "deep/er/still"):
        assert store.head(key) is None
        assert store.get_bytes_with_etag(key) is None
        with pytest.raises(NotFoundError, match="no such object"):
            store.get_bytes(key)
        with pytest.raises(NotFoundError, match="no such object"):
            store.get_file(key, tmp_path / "out", sha256=None)
        store.delete(key)
    assert list(tmp_path.glob("*out*")) == []
    assert keys(store) == ["folder/object"]


def test_wrong_bytes_are_refused_on_the_way_in(store: Store, tmp_path: Path) -> None:
    expected, found = sha256_bytes(b"expected"), sha256_bytes(b"found")
    with pytest.raises(IntegrityError) as error:
        store.put_file("a", write(tmp_path / "in", b"found"), sha256=expected)
    assert expected in str(error.value)
    assert found in str(error.value)
    assert keys(store) == []


def test_a_missing_source_file(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file to store"):
        store.put_file("a", tmp_path / "missing", sha256="0" * 64)


def test_wrong_bytes_are_refused_on_the_way_out(store: Store, tmp_path: Path) -> None:
    store.put_bytes("a", b"found")
    expected = sha256_bytes(b"expected")
    write(tmp_path / "out", b"before")
    for attempt in (
        lambda: store.get_bytes("a", sha256=expected),
        lambda: store.get_file("a", tmp_path / "out", sha256=expected),
    ):
        with pytest.raises(IntegrityError) as error:
            attempt()
        for part in (expected, sha256_bytes(b"found"), "a is altered"):
            assert part in str(error.value)
    with pytest.raises(IntegrityError, match="truncated: 5 bytes, expected 6"):
        store.get_file("a", tmp_path / "out", sha256=None, size=6)
    assert (tmp_path / "out").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir() if path.name != "root"] == ["out"]


def test_an_object_larger_than_allowed(store: Store) -> None:
    store.put_bytes("a", b"12345")
    assert store.get_bytes("a", max_bytes=5) == b"12345"
    with pytest.raises(IntegrityError, match="larger than the 4 bytes"):
        store.get_bytes("a", max_bytes=4)


@pytest.mark.parametrize("size", [5, 9 << 20], ids=["small", "large"])
def test_an_immutable_object_is_stored_once(store: Store, tmp_path: Path, size: int) -> None:
    first, other = b"1" * size, b"2" * size
    path = write(tmp_path / "in", first)
    store.put_file("a", path, sha256=sha256_bytes(first))
    store.put_file("a", path, sha256=sha256_bytes(first))
    store.put_bytes("a", first, if_absent=True)
    write(path, other)
    for attempt in (
        lambda: store.put_file("a", path, sha256=sha256_bytes(other)),
        lambda: store.put_bytes("a", other, if_absent=True),
        lambda: store.put_bytes("a", other + b"2", if_absent=True),
    ):
        with pytest.raises(IntegrityError, match="already holds other bytes") as error:
            attempt()
        assert sha256_bytes(first) in str(error.value)
    assert store.get_bytes("a") == first
    store.put_file("a", path, sha256=sha256_bytes(other), if_absent=False)
    assert store.get_bytes("a") == other
    store.put_bytes("a", b"3")
    assert store.get_bytes("a") == b"3"


def test_listing_is_sorted_and_by_prefix(store: Store) -> None:
    names = ["a-b", "a.txt", "a/b", "a/c/d", "a0", "b/a", "Z", "é"]
    for name in names:
        store.put_bytes(name, name.encode())
    assert keys(store) == sorted(names)
    assert keys(store, "a") == sorted(name for name in names if name.startswith("a"))
    assert keys(store, "a/") == ["a/b", "a/c/d"]
    assert keys(store, "a/c") == ["a/c/d"]
    assert keys(store, "a/c/d") == ["a/c/d"]
    assert keys(store, "nothing/here") == []
    assert [info.size for info in store.list("a/")] == [3, 5]
    with pytest.raises(ConfigError):
        keys(store, "../")


def test_two_stores_on_neighbouring_prefixes_do_not_see_each_other(root: str) -> None:
    open_store(join_uri(root, "one")).put_bytes("a", b"1")
    open_store(join_uri(root, "one-more")).put_bytes("a", b"2")
    assert keys(open_store(join_uri(root, "one"))) == ["a"]
    assert keys(open_store(root)) == ["one-more/a", "one/a"]


def test_compare_and_swap(store: Store) -> None:
    first = store.compare_and_swap("p", b"1", expected_etag=None)
    assert store.get_bytes_with_etag("p") == (b"1", first)
    with pytest.raises(PreconditionFailed, match="another writer"):
        store.compare_and_swap("p", b"x", expected_etag=None)
    second = store.compare_and_swap("p", b"2", expected_etag=first)
    assert second != first
    with pytest.raises(PreconditionFailed, match="another writer"):
        store.compare_and_swap("p", b"x", expected_etag=first)
    with pytest.raises(PreconditionFailed, match="its etag is None"):
        store.compare_and_swap("absent", b"x", expected_etag=first)
    info = store.head("p")
    assert info is not None
    assert info.etag == second
    assert store.get_bytes("p") == b"2"
    assert keys(store) == ["p"]


def test_local_path(store: Store, root: str) -> None:
    store.put_bytes("a/b", b"data")
    path = store.local_path("a/b")
    if root.startswith("s3://"):
        assert path is None
    else:
        assert path is not None
        assert path.read_bytes() == b"data"


# Adds 1 to a number in the store, twenty times, by compare-and-swap.
COUNT_UP = """
import sys
from hopline.storage import PreconditionFailed, open_store
store = open_store(sys.argv[1])
for _ in range(20):
    while True:
        current = store.get_bytes_with_etag("number")
        value, etag = (0, None) if current is None else (int(current[0]), current[1])
        try:
            store.compare_and_swap("number", b"%d" % (value + 1), expected_etag=etag)
            break
        except PreconditionFailed:
            continue
"""


def test_two_processes_race_and_no_swap_is_lost(root: str) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", COUNT_UP, root]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert open_store(root).get_bytes("number") == b"40"
    assert keys(open_store(root)) == ["number"]


def test_threads_share_a_store_and_one_creates(store: Store) -> None:
    start, won = threading.Barrier(8), []

    def create(index: int) -> None:
        start.wait()
        try:
            store.put_bytes("only", b"%d" % index, if_absent=True)
            won.append(index)
        except IntegrityError:
            pass

    threads = [threading.Thread(target=create, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get_bytes("only") == b"%d" % won[0]
