"""The file store: durable and whole after a kill, inside its root, and clear about what the system refuses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hopline.errors import HoplineError, IntegrityError, NotFoundError, StoreAccessError, StoreError
from hopline.storage import open_store, sha256_bytes
from hopline.storage.file import FileStore


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "root")


def keys(store: FileStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def temporary_files(root: Path) -> list[Path]:
    return list(root.rglob(".tmp-*"))


def test_etag_and_digest_are_the_sha256(store: FileStore) -> None:
    store.put_bytes("a", b"1")
    info = store.head("a")
    assert info is not None
    assert info.etag == info.sha256 == sha256_bytes(b"1")
    store.put_bytes("large", bytes(2 << 20))
    info = store.head("large")
    assert info is not None
    assert (info.size, info.etag, info.sha256) == (2 << 20, None, None)


def test_nothing_is_left_beside_the_objects(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"data")
    store.put_file("a/b/c", tmp_path / "in", sha256=sha256_bytes(b"data"))
    store.put_bytes("a/d", b"1")
    etag = store.compare_and_swap("a/e", b"1", expected_etag=None)
    store.compare_and_swap("a/e", b"2", expected_etag=etag)
    with pytest.raises(IntegrityError):
        store.put_file("a/x/y", tmp_path / "in", sha256="0" * 64)
    assert sorted(path.name for path in store.root.rglob("*") if path.is_file()) == ["c", "d", "e"]
    assert (store.root / "a/b/c").stat().st_mode & 0o777 == 0o666 & ~current_umask()
    for key in ("a/b/c", "a/d", "a/e"):
        store.delete(key)
    (store.root / "a/x").rmdir()
    (store.root / "a").rmdir()
    assert list(store.root.iterdir()) == []


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_killed_writer_leaves_nothing_visible(store: FileStore, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = (
        "from hopline.storage import open_store\n"
        f"open_store({str(store.root)!r}).put_file('a/b', {str(pipe)!r}, sha256='0' * 64)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    with pipe.open("wb") as writer:
        writer.write(bytes(300_000))  # it reads this and waits for more, in the middle of the file
        writer.flush()
        deadline = time.monotonic() + 30
        while not any(path.stat().st_size > 0 for path in temporary_files(store.root)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
        process.wait()
    assert len(temporary_files(store.root)) == 1
    assert keys(store) == []
    assert keys(store, "a/") == []
    assert store.head("a/b") is None
    (tmp_path / "in").write_bytes(b"data")
    store.put_file("a/b", tmp_path / "in", sha256=sha256_bytes(b"data"))
    assert keys(store) == ["a/b"]


def test_a_killed_holder_of_the_lock_blocks_nobody(store: FileStore) -> None:
    code = (
        "import os, hopline.storage.file as f\n"
        f"store = f.FileStore({str(store.root)!r})\n"
        "f.StagedFile.replace = lambda self: os.kill(os.getpid(), 9)\n"
        "store.compare_and_swap('p', b'1', expected_etag=None)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert any("lock" in path.name for path in temporary_files(store.root))
    assert keys(store) == []
    store.compare_and_swap("p", b"2", expected_etag=None)
    assert store.get_bytes("p") == b"2"


def test_links_out_of_the_root_are_refused(store: FileStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put_bytes("a", b"1")
    (store.root / "folder").symlink_to(outside)
    (store.root / "file").symlink_to(outside / "secret")
    (store.root / "dangling").symlink_to(outside / "new")
    for key in ("folder/secret", "folder/new", "file", "dangling"):
        for attempt in (
            lambda key=key: store.get_bytes(key),
            lambda key=key: store.get_file(key, tmp_path / "out", sha256=None),
            lambda key=key: store.put_bytes(key, b"x"),
            lambda key=key: store.put_file(key, tmp_path / "root/a", sha256=sha256_bytes(b"1"), if_absent=False),
            lambda key=key: store.compare_and_swap(key, b"x", expected_etag=None),
            lambda key=key: store.head(key),
            lambda key=key: store.delete(key),
            lambda key=key: store.local_path(key),
        ):
            with pytest.raises(StoreAccessError, match="symbolic link out of the root"):
                attempt()
    with pytest.raises(StoreAccessError, match="symbolic link out of the root"):
        keys(store)
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "out").exists()


def test_links_inside_the_root_and_a_root_that_is_a_link(store: FileStore, tmp_path: Path) -> None:
    store.put_bytes("a/b", b"1")
    (store.root / "c").symlink_to("a")
    assert keys(store) == ["a/b", "c/b"]
    assert store.get_bytes("c/b") == b"1"
    (tmp_path / "link").symlink_to(store.root)
    assert open_store(str(tmp_path / "link")).get_bytes("a/b") == b"1"
    (store.root / "a/loop").symlink_to("..")
    with pytest.raises(StoreAccessError, match="a folder that it lies in"):
        keys(store)


def test_strange_names_on_the_disk_are_not_objects(store: FileStore) -> None:
    store.put_bytes("a", b"1")
    (store.root / "back\\slash").write_bytes(b"")
    (store.root / "line\nbreak").write_bytes(b"")
    (os.fsencode(store.root) + b"/\xff").decode("utf-8", "surrogateescape")
    os.close(os.open(os.fsencode(store.root) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    assert keys(store) == ["a"]


def test_a_root_below_a_regular_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FileStore(tmp_path / "file" / "root")
    for attempt in (
        lambda: store.put_bytes("a", b"x"),
        lambda: store.put_file("a", tmp_path / "file", sha256=sha256_bytes(b"")),
        lambda: store.compare_and_swap("a", b"x", expected_etag=None),
    ):
        with pytest.raises(StoreAccessError, match=r"cannot write .*/root/a: a part of this path is a file") as error:
            attempt()
        assert "\n" not in str(error.value)
    assert store.head("a") is None
    assert keys(store) == []


def test_a_folder_where_an_object_should_be(store: FileStore, tmp_path: Path) -> None:
    store.put_bytes("a/b", b"1")
    (tmp_path / "in").write_bytes(b"x")
    for attempt in (
        lambda: store.put_bytes("a", b"x"),
        lambda: store.put_bytes("a", b"x", if_absent=True),
        lambda: store.put_file("a", tmp_path / "in", sha256=sha256_bytes(b"x")),
        lambda: store.compare_and_swap("a", b"x", expected_etag=None),
    ):
        with pytest.raises(StoreError, match="it is a folder"):
            attempt()
    with pytest.raises(StoreError, match="it is a folder"):
        store.put_file("c", tmp_path, sha256="0" * 64)
    with pytest.raises(StoreError, match="it is a folder"):
        store.get_file("a/b", tmp_path, sha256=None)
    assert keys(store) == ["a/b"]
    assert temporary_files(tmp_path) == []


# Root may do everything, so this drops to a user who may not, where the tests run as root.
AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
from hopline.errors import StoreAccessError
from hopline.storage import sha256_bytes
from hopline.storage.file import FileStore
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
store = FileStore(sys.argv[1])
attempts = {
    "write": lambda: store.put_bytes("new", b"x"),
    "write in a new folder": lambda: store.put_bytes("new/er", b"x"),
    "put": lambda: store.put_file("new", Path(__import__("hopline").__file__), sha256="0" * 64),
    "read": lambda: store.get_bytes("secret"),
    "head": lambda: store.head("secret"),
    "fetch": lambda: store.get_file("secret", Path(sys.argv[2]), sha256=None),
    "delete": lambda: store.delete("open"),
    "list": lambda: list(store.list("closed/")),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except StoreAccessError as error:
        assert "permission denied" in str(error) and sys.argv[1] in str(error) and chr(10) not in str(error), (name, error)
    else:
        sys.exit(f"{name} was not refused")
try:
    store.get_file("open", Path(sys.argv[1], "copy"), sha256=None)
except StoreAccessError as error:
    assert "cannot write" in str(error), error
else:
    sys.exit("a copy into a closed folder was not refused")
assert store.get_bytes("open") == b"1"
"""


