"""What the trainer expects of its stores, kept by folders of this machine and by the root store alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hopline.errors import HoplineError, IntegrityError, NotFoundError, StoreError
from hopline.stages.checkpoints import StoreCandidates, StoreCheckpoints
from hopline.storage import canonical_json, open_store, sha256_file
from hopline.training import LocalCandidateStore, LocalCheckpointStore, read_candidate

RUN = "f" * 64


class Places:
    """Both stores of a run, and the folder in which each keeps a step."""

    def __init__(self, kind: str, folder: Path, bench) -> None:
        config = bench.config()
        self.kind = kind
        self.model = bench.model(config)
        self.bench = bench
        if kind == "local":
            self.base = folder
            self.states = LocalCheckpointStore(folder / "checkpoints")
            self.candidates = LocalCandidateStore(folder / "candidates", config, bench.dataset.vocabulary)
        else:
            store = open_store(str(folder))
            self.base = folder / "runs" / RUN
            self.candidates = StoreCandidates(store, RUN, config, bench.dataset.vocabulary)
            self.states = StoreCheckpoints(store, RUN, self.candidates)

    def state_folder(self, step: int) -> Path:
        return self.base / "checkpoints" / f"step-{step:08d}"

    def candidate_folder(self, step: int) -> Path:
        return self.base / "candidates" / f"step-{step:08d}"

    @property
    def marker(self) -> str:
        return "digests.json" if self.kind == "local" else "index.json"


@pytest.fixture(params=["local", "root"])
def places(request: pytest.FixtureRequest, bench, tmp_path: Path) -> Places:
    return Places(request.param, tmp_path / "store", bench)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder to commit."""
    return make(tmp_path / "files", "one")


def make(folder: Path, text: str) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "state.json").write_text(text)
    (folder / "deep" / "empty").write_bytes(b"")
    (folder / "deep" / "tensors").write_bytes(bytes(range(256)) * 64)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fetch(places: Places, step: int, target: Path) -> dict[str, bytes]:
    target.mkdir()
    places.states.load(step, target)
    return content(target)


def test_a_state_comes_back_as_it_went(places: Places, files: Path, tmp_path: Path) -> None:
    """G55: with its digest, which names the content."""
    expected = content(files)
    assert places.states.committed() == []
    places.states.save(4, files)
    assert places.states.committed() == [4]
    target = tmp_path / "target"
    target.mkdir()
    digest = places.states.load(4, target)
    assert content(target) == expected
    assert digest == sha256_file(places.state_folder(4) / places.marker)
    places.states.save(5, make(tmp_path / "same", "one"))
    (tmp_path / "again").mkdir()
    assert places.states.load(5, tmp_path / "again") == digest


def test_states_are_listed_by_step(places: Places, tmp_path: Path) -> None:
    """G55: as numbers, whatever their width."""
    for step in (20, 3, 123456789, 0):
        places.states.save(step, make(tmp_path / str(step), "x"))
    assert places.states.committed() == [0, 3, 20, 123456789]


def test_a_state_of_the_same_step_is_replaced(places: Places, files: Path, tmp_path: Path) -> None:
    """D35: by the whole other one; no file of the first is left."""
    (files / "only-in-the-first").write_text("x")
    places.states.save(4, files)
    second = make(tmp_path / "second", "two")
    expected = content(second)
    places.states.save(4, second)
    assert fetch(places, 4, tmp_path / "target") == expected
    assert not (places.state_folder(4) / "only-in-the-first").exists()


def test_a_state_that_is_removed_is_gone(places: Places, files: Path, tmp_path: Path) -> None:
    """D40."""
    places.states.save(4, files)
    places.states.save(8, make(tmp_path / "other", "two"))
    places.states.delete(4)
    places.states.delete(4)
    assert places.states.committed() == [8]
    with pytest.raises(NotFoundError):
        fetch(places, 4, tmp_path / "target")
    assert not list(places.state_folder(4).rglob("*"))


def test_half_a_state_is_none(places: Places, files: Path, tmp_path: Path) -> None:
    """G55, D35: without its list of digests a folder is what a killed process left."""
    places.states.save(4, files)
    (places.state_folder(4) / places.marker).unlink()
    assert places.states.committed() == []
    with pytest.raises(NotFoundError):
        fetch(places, 4, tmp_path / "target")
    other = make(tmp_path / "other", "two")
    expected = content(other)
    places.states.save(4, other)
    assert fetch(places, 4, tmp_path / "again") == expected


