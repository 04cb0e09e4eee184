from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from hopline.config import GateConfig
from hopline.errors import DataError, HoplineError, IntegrityError, NotFoundError, StoreUnavailableError
from hopline.lineage import (
    Measured,
    history,
    measured_at_publishing,
    move_champion,
    read_champion,
    version_prefix,
)
from hopline.lineage.champion import champion_key
from hopline.storage import open_store, sha256_bytes

GATE = GateConfig(minimum={"link.mrr": 0.5}, allowed_regression={"link.mrr": 0.0})
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_the_first_version_becomes_champion(root, publish):
    store = open_store(root)
    assert read_champion(store, "tiny") is None
    assert history(store, "tiny") == []
    first = publish(store, 0.8)
    move = move_champion(store, "tiny", first, GATE, now=lambda: NOON)
    assert (move.champion, move.moved, move.compared_with) == (True, True, None)
    pointer = read_champion(store, "tiny")
    assert pointer.manifest_hash == first.manifest_hash
    assert pointer.manifest_uri == store.uri(f"{version_prefix('tiny', first.manifest_hash)}/manifest.json")
    assert pointer.decided_at == "2026-01-02T12:00:00.000000Z"
    assert pointer.previous is None
    assert pointer.reasons["previous"] == "this is the first champion"
    assert pointer.decision == move.decision.reasons


def test_a_better_version_takes_over_and_the_old_pointer_is_kept(root, publish):
    store = open_store(root)
    versions = [publish(store, mrr) for mrr in (0.6, 0.7, 0.8)]
    pointers = []
    for version in versions:
        assert move_champion(store, "tiny", version, GATE).moved
        pointers.append(store.get_bytes(champion_key("tiny")))
    chain = history(store, "tiny")
    assert [p.manifest_hash for p in chain] == [v.manifest_hash for v in reversed(versions)]
    assert chain[0].previous == sha256_bytes(pointers[1])
    assert chain[0].previous_version == versions[1].manifest_hash
    assert store.get_bytes(f"models/tiny/history/{chain[1].previous}.json") == pointers[0]


def test_a_worse_version_is_refused_and_nothing_moves(root, publish):
    store = open_store(root)
    good, bad = publish(store, 0.8), publish(store, 0.7)
    move_champion(store, "tiny", good, GATE)
    before = store.get_bytes(champion_key("tiny"))
    move = move_champion(store, "tiny", bad, GATE)
    assert (move.champion, move.moved, move.compared_with) == (False, False, good.manifest_hash)
    assert "below the champion's 0.8" in move.decision.reasons[0]
    assert store.get_bytes(champion_key("tiny")) == before
    assert list(store.list("models/tiny/history/")) == []


def test_the_champion_stays_champion(root, publish):
    store = open_store(root)
    version = publish(store, 0.8)
    move_champion(store, "tiny", version, GATE)
    again = move_champion(store, "tiny", version, GateConfig(minimum={"link.mrr": 0.99}))
    assert (again.champion, again.moved) == (True, False)
    assert len(history(store, "tiny")) == 1


def test_another_split_is_not_compared_unless_it_is_measured_again(root, publish):
    store = open_store(root)
    old, new = publish(store, 0.6), publish(store, 0.8, split="b" * 64)
    move_champion(store, "tiny", old, GATE)
    move = move_champion(store, "tiny", new, GATE)
    assert not move.champion
    assert "another test split" in move.decision.reasons[0]
    measured = Measured(old.manifest_hash, "b" * 64, {"link.mrr": 0.65})
    assert move_champion(store, "tiny", new, GATE, measure=lambda pointer: measured).moved


def test_who_loses_a_race_decides_again_against_the_winner(root, publish):
    store = open_store(root)
    first, winner, loser = (publish(store, mrr) for mrr in (0.6, 0.9, 0.7))
    move_champion(store, "tiny", first, GATE)
    asked = []

    def measure(pointer):
        asked.append(pointer.manifest_hash)
        if len(asked) == 1:  # the other publisher comes between the look and the swap
            move_champion(store, "tiny", winner, GATE)
        return measured_at_publishing(store, "tiny", pointer.manifest_hash)

    move = move_champion(store, "tiny", loser, GATE, measure=measure)
    assert asked == [first.manifest_hash, winner.manifest_hash]
    assert not move.champion
    assert move.compared_with == winner.manifest_hash
    assert read_champion(store, "tiny").manifest_hash == winner.manifest_hash


def test_tries_are_bounded(tmp_path, publish):
    store = open_store(str(tmp_path / "root"))
    challenger, a, b = (publish(store, mrr) for mrr in (0.9, 0.6, 0.61))
    anything = GateConfig()
    move_champion(store, "tiny", a, anything)

    def measure(pointer):
        other = b if pointer.manifest_hash == a.manifest_hash else a
        move_champion(store, "tiny", other, anything)
        return Measured(pointer.manifest_hash, "a" * 64, {})

    with pytest.raises(StoreUnavailableError, match="3 times"):
        move_champion(store, "tiny", challenger, anything, measure=measure, attempts=3)


