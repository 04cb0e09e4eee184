from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from hopline.errors import ConfigError, DataError, IntegrityError
from hopline.lineage import Manifest, publish_version, verify, version_prefix
from hopline.lineage.publish import model_prefix
from hopline.progress import Event, NullSink
from hopline.storage import open_store


class Events:
    def __init__(self):
        self.seen: list[Event] = []

    def emit(self, event):
        self.seen.append(event)


def keys(store, manifest) -> set[str]:
    prefix = version_prefix("tiny", manifest.manifest_hash)
    return {info.key.removeprefix(f"{prefix}/") for info in store.list(f"{prefix}/")}


def test_a_version_lies_under_its_hash_and_verifies(root, stage, build):
    store, folder, events = open_store(root), stage(), Events()
    manifest = build(folder)
    found = publish_version(store, "tiny", folder, manifest, sink=events)
    assert found.manifest_hash == manifest.manifest_hash
    assert found.manifest_uri == f"{store.base_uri}/models/tiny/{manifest.manifest_hash}/manifest.json"
    assert not found.reused
    assert keys(store, manifest) == {*(f.path for f in manifest.subjects.files), "manifest.json"}
    assert verify(found.manifest_uri).exit_code == 0
    total = sum(file.size for file in manifest.subjects.files)
    progress = [event.step for event in events.seen if event.kind == "progress"]
    assert progress == sorted(progress)
    assert progress[-1] == total
    assert events.seen[-1].kind == "note"
    assert found.manifest_uri in events.seen[-1].message


def test_publishing_again_changes_nothing_and_says_so(root, stage, build):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    first = publish_version(store, "tiny", folder, manifest, sink=NullSink())
    again = publish_version(store, "tiny", folder, manifest, sink=NullSink())
    assert again.reused
    assert (again.manifest_uri, again.manifest_hash) == (first.manifest_uri, first.manifest_hash)


def test_a_lost_file_is_put_back(root, stage, build):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    publish_version(store, "tiny", folder, manifest, sink=NullSink())
    store.delete(f"{version_prefix('tiny', manifest.manifest_hash)}/config.json")
    again = publish_version(store, "tiny", folder, manifest, sink=NullSink())
    assert not again.reused
    assert verify(again.manifest_uri).exit_code == 0


def test_a_file_that_changed_since_stops_before_the_manifest(root, stage, build, damage):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    damage.flip(folder / "model.safetensors")
    with pytest.raises(IntegrityError, match=r"model\.safetensors"):
        publish_version(store, "tiny", folder, manifest, sink=NullSink())
    assert not keys(store, manifest) & {"manifest.json", "model.safetensors"}


def test_an_altered_object_is_never_taken_for_published(root, stage, build):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    key = f"{version_prefix('tiny', manifest.manifest_hash)}/README.md"
    store.put_bytes(key, b"# evil 0\n")
    with pytest.raises(IntegrityError, match=r"README\.md already holds other bytes"):
        publish_version(store, "tiny", folder, manifest, sink=NullSink())
    assert "manifest.json" not in keys(store, manifest)


def test_a_stray_object_is_named(root, stage, build):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    store.put_bytes(f"{version_prefix('tiny', manifest.manifest_hash)}/evil.py", b"x")
    with pytest.raises(IntegrityError, match=r"holds evil\.py"):
        publish_version(store, "tiny", folder, manifest, sink=NullSink())


def test_folder_and_manifest_have_to_agree(tmp_path, stage, build):
    store, folder = open_store(str(tmp_path / "root")), stage()
    manifest = build(folder)
    (folder / "more.txt").write_text("x")
    with pytest.raises(DataError, match=r"more\.txt is not in the manifest"):
        publish_version(store, "tiny", folder, manifest, sink=NullSink())
    (folder / "more.txt").unlink()
    (folder / "README.md").unlink()
    with pytest.raises(DataError, match=r"README\.md is missing in the folder"):
        publish_version(store, "tiny", folder, manifest, sink=NullSink())
    with pytest.raises(DataError, match="is of the model 'tiny'"):
        publish_version(store, "other", folder, manifest, sink=NullSink())
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", ["..", "../x", "/x", "a/../../b", "a\\b"])
def test_a_model_name_cannot_leave_the_root(name):
    with pytest.raises(ConfigError):
        model_prefix(name)


def test_two_publishers_of_one_version_end_with_one_whole_version(root, stage, build):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    barrier = threading.Barrier(4)

    def publish(_):
        barrier.wait()
        return publish_version(store, "tiny", folder, manifest, sink=NullSink())

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(publish, range(4)))
    assert {version.manifest_hash for version in found} == {manifest.manifest_hash}
    assert verify(found[0].manifest_uri).exit_code == 0


PUBLISHER = """
    import os, signal, sys
    from pathlib import Path
    from hopline.lineage import Manifest, publish_version
    from hopline.storage import open_store

    class Killer:
        count = 0
        def emit(self, event):
            if event.kind == "progress":
                self.count += 1
                if self.count == int(sys.argv[3]):
                    os.kill(os.getpid(), signal.SIGKILL)

    folder = Path(sys.argv[2])
    manifest = Manifest.parse((folder / "manifest.json").read_bytes(), source="manifest")
    publish_version(open_store(sys.argv[1]), "tiny", folder, manifest, sink=Killer())
"""


@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_killed_publisher_leaves_no_version_and_the_next_one_completes_it(root, stage, build, after):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    command = [sys.executable, "-c", textwrap.dedent(PUBLISHER), root, str(folder), str(after)]
    assert len(manifest.subjects.files) == 6
    killed = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert killed.returncode == -signal.SIGKILL
    left = keys(store, manifest)
    assert left
    assert "manifest.json" not in left
    found = publish_version(store, "tiny", folder, manifest, sink=NullSink())
    assert not found.reused
    assert verify(found.manifest_uri).exit_code == 0


def test_the_manifest_is_read_back_as_it_was_written(root, stage, build):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    found = publish_version(store, "tiny", folder, manifest, sink=NullSink())
    data = store.get_bytes(f"{version_prefix('tiny', found.manifest_hash)}/manifest.json", sha256=found.manifest_hash)
    assert Manifest.parse(data, source="m") == manifest
    assert json.loads(data)["name"] == "tiny"
