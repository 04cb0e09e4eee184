"""Many files at once: all of them, checked, or the first error."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hopline.errors import ConfigError, DataError, IntegrityError, NotFoundError
from hopline.storage import Store, open_store, sha256_bytes
from hopline.storage.file import FileStore
from hopline.storage.transfer import Download, Upload, download_files, fetch_folder, upload_files


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "root") if request.param == "file" else request.getfixturevalue("s3_root"))


def uploads(folder: Path, count: int) -> list[Upload]:
    folder.mkdir()
    items = []
    for index in range(count):
        data = b"%d" % index * (index * 50)
        path = folder / f"{index:02}"
        path.write_bytes(data)
        items.append(Upload(f"p/{index % 3}/{index:02}", path, sha256_bytes(data), len(data)))
    return items


def test_there_and_back(store: Store, tmp_path: Path) -> None:
    items = uploads(tmp_path / "in", 20)
    sent: list[int] = []
    upload_files(store, items, on_bytes=sent.append)
    upload_files(store, items, workers=1)
    assert sum(sent) == sum(item.size for item in items)
    assert len(sent) == 20
    received: list[int] = []
    back = [Download(item.key, tmp_path / "out" / item.key, item.sha256, item.size) for item in items]
    download_files(store, back, on_bytes=received.append)
    assert sorted(received) == sorted(sent)
    for item in items:
        assert (tmp_path / "out" / item.key).read_bytes() == item.path.read_bytes()
    index = [(item.key.removeprefix("p/"), item.sha256, item.size) for item in items]
    fetch_folder(store, "p", index, tmp_path / "folder")
    assert sorted(
        str(path.relative_to(tmp_path / "folder")) for path in (tmp_path / "folder").rglob("*") if path.is_file()
    ) == sorted(name for name, _, _ in index)


def test_nothing_to_do(store: Store, tmp_path: Path) -> None:
    upload_files(store, [])
    download_files(store, [])
    fetch_folder(store, "p", [], tmp_path / "out")


def test_missing_truncated_and_altered_objects(store: Store, tmp_path: Path) -> None:
    store.put_bytes("p/a", b"12345")
    digest = sha256_bytes(b"12345")
    for name, sha256, size, kind, message in [
        ("b", digest, 5, NotFoundError, "p/b: there is no such object"),
        ("a", digest, 6, IntegrityError, "p/a is truncated: 5 bytes, expected 6"),
        ("a", "0" * 64, 5, IntegrityError, f"p/a is altered: its sha256 is {digest}, expected 0000"),
    ]:
        with pytest.raises(kind, match=message):
            fetch_folder(store, "p/", [(name, sha256, size)], tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\\b", ".tmp-x"])
def test_names_from_strangers_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        fetch_folder(FileStore(tmp_path), "p", [(name, "0" * 64, 1)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_that_stands_twice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="p/a stands twice"):
        fetch_folder(
            FileStore(tmp_path), "p", [("a", "0" * 64, 1), ("b", "0" * 64, 1), ("a", "1" * 64, 1)], tmp_path / "out"
        )


def test_right_files_are_kept_and_wrong_ones_replaced(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "root")
    for name in ("a", "b", "c"):
        store.put_bytes(f"p/{name}", b"right")
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").write_bytes(b"right")
    (out / "b").write_bytes(b"wrong")
    kept = (out / "a").stat().st_ino
    fetch_folder(store, "p", [(name, sha256_bytes(b"right"), 5) for name in ("a", "b", "c")], out)
    assert [(out / name).read_bytes() for name in ("a", "b", "c")] == [b"right"] * 3
    assert (out / "a").stat().st_ino == kept


def test_the_first_error_drops_what_has_not_begun(tmp_path: Path) -> None:
    items = uploads(tmp_path / "in", 30)
    items[5] = Upload(items[5].key, items[5].path, "0" * 64, items[5].size)
    store = FileStore(tmp_path / "root")
    with pytest.raises(IntegrityError, match="in/05 is altered"):
        upload_files(store, items, workers=1)
    assert sorted(info.key for info in store.list()) == sorted(item.key for item in items[:5])


def test_transfers_run_side_by_side_and_no_more_than_asked(tmp_path: Path) -> None:
    running, most, lock = 0, 0, threading.Lock()

    class Slow(FileStore):
        def put_file(self, *args: object, **options: object) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.05)
            with lock:
                running -= 1

    upload_files(Slow(tmp_path / "root"), uploads(tmp_path / "in", 12), workers=3)
    assert most == 3


def test_an_error_in_the_progress_display_is_not_swallowed(tmp_path: Path) -> None:
    def broken(count: int) -> None:
        raise RuntimeError("no terminal")

    with pytest.raises(RuntimeError, match="no terminal"):
        upload_files(FileStore(tmp_path / "root"), uploads(tmp_path / "in", 3), on_bytes=broken)