def test_rights_that_this_user_does_not_have(store: FileStore, tmp_path: Path) -> None:
    store.put_bytes("open", b"1")
    store.put_bytes("secret", b"2")
    store.put_bytes("closed/a", b"3")
    (store.root / "secret").chmod(0)
    (store.root / "closed").chmod(0)
    store.root.chmod(0o555)
    opened = [folder for folder in tmp_path.parents if not folder.stat().st_mode & 0o001] if os.getuid() == 0 else []
    modes = [folder.stat().st_mode & 0o7777 for folder in opened]
    try:
        for folder in opened:  # another user must be able to get to the root at all
            folder.chmod(folder.stat().st_mode | 0o011)
        tmp_path.chmod(0o755)
        command = [sys.executable, "-c", AS_ANOTHER_USER, str(store.root), str(tmp_path / "out")]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    finally:
        for folder, mode in zip(opened, modes, strict=True):
            folder.chmod(mode)
        store.root.chmod(0o755)
        (store.root / "closed").chmod(0o755)


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of one mebibyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    data = bytes(2 << 20)
    (tmp_path / "in").write_bytes(data)
    store, source = FileStore(small_disk / "root"), FileStore(tmp_path)
    for attempt in (
        lambda: store.put_file("a", tmp_path / "in", sha256=sha256_bytes(data)),
        lambda: store.put_bytes("a", data),
        lambda: store.compare_and_swap("a", data, expected_etag=None),
        lambda: source.get_file("in", small_disk / "out", sha256=sha256_bytes(data)),
    ):
        with pytest.raises(StoreError, match=r"cannot write .*: the disk is full; free some space") as error:
            attempt()
        assert "\n" not in str(error.value)
    assert keys(store) == []
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []


