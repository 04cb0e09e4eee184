"""Archives of strangers: what an honest one gives, and every way of a hostile one that is refused before it does harm."""

from __future__ import annotations

import io
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hopline.datasets import archives, textfile
from hopline.datasets.archives import unpack
from hopline.datasets.source import is_data_file, unpacked_place
from hopline.errors import DataError
from hopline.storage import sha256_bytes

DATA = {"umls/train.txt": b"a\tlikes\tb\n", "umls/valid.txt": b"b\tlikes\ta\n", "umls/README": b"hello"}


def zipped(path: Path, members: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if change is not None:
                change(info)
            archive.writestr(info, data)
    return path


def tarred(path: Path, members: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if change is not None:
                change(info)
            archive.addfile(info, io.BytesIO(data))
    return path


PACKERS = {"x.zip": zipped, "x.tar": tarred, "x.tar.gz": tarred, "x.tgz": tarred}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "out" / "folder"
    path.mkdir(parents=True)
    return path


def refused(archive: Path, folder: Path, message: str) -> None:
    """The archive is refused in one line, nothing was written outside, and nothing that is not plain inside."""
    with pytest.raises(DataError, match=message) as caught:
        unpack(archive, folder, wanted=is_data_file)
    assert "\n" not in str(caught.value)
    assert str(archive) in str(caught.value)
    assert list(folder.parent.iterdir()) == [folder]
    assert not any(path.is_symlink() for path in folder.rglob("*"))


@pytest.mark.parametrize("name", PACKERS)
def test_data_files_are_unpacked_and_hashed(tmp_path: Path, folder: Path, name: str) -> None:
    members = {"./umls/test.txt": b"", "umls/.hidden.txt": b"x", "__MACOSX/umls/._train.txt": b"x", **DATA}
    found = unpack(PACKERS[name](tmp_path / name, members), folder, wanted=is_data_file)
    assert [(file.path, file.bytes, file.sha256) for file in found] == [
        (path, len(data), sha256_bytes(data))
        for path, data in (("umls/test.txt", b""), *((p, d) for p, d in DATA.items() if p.endswith(".txt")))
    ]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "umls/test.txt": b"",
        "umls/train.txt": DATA["umls/train.txt"],
        "umls/valid.txt": DATA["umls/valid.txt"],
    }
    assert unpacked_place(folder, [file.path for file in found], name) == folder / "umls"


def test_the_place_of_the_data_files(folder: Path) -> None:
    assert unpacked_place(folder, ["train.txt"], "x.zip") == folder
    with pytest.raises(DataError, match=r"x\.zip: data files in several folders \('\.', 'a'\); pack one of them"):
        unpacked_place(folder, ["a/train.txt", "train.txt"], "x.zip")
    with pytest.raises(DataError, match=r"x\.zip: no data files in it; expected names that end in \.jsonl"):
        unpacked_place(folder, [], "x.zip")


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize(
    "path",
    ["../train.txt", "a/../../train.txt", "/etc/train.txt", "a\\..\\train.txt", "a//train.txt", "..", "a\x01b.txt"],
)
def test_paths_that_lead_out_are_refused(tmp_path: Path, folder: Path, name: str, path: str) -> None:
    archive = PACKERS[name](tmp_path / name, {"train.txt": b"a r b\n", path: b"a r b\n"})
    refused(archive, folder, "member '.*' has a path that leads out of its folder")
    assert list(folder.iterdir()) == [], "every member is looked at before any is written"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, folder: Path, name: str, kind: bytes) -> None:
    def change(info: tarfile.TarInfo) -> None:
        if info.name == "valid.txt":
            info.type, info.linkname, info.size = kind, "/etc/passwd", 0

    archive = tarred(tmp_path / name, {"train.txt": b"a r b\n", "valid.txt": b""}, change)
    refused(archive, folder, r"member 'valid\.txt' is a link or a device; expected plain files")


def test_a_link_to_a_folder_cannot_redirect_a_later_member(tmp_path: Path, folder: Path) -> None:
    def change(info: tarfile.TarInfo) -> None:
        if info.name == "data":
            info.type, info.linkname = tarfile.SYMTYPE, str(tmp_path)

    archive = tarred(tmp_path / "x.tar", {"data": b"", "data/train.txt": b"a r b\n"}, change)
    refused(archive, folder, "member 'data' is a link or a device")
    assert not (tmp_path / "train.txt").exists()


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, folder: Path, kind: int) -> None:
    def change(info: zipfile.ZipInfo) -> None:
        info.create_system, info.external_attr = 3, (kind | 0o777) << 16

    archive = zipped(tmp_path / "x.zip", {"train.txt": b"/etc/passwd"}, change)
    refused(archive, folder, r"member 'train\.txt' is a link or a device")