@pytest.mark.parametrize("name", ["state.json", "deep/tensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "append", "remove"])
def test_a_damaged_file_is_found_and_named(places: Places, files: Path, tmp_path: Path, name: str, damage: str) -> None:
    """G63, D36: before anybody reads it."""
    places.states.save(4, files)
    path = places.state_folder(4) / name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-1] ^= 0x80
    changed = {"flip": data, "truncate": data[:-1], "append": data + b"x", "remove": None}[damage]
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
    with pytest.raises((IntegrityError, NotFoundError), match=name) as caught:
        fetch(places, 4, tmp_path / "target")
    assert isinstance(caught.value, NotFoundError) is (damage == "remove")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"3", b'{"state.json": 3}', b'{"files": {}}', b'{"files": [{"path": "x"}]}']
)
def test_a_damaged_list_of_digests_is_found(places: Places, files: Path, tmp_path: Path, data: bytes) -> None:
    """G63."""
    places.states.save(4, files)
    (places.state_folder(4) / places.marker).write_bytes(data)
    with pytest.raises(HoplineError) as caught:
        fetch(places, 4, tmp_path / "target")
    assert places.marker in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../outside", "deep/../../outside", "deep//tensors", ""])
def test_a_list_of_digests_leads_nowhere_else(places: Places, files: Path, tmp_path: Path, name: str) -> None:
    """G63: whoever altered it, and laid a file there that fits, cannot make the trainer write outside the folder."""
    places.states.save(4, files)
    (places.state_folder(4).parent / "outside").write_text("one")
    entry = {"sha256": sha256_file(places.state_folder(4) / "state.json"), "bytes": 3}
    index = {name: entry} if places.kind == "local" else {"files": [{"path": name, **entry}]}
    (places.state_folder(4) / places.marker).write_bytes(canonical_json(index))
    with pytest.raises(HoplineError):
        fetch(places, 4, tmp_path / "target")
    assert not (tmp_path / "outside").exists()
    assert content(tmp_path / "target") == {}


def test_a_state_that_cannot_be_written_is_one_clear_sentence(places: Places, files: Path) -> None:
    """D35: a file where the folder of the states should be."""
    places.base.mkdir(parents=True)
    (places.base / "checkpoints").write_text("in the way")
    with pytest.raises(StoreError) as caught:
        places.states.save(4, files)
    assert "\n" not in str(caught.value)


def test_a_candidate_can_be_read_where_its_record_says(places: Places) -> None:
    """G41: URI, digest and score of the record are those of the files."""
    record = places.candidates.put(4, places.model, 0.5, {"overall.score": 0.5})
    folder = places.candidate_folder(4)
    assert (record.step, record.score) == (4, 0.5)
    assert record.uri == folder.absolute().as_uri()
    found = read_candidate(folder, record.sha256)
    for name, tensor in places.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], tensor), name


def test_a_candidate_of_the_same_step_is_replaced(places: Places) -> None:
    """D35: an evaluation that is repeated after a resume writes its candidate again."""
    first = places.candidates.put(4, places.model, 0.5, {})
    assert places.candidates.put(4, places.model, 0.5, {}) == first
    second = places.candidates.put(4, places.model, 0.75, {})
    assert second.sha256 != first.sha256
    read_candidate(places.candidate_folder(4), second.sha256)
    assert json.loads((places.candidate_folder(4) / "scores.json").read_bytes())["score"] == 0.75


def test_a_candidate_that_was_let_go_is_removed_with_the_next_state(places: Places, files: Path) -> None:
    """D40: retention; the others stay."""
    for step in (4, 8):
        places.candidates.put(step, places.model, 0.5, {})
    places.candidates.delete(4)
    places.states.save(8, files)
    assert not list(places.candidate_folder(4).rglob("*"))
    assert (places.candidate_folder(8) / "index.json").is_file()


def test_what_a_killed_process_left_is_cleared_away(bench, files: Path, tmp_path: Path) -> None:
    """D35: local folders are made under a temporary name, which is never taken for a state."""
    states = LocalCheckpointStore(tmp_path / "states")
    remains = tmp_path / "states" / ".tmp-0123"
    make(remains, "half")
    (remains / "digests.json").write_text("{}")
    (tmp_path / "states" / "notes.txt").write_text("kept")
    assert states.committed() == []
    states.save(4, files)
    assert sorted(path.name for path in (tmp_path / "states").iterdir()) == ["notes.txt", "step-00000004"]


def test_the_stages_remove_candidates_of_an_attempt_that_went_another_way(bench, tmp_path: Path) -> None:
    """D40: only those that the finished run remembers stay."""
    places = Places("root", tmp_path, bench)
    for step in (4, 8, 12):
        places.candidates.put(step, places.model, 0.5, {})
    places.candidates.keep_only({8})
    assert [path.name for path in (places.base / "candidates").iterdir() if list(path.rglob("*"))] == ["step-00000008"]