@pytest.mark.s3
def test_a_full_disk_under_a_download(small_disk: Path, s3_root: str) -> None:
    data = bytes(2 << 20)
    remote = open_store(s3_root)
    remote.put_bytes("a", data)
    with pytest.raises(StoreError, match=r"cannot write .*/out: the disk is full"):
        remote.get_file("a", small_disk / "out", sha256=sha256_bytes(data))
    assert list(small_disk.iterdir()) == []


def test_a_limit_on_file_size(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from hopline.errors import StoreError; from hopline.storage import open_store\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"store = open_store({str(tmp_path / 'root')!r})\n"
        "try: store.put_bytes('a', bytes(5000))\n"
        "except StoreError as error: assert 'limit allows' in str(error), error\n"
        "else: sys.exit(1)\n"
        "assert list(store.list()) == []"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert temporary_files(tmp_path) == []


def test_a_file_system_without_hard_links(store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "in").write_bytes(b"1")
    store.put_file("a", tmp_path / "in", sha256=sha256_bytes(b"1"))
    store.put_bytes("a", b"1", if_absent=True)
    with pytest.raises(IntegrityError, match="already holds other bytes"):
        store.put_bytes("a", b"2", if_absent=True)
    assert store.get_bytes("a") == b"1"
    assert temporary_files(store.root) == []


def test_folders_come_and_go_under_concurrent_writers(store: FileStore) -> None:
    errors: list[HoplineError] = []

    def churn(index: int) -> None:
        try:
            for _ in range(60):
                store.put_bytes(f"shared/folder/{index}", b"x")
                store.delete(f"shared/folder/{index}")
        except HoplineError as error:
            errors.append(error)

    threads = [threading.Thread(target=churn, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(store.root.iterdir()) == []


def test_a_missing_object_names_its_path(store: FileStore) -> None:
    with pytest.raises(NotFoundError) as error:
        store.get_bytes("a/b")
    assert str(store.root / "a/b") in str(error.value)