@pytest.mark.parametrize("name", PACKERS)
def test_a_member_that_stands_twice_is_refused(tmp_path: Path, folder: Path, name: str) -> None:
    path = tmp_path / name
    if name == "x.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("train.txt", "a r b\n")
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("train.txt", "b r a\n")
    else:
        tarred(path, {"train.txt": b"a r b\n", "./train.txt": b"b r a\n"})
    refused(path, folder, r"member 'train\.txt' stands twice")


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "_ALWAYS_ALLOWED", 1 << 20)
    monkeypatch.setattr(archives, "_MAX_READ", 1 << 20)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_a_bomb_is_refused(tmp_path: Path, folder: Path, name: str) -> None:
    """Ten files that are small to send and large to keep."""
    archive = PACKERS[name](tmp_path / name, {f"part{number}.txt": bytes(4 << 20) for number in range(10)})
    refused(archive, folder, r"member '.*' takes it to \d+ bytes from \d+; refused: more than 200 times its size")
    assert sum(path.stat().st_size for path in folder.iterdir()) == 0


@pytest.mark.usefixtures("small_limits")
def test_a_bomb_that_lies_about_its_size_is_stopped(tmp_path: Path, folder: Path) -> None:
    """The directory of the zip says ten bytes; the data goes on."""
    archive = zipped(tmp_path / "x.zip", {"train.txt": bytes(8 << 20)})
    data = bytearray(archive.read_bytes())
    for place in (data.index(b"PK\x03\x04") + 22, data.index(b"PK\x01\x02") + 24):
        data[place : place + 4] = struct.pack("<I", 10)
    archive.write_bytes(data)
    refused(archive, folder, r"x\.zip: ")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3 << 20


@pytest.mark.usefixtures("small_limits")
def test_a_header_too_long_for_memory_is_refused(tmp_path: Path, folder: Path) -> None:
    """A tar whose long name is said to have many bytes: the library would read them all at once."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2 << 20
    path = tmp_path / "x.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2 << 20) + bytes(1024))
    refused(path, folder, r"holds a header of \d+ bytes; refused")


def test_more_members_than_a_data_set_has_are_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 5)
    for name, pack in PACKERS.items():
        archive = pack(tmp_path / name, {f"{number}.txt": b"a r b\n" for number in range(6)})
        refused(archive, folder, r"more than 5 files, from '4\.txt' on")


def test_more_bytes_than_anybody_needs_are_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 100_000)
    archive = tarred(tmp_path / "x.tar", {"a.txt": os.urandom(60_000), "b.txt": os.urandom(50_000)})
    refused(archive, folder, r"member 'a\.txt' takes it to 110000 bytes")


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "flipped"])
def test_a_damaged_archive_is_one_line(tmp_path: Path, folder: Path, name: str, damage: str) -> None:
    archive = PACKERS[name](tmp_path / name, {f"{n}.txt": os.urandom(40_000) for n in range(3)})
    data = archive.read_bytes()
    flipped = bytes(byte ^ (255 if 50_000 < place < 50_100 else 0) for place, byte in enumerate(data))
    archive.write_bytes({"cut": data[:70_000], "noise": os.urandom(5000), "empty": b"", "flipped": flipped}[damage])
    if (name, damage) == ("x.tar", "flipped"):
        return  # a tar has no digest of its own: the digest of the archive, which is part of the snapshot, tells
    refused(archive, folder, rf"{name}: ")


def test_an_encrypted_member_is_refused(tmp_path: Path, folder: Path) -> None:
    archive = zipped(tmp_path / "x.zip", {"train.txt": b"a r b\n"})
    data = bytearray(archive.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(data)
    refused(archive, folder, r"member 'train\.txt' is encrypted")


def test_an_archive_that_is_not_there(tmp_path: Path, folder: Path) -> None:
    for name in PACKERS:
        with pytest.raises(DataError, match=r"no such file; expected an archive"):
            unpack(tmp_path / name, folder, wanted=is_data_file)
