"""URIs: what is accepted, and how they are taken apart and put together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hopline.errors import ConfigError
from hopline.storage import join_uri, open_object, open_store, split_uri
from hopline.storage.file import FileStore
from hopline.storage.s3 import S3Store


def test_local_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for uri, path in {
        "rel/ative": tmp_path / "rel/ative",
        ".": tmp_path,
        "../x": tmp_path.parent / "x",
        "~/x": tmp_path / "home/x",
        str(tmp_path): tmp_path,
        f"file://{tmp_path}/a%20b": tmp_path / "a b",
        f"file://localhost{tmp_path}/": tmp_path,
        "odd:name": tmp_path / "odd:name",
    }.items():
        store = open_store(uri)
        assert isinstance(store, FileStore)
        assert store.root == path
        again = open_store(store.base_uri)
        assert isinstance(again, FileStore)
        assert again.root == path


@pytest.mark.parametrize(
    ("uri", "base", "key_uri"),
    [
        ("s3://bucket", "s3://bucket", "s3://bucket/k"),
        ("s3://bucket/", "s3://bucket", "s3://bucket/k"),
        ("s3://bucket/a/b c/", "s3://bucket/a/b c", "s3://bucket/a/b c/k"),
    ],
)
def test_buckets(uri: str, base: str, key_uri: str) -> None:
    store = open_store(uri)
    assert isinstance(store, S3Store)
    assert (store.base_uri, store.uri("k")) == (base, key_uri)


@pytest.mark.parametrize(
    "uri",
    ["", "gs://bucket/x", "http://host/x", "https:/x", "s3:/bucket", "s3:bucket", "s3://", "s3:///key", "s3://BAD_bucket!/x",
     "S3://bucket/x", "file:x", "file://host/x", "file://", "file:///a%00b", "a\nb", "s3://bucket/a//b", "s3://bucket/../x"],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(uri: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_store(uri)
    assert "\n" not in str(error.value)
    assert (
        "s3://" in str(error.value) or "file:///" in str(error.value) or "a key is a relative path" in str(error.value)
    )


@pytest.mark.parametrize(
    ("uri", "base", "key"),
    [
        ("s3://b/p/manifest.json", "s3://b/p", "manifest.json"),
        ("s3://b/manifest.json", "s3://b", "manifest.json"),
        ("file:///a/b%20c/d%25.json", "file:///a/b%20c", "d%.json"),
        ("/a/b/c", "/a/b", "c"),
        ("c", ".", "c"),
        ("a/c", "a", "c"),
    ],
)
def test_split(uri: str, base: str, key: str) -> None:
    assert split_uri(uri) == (base, key)


@pytest.mark.parametrize("uri", ["s3://bucket", "s3://bucket/", "s3://bucket/a/", "file:///", "/", ".", "a/", ".."])
def test_a_folder_is_no_object(uri: str) -> None:
    with pytest.raises(ConfigError):
        open_object(uri)


@pytest.mark.parametrize(
    ("base", "parts", "joined"),
    [
        ("s3://b", ["x y", "z"], "s3://b/x y/z"),
        ("s3://b/p/", ["x/y"], "s3://b/p/x/y"),
        ("file:///r", ["x y#"], "file:///r/x%20y%23"),
        ("file:///", ["x"], "file:///x"),
        ("/", ["x"], "/x"),
        ("r/", ["x", "y"], "r/x/y"),
        ("r/", [], "r"),
        ("/", [], "/"),
        ("file:///", [], "file:///"),
    ],
)
def test_join(base: str, parts: list[str], joined: str) -> None:
    assert join_uri(base, *parts) == joined


def test_join_cannot_leave_the_base() -> None:
    for part in ("..", "a/../b", "a//b", ""):
        with pytest.raises(ConfigError):
            join_uri("s3://b/p", "x", part, "y")


def test_boto3_is_imported_only_for_s3() -> None:
    code = (
        "import sys, hopline.storage as s; s.open_store('.'); assert 'boto3' not in sys.modules; "
        "s.open_store('s3://bucket/x'); assert 'boto3' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
