from __future__ import annotations

import shutil

import pytest

from hopline.errors import DataError, IntegrityError, NotFoundError
from hopline.lineage import fetch_version, publish_version, read_weights, version_prefix
from hopline.progress import NullSink
from hopline.storage import open_store


@pytest.fixture
def published(root, stage, build):
    store, folder = open_store(root), stage()
    manifest = build(folder)
    return store, publish_version(store, "tiny", folder, manifest, sink=NullSink()), manifest


def test_a_version_comes_with_every_file_checked(published, tmp_path, stage):
    store, version, manifest = published
    for target in (version.manifest_uri, version.manifest_uri.rsplit("/", 1)[0]):
        found = fetch_version(target, tmp_path / "cache")
        assert (found.manifest, found.manifest_hash) == (manifest, version.manifest_hash)
        assert {f.path for f in manifest.subjects.files} <= {p.name for p in found.folder.iterdir()}
        assert read_weights(found.folder).keys() == read_weights(stage(folder=tmp_path / "again")).keys()
    local = store.local_path("x") is not None
    assert (tmp_path / "cache").exists() != local


def test_altered_and_missing_files_are_refused(published, tmp_path):
    store, version, _ = published
    prefix = version_prefix("tiny", version.manifest_hash)
    config = store.get_bytes(f"{prefix}/config.json")
    store.put_bytes(f"{prefix}/config.json", config.replace(b"tiny", b"evil"))
    with pytest.raises(IntegrityError, match=r"config\.json is altered"):
        fetch_version(version.manifest_uri, tmp_path / "cache")
    store.put_bytes(f"{prefix}/config.json", config[:-1])
    with pytest.raises(IntegrityError, match=r"config\.json is truncated"):
        fetch_version(version.manifest_uri, tmp_path / "cache")
    store.delete(f"{prefix}/config.json")
    with pytest.raises(NotFoundError, match=r"config\.json"):
        fetch_version(version.manifest_uri, tmp_path / "cache")


def test_an_altered_or_foreign_manifest_is_refused(published, tmp_path):
    store, version, _ = published
    key = f"{version_prefix('tiny', version.manifest_hash)}/manifest.json"
    store.put_bytes(key, store.get_bytes(key).replace(b'"value":0.8', b'"value":0.9'))
    with pytest.raises(IntegrityError, match="expected " + version.manifest_hash):
        fetch_version(version.manifest_uri, tmp_path / "cache")
    store.put_bytes("elsewhere/manifest.json", b"{}")
    with pytest.raises(DataError, match="is no manifest"):
        fetch_version(store.uri("elsewhere/manifest.json"), tmp_path / "cache")
    with pytest.raises(NotFoundError):
        fetch_version(store.uri("nowhere"), tmp_path / "cache")


def test_a_damaged_copy_in_the_cache_is_fetched_again(published, tmp_path, damage):
    _, version, _ = published
    found = fetch_version(version.manifest_uri, tmp_path / "cache")
    if found.folder.is_relative_to(tmp_path / "cache"):
        damage.flip(found.folder / "model.safetensors")
        again = fetch_version(version.manifest_uri, tmp_path / "cache")
        assert read_weights(again.folder)
    else:  # a local version is not repaired, it is refused
        damage.flip(found.folder / "model.safetensors")
        with pytest.raises(IntegrityError):
            fetch_version(version.manifest_uri, tmp_path / "cache")


def test_a_copied_folder_can_be_used(tmp_path, stage, build):
    folder = stage()
    (folder / "manifest.json").write_bytes(build(folder).to_bytes())
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert fetch_version(str(copy), tmp_path / "cache").folder == copy