def test_many_publishers_at_once_lose_no_history(root, publish):
    store = open_store(root)
    versions = [publish(store, mrr) for mrr in (0.6, 0.9, 0.7, 0.8)]
    barrier = threading.Barrier(len(versions))

    def move(version):
        barrier.wait()
        return move_champion(store, "tiny", version, GATE)

    with ThreadPoolExecutor(len(versions)) as pool:
        moves = list(pool.map(move, versions))
    chain = history(store, "tiny")
    assert chain[0].manifest_hash == versions[1].manifest_hash  # the best, whoever came first
    moved = {v.manifest_hash for v, m in zip(versions, moves, strict=True) if m.moved}
    assert {p.manifest_hash for p in chain} == moved
    assert len(chain) == len(moved)
    for version, outcome in zip(versions, moves, strict=True):
        if not outcome.champion:
            assert outcome.compared_with in moved - {version.manifest_hash}


MOVER = """
    import os, signal, sys
    from hopline.config import GateConfig
    from hopline.lineage import measured_at_publishing, move_champion
    from hopline.storage import open_store

    store = open_store(sys.argv[1])
    move_champion(store, "tiny", measured_at_publishing(store, "tiny", sys.argv[2]), GateConfig(),
                  now=lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_publisher_killed_before_the_swap_moves_nothing(root, publish):
    store = open_store(root)
    first, second = publish(store, 0.6), publish(store, 0.8)
    move_champion(store, "tiny", first, GATE)
    command = [sys.executable, "-c", textwrap.dedent(MOVER), root, second.manifest_hash]
    assert subprocess.run(command, check=False, env={**os.environ}).returncode == -signal.SIGKILL
    assert [p.manifest_hash for p in history(store, "tiny")] == [first.manifest_hash]
    assert move_champion(store, "tiny", second, GATE).moved
    assert len(history(store, "tiny")) == 2


def test_a_version_that_is_not_published_cannot_be_champion(root):
    with pytest.raises(NotFoundError, match="publish it first"):
        move_champion(open_store(root), "tiny", Measured("0" * 64, "a" * 64, {"link.mrr": 1.0}), GATE)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b"{}", "is no champion pointer"),
        (b"[]", "is no champion pointer"),
        (b'{"schema_id":"urn:hopline:champion","schema_version":2}', "schema_version 2"),
        (b'{"schema_id":"urn:hopline:champion","schema_version":1}', "Field required"),
        (b'{"schema_id":"urn:hopline:champion","schema_id":"urn:hopline:champion"}', "stands twice"),
    ],
)
def test_a_damaged_pointer_is_an_error_and_is_not_replaced(tmp_path, publish, data, problem):
    store = open_store(str(tmp_path / "root"))
    version = publish(store, 0.8)
    store.put_bytes(champion_key("tiny"), data)
    for act in (lambda: read_champion(store, "tiny"), lambda: move_champion(store, "tiny", version, GATE)):
        with pytest.raises(DataError, match=problem) as caught:
            act()
        assert "champion.json" in str(caught.value)
    assert store.get_bytes(champion_key("tiny")) == data


def test_the_pointer_of_another_model_is_refused(tmp_path, publish):
    store = open_store(str(tmp_path / "root"))
    move_champion(store, "tiny", publish(store, 0.8), GATE)
    store.put_bytes(champion_key("other"), store.get_bytes(champion_key("tiny")))
    with pytest.raises(IntegrityError, match="of the model 'tiny', expected 'other'"):
        read_champion(store, "other")


def test_a_cut_or_altered_history_is_seen(tmp_path, publish):
    store = open_store(str(tmp_path / "root"))
    for mrr in (0.6, 0.7, 0.8):
        move_champion(store, "tiny", publish(store, mrr), GATE)
    key = f"models/tiny/history/{read_champion(store, 'tiny').previous}.json"
    kept = store.get_bytes(key)
    store.put_bytes(key, kept.replace(b"0.7", b"0.9"))
    with pytest.raises(IntegrityError, match="is altered"):
        history(store, "tiny")
    store.delete(key)
    with pytest.raises(NotFoundError):
        history(store, "tiny")


def test_an_altered_manifest_of_the_champion_is_not_compared_with(tmp_path, publish):
    store = open_store(str(tmp_path / "root"))
    champion, challenger = publish(store, 0.9), publish(store, 0.8)
    move_champion(store, "tiny", champion, GATE)
    key = f"{version_prefix('tiny', champion.manifest_hash)}/manifest.json"
    store.put_bytes(key, store.get_bytes(key).replace(b"0.9", b"0.1"))
    with pytest.raises(HoplineError, match="is altered"):
        move_champion(store, "tiny", challenger, GATE)
    assert read_champion(store, "tiny").manifest_hash == champion.manifest_hash
