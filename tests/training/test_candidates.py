"""Candidates in a store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hopline.errors import IntegrityError
from hopline.training import Candidates, fetch_candidate, read_candidate


@pytest.fixture
def candidates(bench) -> Candidates:
    return bench.candidates(bench.config())


@pytest.fixture
def weights(bench) -> dict[str, torch.Tensor]:
    return bench.model(bench.config()).state_dict()


def folder(bench, step: int) -> Path:
    return bench.folder / "run" / "candidates" / f"step-{step:08d}"


def test_a_candidate_can_be_read_by_its_record(bench, candidates: Candidates, weights) -> None:
    """G41: digest and score of the record are those of the files."""
    record = candidates.put(4, weights, 0.5, {"overall.score": 0.5})
    assert (record.step, record.score) == (4, 0.5)
    assert candidates.uri(4) == folder(bench, 4).absolute().as_uri()
    for found in (
        read_candidate(folder(bench, 4), record.sha256),
        fetch_candidate(candidates.store, candidates.folder(4), record.sha256),
    ):
        for name, tensor in weights.items():
            assert torch.equal(found.model.state_dict()[name], tensor), name


def test_a_candidate_of_the_same_step_is_replaced(bench, candidates: Candidates, weights) -> None:
    """D35: an evaluation that is repeated after a resume writes its candidate again."""
    first = candidates.put(4, weights, 0.5, {})
    assert candidates.put(4, weights, 0.5, {}) == first
    second = candidates.put(4, weights, 0.75, {})
    assert second.sha256 != first.sha256
    read_candidate(folder(bench, 4), second.sha256)
    assert json.loads((folder(bench, 4) / "scores.json").read_bytes())["score"] == 0.75


def test_what_another_attempt_left_is_removed(bench, candidates: Candidates, weights) -> None:
    """D40: only those that the finished run remembers stay."""
    for step in (4, 8, 12):
        candidates.put(step, weights, 0.5, {})
    candidates.keep_only({8})
    assert candidates.steps() == [8]
    assert [path.name for path in folder(bench, 8).parent.iterdir() if list(path.rglob("*"))] == ["step-00000008"]


def test_what_is_gone_is_named_and_what_is_altered_is_an_error(bench, candidates: Candidates, weights) -> None:
    """G63."""
    records = [candidates.put(step, weights, 0.5, {}) for step in (4, 8)]
    assert candidates.gone(records) == []
    (folder(bench, 4) / "scores.json").unlink()
    assert candidates.gone(records) == [4]
    (folder(bench, 8) / "model.safetensors").write_bytes(b"other")
    with pytest.raises(IntegrityError, match=r"model\.safetensors"):
        candidates.gone(records)


def test_a_dropped_candidate_stays_as_long_as_a_kept_state_names_it(bench) -> None:
    """D40: whoever falls back to the state before still finds what that state remembers."""
    scores = {2: 0.1, 4: 0.2, 6: 0.3, 8: 0.4, 10: 0.5, 12: 0.6}
    config = bench.config(evaluation_every=2, checkpoint_every=2, keep_candidates=1)
    bench.run(config, score=scores.__getitem__)
    states = bench.states()
    for step in states.committed():
        state = json.loads(bench.state_file("state.json", step).read_text())
        assert {candidate["step"] for candidate in state["candidates"]} <= set(bench.candidates(config).steps())
    assert set(bench.candidates(config).steps()) == {10, 12}
