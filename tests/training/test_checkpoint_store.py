"""Training states in a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopline.errors import HoplineError, IntegrityError, NotFoundError, StoreError
from hopline.storage import canonical_json, open_store, sha256_file
from hopline.training import Checkpoints


@pytest.fixture
def states(tmp_path: Path) -> Checkpoints:
    return Checkpoints(open_store(str(tmp_path / "store")), "checkpoints")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "store" / "checkpoints"


def save(states: Checkpoints, step: int, folder: Path, *, token: str = "t", **texts: str) -> None:
    """Commit small files as a state."""
    states.commit(step, [put(states, step, folder, f"{token}/{name}", text) for name, text in texts.items()])


def put(states: Checkpoints, step: int, folder: Path, name: str, text: str):
    path = folder / "file"
    path.write_text(text)
    return states.put(step, name, path)


def content(states: Checkpoints, step: int) -> dict[str, str]:
    index, _ = states.index(step)
    return {file.path.rpartition("/")[2]: states.read(step, file).decode() for file in index.files}


def test_a_state_comes_back_as_it_went(states: Checkpoints, base: Path, tmp_path: Path) -> None:
    """G55: with its digest, which is that of its index."""
    assert states.committed() == []
    save(states, 4, tmp_path, one="1", two="22")
    assert states.committed() == [4]
    assert content(states, 4) == {"one": "1", "two": "22"}
    index, digest = states.index(4)
    assert digest == sha256_file(base / "step-00000004" / "index.json")
    states.fetch(4, index.files[1], tmp_path / "fetched")
    assert (tmp_path / "fetched").read_text() == "22"


def test_states_are_listed_by_step(states: Checkpoints, tmp_path: Path) -> None:
    """G55: as numbers, whatever their width."""
    for step in (20, 3, 123456789, 0):
        save(states, step, tmp_path, one="1")
    assert states.committed() == [0, 3, 20, 123456789]


def test_a_state_of_the_same_step_is_replaced_at_once(states: Checkpoints, base: Path, tmp_path: Path) -> None:
    """D35: until the commit the first one stands whole; afterwards no file of it is left."""
    save(states, 4, tmp_path, token="a", one="1", old="x")
    files = [put(states, 4, tmp_path, "b/one", "2")]
    assert content(states, 4) == {"one": "1", "old": "x"}
    states.commit(4, files)
    assert content(states, 4) == {"one": "2"}
    assert not (base / "step-00000004" / "a").exists()


def test_a_state_that_is_removed_is_gone(states: Checkpoints, base: Path, tmp_path: Path) -> None:
    """D40."""
    save(states, 4, tmp_path, one="1")
    save(states, 8, tmp_path, one="2")
    states.delete(4)
    states.delete(4)
    assert states.committed() == [8]
    with pytest.raises(NotFoundError):
        states.index(4)
    assert not list((base / "step-00000004").rglob("*"))


def test_half_a_state_is_none_and_is_swept_away(states: Checkpoints, base: Path, tmp_path: Path) -> None:
    """G55, D35: without its index a folder is what a killed process left; so are files that no index names."""
    save(states, 4, tmp_path, one="1")
    put(states, 8, tmp_path, "t/one", "2")
    put(states, 4, tmp_path, "later/one", "3")
    assert states.committed() == [4]
    with pytest.raises(NotFoundError):
        states.index(8)
    states.sweep()
    assert content(states, 4) == {"one": "1"}
    assert sorted(path.name for path in base.rglob("*") if path.is_file()) == ["index.json", "one"]


def test_a_state_with_a_damaged_index_stops_no_sweep(states: Checkpoints, base: Path, tmp_path: Path) -> None:
    """G55, D36: what restores the states finds it and says so, and falls back; nothing of it is taken for a remnant."""
    save(states, 4, tmp_path, one="1")
    save(states, 8, tmp_path, one="2")
    put(states, 12, tmp_path, "t/one", "3")
    (base / "step-00000008" / "index.json").write_bytes(b"[]")
    states.sweep()
    assert states.committed() == [4, 8]
    assert content(states, 4) == {"one": "1"}
    assert (base / "step-00000008" / "t" / "one").read_text() == "2"
    assert not list((base / "step-00000012").rglob("*"))


@pytest.mark.parametrize("damage", ["flip", "truncate", "append", "remove"])
def test_a_damaged_file_is_found_and_named(states: Checkpoints, base: Path, tmp_path: Path, damage: str) -> None:
    """G63, D36: before anybody uses it."""
    save(states, 4, tmp_path, one="content")
    path = base / "step-00000004" / "t" / "one"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-1] ^= 0x80
    changed = {"flip": data, "truncate": data[:-1], "append": data + b"x", "remove": None}[damage]
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    file = states.index(4)[0].files[0]
    for read in (lambda: states.read(4, file), lambda: states.fetch(4, file, tmp_path / "fetched")):
        with pytest.raises((IntegrityError, NotFoundError), match="one") as caught:
            read()
        assert isinstance(caught.value, NotFoundError) is (damage == "remove")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "fetched").exists()


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b'{"files": {}}', b'{"files": [{"path": "x"}]}'])
def test_a_damaged_index_is_found(states: Checkpoints, base: Path, tmp_path: Path, data: bytes) -> None:
    """G63."""
    save(states, 4, tmp_path, one="1")
    (base / "step-00000004" / "index.json").write_bytes(data)
    with pytest.raises(HoplineError) as caught:
        states.index(4)
    assert "index.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../outside", "deep/../../outside", "deep//one", ""])
def test_an_index_leads_nowhere_else(states: Checkpoints, base: Path, tmp_path: Path, name: str) -> None:
    """G63: whoever altered it, and laid a file there that fits, cannot make the trainer read outside the folder."""
    save(states, 4, tmp_path, one="one")
    (base / "outside").write_text("one")
    entry = {"path": name, "sha256": sha256_file(base / "outside"), "bytes": 3}
    (base / "step-00000004" / "index.json").write_bytes(canonical_json({"files": [entry]}))
    with pytest.raises(HoplineError):
        states.read(4, states.index(4)[0].files[0])


def test_a_state_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    """D35: a file where the folder of the states should be."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "checkpoints").write_text("in the way")
    with pytest.raises(StoreError) as caught:
        save(Checkpoints(open_store(str(tmp_path / "store")), "checkpoints"), 4, tmp_path, one="1")
    assert "\n" not in str(caught.value)
