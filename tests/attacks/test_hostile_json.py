"""JSON that two readers understand in two ways, or that is made to exhaust the one who reads it."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable

import pytest

from tests.attacks.conftest import Scene
from tests.stages.workbench import hopline

FILES = ("manifest.json", "manifest.dsse.json", "config.json", "vocabulary.json")
JSON_CLAIM = {"manifest.json": "manifest", "manifest.dsse.json": "signature"}


def twice(data: bytes) -> bytes:
    """The first key again at the end, with another value."""
    key = next(iter(json.loads(data)))
    return data.rstrip()[:-1] + f',"{key}":"evil"}}'.encode()


def twice_by_an_escape(data: bytes) -> bytes:
    key = next(iter(json.loads(data)))
    return data.rstrip()[:-1] + f',"\\u{ord(key[0]):04x}{key[1:]}":"evil"}}'.encode()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [twice, twice_by_an_escape])
def test_a_key_twice(scene: Scene, name: str, change: Callable[[bytes], bytes]) -> None:
    """Refused in the manifest and its signature; in a file of the version it is no longer what was signed."""
    data = change((scene.version / name).read_bytes())
    assert json.loads(data)  # Python takes the last one
    scene.write(name, data)
    failed = scene.failures()
    if name in JSON_CLAIM:
        assert "stands twice" in failed[JSON_CLAIM[name]]
    else:
        assert f"file {name}" in failed


DEEP = b"[" * 1_000_000
BROKEN = {
    "deep lists": DEEP,
    "deep objects": b'{"a":' * 500_000,
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":1e999}',
    "an integer of a million digits": b'{"a":' + b"9" * 1_000_000 + b"}",
    "half a surrogate pair": b'{"a":"\\ud800"}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a null byte": b"{}\x00",
    "two documents": b"{}{}",
}


@pytest.mark.parametrize("name", ["manifest.json", "manifest.dsse.json"])
@pytest.mark.parametrize("what", BROKEN)
def test_json_that_is_none(scene: Scene, name: str, what: str) -> None:
    scene.write(name, BROKEN[what])
    begun = time.monotonic()
    assert JSON_CLAIM[name] in scene.failures()
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_gigabytes(scene: Scene, name: str) -> None:
    """A sparse file costs the sender nothing; it is refused by its size, before it is read into memory."""
    with (scene.version / name).open("r+b") as file:
        file.truncate(3 << 30 if name in JSON_CLAIM else 80 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = hopline("verify", scene.version, "--key", scene.public)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert done.code == (2 if name == "manifest.json" else 1)
    assert grown < 300 << 10  # KiB
    if name == "manifest.json":
        assert "more than the" in done.error
    else:
        assert "FAIL" in done.stdout


def test_thousands_of_signatures(scene: Scene) -> None:
    """Each would be tried with each key."""
    document = json.loads((scene.version / "manifest.dsse.json").read_bytes())
    document["signatures"] *= 50_000
    scene.write("manifest.dsse.json", json.dumps(document).encode())
    assert "1 to 100 signatures" in scene.failures()["signature"]


@pytest.mark.parametrize("item", ["0", "[]", "{}"])
def test_a_manifest_of_millions_of_values(scene: Scene, item: str) -> None:
    """A list in the one place that takes any JSON: ten megabytes of it would be a gigabyte of objects."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    data = (scene.version / "manifest.json").read_bytes()
    values = ",".join([item] * (10_000_000 // (len(item) + 1)))
    scene.write("manifest.json", data.replace(b'"leakage":null', f'"leakage":[{values}]'.encode()))
    assert "more than the" in scene.failures()["manifest"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB
