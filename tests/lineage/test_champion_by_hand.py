"""Moves of the champion pointer by a person."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from hopline.config import GateConfig
from hopline.errors import ClaimError, IntegrityError, NotFoundError, StoreError, StoreUnavailableError, UserError
from hopline.lineage import history, move_champion, read_champion, version_prefix
from hopline.lineage.champion import champion_key
from hopline.lineage.champion_by_hand import promote, roll_back
from hopline.storage import PreconditionFailed, open_store
from hopline.storage.file import FileStore

GATE = GateConfig(minimum={"link.mrr": 0.5}, allowed_regression={"link.mrr": 0.0})
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
WHO = {"reason": "it is needed", "by": "anna@desk"}


@pytest.fixture
def champions(root, publish):
    """A store with three versions, each of which was champion, the last one still."""
    store = open_store(root)
    versions = [publish(store, mrr) for mrr in (0.6, 0.7, 0.8)]
    for version in versions:
        move_champion(store, "tiny", version, GATE)
    return store, versions


def hashes(store):
    return [pointer.manifest_hash for pointer in history(store, "tiny")]


def test_a_version_that_the_gate_refuses_is_promoted(champions, publish):
    store, versions = champions
    worse = publish(store, 0.55)
    assert not move_champion(store, "tiny", worse, GATE).moved
    before = store.get_bytes(champion_key("tiny"))
    move = promote(store, "tiny", worse.manifest_hash, **WHO, now=lambda: NOON)
    assert move.moved
    pointer = read_champion(store, "tiny")
    assert pointer == move.pointer
    assert (pointer.manifest_hash, pointer.action, pointer.by) == (worse.manifest_hash, "promote", "anna@desk")
    assert pointer.decision == ("it is needed",)
    assert pointer.decided_at == "2026-01-02T12:00:00.000000Z"
    assert pointer.previous_version == versions[2].manifest_hash
    assert store.get_bytes(f"models/tiny/history/{pointer.previous}.json") == before
    assert len(history(store, "tiny")) == 4


def test_the_first_champion_may_be_promoted(root, publish):
    store = open_store(root)
    version = publish(store, 0.1)
    assert promote(store, "tiny", version.manifest_hash, **WHO).moved
    assert hashes(store) == [version.manifest_hash]
    again = promote(store, "tiny", version.manifest_hash, reason="again", by="ben")
    assert (again.moved, again.pointer.decision) == (False, ("it is needed",))
    assert len(history(store, "tiny")) == 1


def test_only_a_version_that_verifies_is_promoted(tmp_path, publish):
    store = open_store(str(tmp_path / "root"))
    good, bad = publish(store, 0.6), publish(store, 0.7)
    move_champion(store, "tiny", good, GATE)
    before = store.get_bytes(champion_key("tiny"))
    readme = f"{version_prefix('tiny', bad.manifest_hash)}/README.md"
    kept = store.get_bytes(readme)
    store.put_bytes(readme, kept + b"?")
    with pytest.raises(ClaimError, match=r"does not verify, so it cannot be champion: file README\.md: longer"):
        promote(store, "tiny", bad.manifest_hash, **WHO)
    store.delete(readme)
    with pytest.raises(ClaimError, match="is missing"):
        promote(store, "tiny", bad.manifest_hash, **WHO)
    store.put_bytes(readme, kept)
    manifest = f"{version_prefix('tiny', bad.manifest_hash)}/manifest.json"
    store.put_bytes(manifest, store.get_bytes(manifest) + b" ")
    with pytest.raises(IntegrityError, match="is altered"):
        promote(store, "tiny", bad.manifest_hash, **WHO)
    with pytest.raises(NotFoundError):
        promote(store, "tiny", "0" * 64, **WHO)
    assert store.get_bytes(champion_key("tiny")) == before


def test_a_version_of_another_model_is_refused(tmp_path, publish):
    store = open_store(str(tmp_path / "root"))
    version = publish(store, 0.8)
    (tmp_path / "root/models/other").mkdir()
    (tmp_path / "root/models/tiny" / version.manifest_hash).rename(
        tmp_path / "root/models/other" / version.manifest_hash
    )
    with pytest.raises(ClaimError, match="of the model 'tiny', not of 'other'"):
        promote(store, "other", version.manifest_hash, **WHO)
    assert read_champion(store, "other") is None


def test_rollbacks_go_further_back_each_time(champions):
    store, (a, b, c) = champions
    assert roll_back(store, "tiny", **WHO).pointer.manifest_hash == b.manifest_hash
    pointer = read_champion(store, "tiny")
    assert (pointer.action, pointer.by, pointer.decision) == ("rollback", "anna@desk", ("it is needed",))
    assert pointer.withdrawn == (c.manifest_hash,)
    assert roll_back(store, "tiny", **WHO).pointer.manifest_hash == a.manifest_hash
    assert read_champion(store, "tiny").withdrawn == tuple(sorted((b.manifest_hash, c.manifest_hash)))
    with pytest.raises(NotFoundError, match="there is no champion before"):
        roll_back(store, "tiny", **WHO)
    assert hashes(store) == [v.manifest_hash for v in (a, b, c, b, a)]


def test_the_gate_does_not_bring_back_what_was_left_and_a_promotion_does(champions, publish):
    store, (a, b, c) = champions
    roll_back(store, "tiny", **WHO)
    move = move_champion(store, "tiny", c, GateConfig())
    assert (move.champion, move.moved, move.compared_with) == (False, False, b.manifest_hash)
    assert "rolled back from" in move.decision.reasons[0]
    better = publish(store, 0.9)
    assert move_champion(store, "tiny", better, GATE).moved, "another version is judged as ever"
    assert read_champion(store, "tiny").withdrawn == (c.manifest_hash,), "and the memory is kept"
    assert promote(store, "tiny", c.manifest_hash, **WHO).moved
    assert read_champion(store, "tiny").withdrawn == ()
    assert roll_back(store, "tiny", **WHO).pointer.manifest_hash == better.manifest_hash
    assert a.manifest_hash in hashes(store)


def test_a_rollback_to_a_named_champion(champions, publish):
    store, (a, b, c) = champions
    never = publish(store, 0.9)
    with pytest.raises(NotFoundError, match="was champion"):
        roll_back(store, "tiny", **WHO, to=never.manifest_hash)
    assert roll_back(store, "tiny", **WHO, to=a.manifest_hash[:10]).pointer.manifest_hash == a.manifest_hash
    assert read_champion(store, "tiny").withdrawn == tuple(sorted((b.manifest_hash, c.manifest_hash)))
    assert not roll_back(store, "tiny", **WHO, to=a.manifest_hash).moved
    forward = roll_back(store, "tiny", **WHO, to=c.manifest_hash).pointer
    assert c.manifest_hash not in forward.withdrawn
    with pytest.raises(NotFoundError, match="''"):
        roll_back(store, "tiny", **WHO, to="")


def test_no_rollback_to_a_version_that_is_damaged(tmp_path, publish):
    store = open_store(str(tmp_path / "root"))
    for mrr in (0.6, 0.7):
        move_champion(store, "tiny", publish(store, mrr), GATE)
    before = store.get_bytes(champion_key("tiny"))
    earlier = history(store, "tiny")[1].manifest_hash
    store.delete(f"{version_prefix('tiny', earlier)}/config.json")
    with pytest.raises(ClaimError, match=r"config\.json: is missing"):
        roll_back(store, "tiny", **WHO)
    assert store.get_bytes(champion_key("tiny")) == before


def test_there_is_nothing_to_roll_back(tmp_path):
    with pytest.raises(NotFoundError, match="has no champion"):
        roll_back(open_store(str(tmp_path)), "tiny", **WHO)


@pytest.mark.parametrize("words", [{"reason": " "}, {"reason": "a\nb"}, {"by": ""}, {"reason": "x" * 1001}])
def test_who_and_why_are_one_line(champions, words):
    store, (a, _, _) = champions
    before = store.get_bytes(champion_key("tiny"))
    for act in (
        lambda: promote(store, "tiny", a.manifest_hash, **WHO | words),
        lambda: roll_back(store, "tiny", **WHO | words),
    ):
        with pytest.raises(UserError, match="expected one line"):
            act()
    assert store.get_bytes(champion_key("tiny")) == before


def test_a_rollback_that_loses_a_race_does_nothing(champions, publish):
    store, (_, _, c) = champions
    winner = publish(store, 0.95)

    def race():  # the other one comes between the look and the swap
        move_champion(store, "tiny", winner, GATE)
        return NOON

    with pytest.raises(StoreError, match="somebody else moved the champion meanwhile"):
        roll_back(store, "tiny", **WHO, now=race)
    assert hashes(store)[:2] == [winner.manifest_hash, c.manifest_hash]
    assert read_champion(store, "tiny").withdrawn == ()


def test_a_promotion_that_loses_a_race_follows_the_winner(champions, publish):
    store, (a, _, c) = champions
    winner = publish(store, 0.95)

    def race():
        move_champion(store, "tiny", winner, GATE)
        return NOON

    assert promote(store, "tiny", a.manifest_hash, **WHO, now=race).pointer.previous_version == winner.manifest_hash
    assert hashes(store)[:3] == [a.manifest_hash, winner.manifest_hash, c.manifest_hash]


def test_tries_of_a_promotion_are_bounded(tmp_path, publish):
    store = open_store(str(tmp_path / "root"))
    a, b, mine = (publish(store, mrr) for mrr in (0.6, 0.7, 0.8))
    promote(store, "tiny", a.manifest_hash, **WHO)

    def race():
        now = read_champion(store, "tiny").manifest_hash
        promote(store, "tiny", (b if now == a.manifest_hash else a).manifest_hash, **WHO)
        return NOON

    with pytest.raises(StoreUnavailableError, match="3 times"):
        promote(store, "tiny", mine.manifest_hash, **WHO, now=race, attempts=3)


def test_many_at_once_lose_no_move(root, publish):
    store = open_store(root)
    versions = [publish(store, 0.5 + number / 100) for number in range(6)]
    barrier = threading.Barrier(6)

    def act(version):
        barrier.wait()
        return promote(open_store(root), "tiny", version.manifest_hash, **WHO).moved

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(act, versions))
    chain = history(store, "tiny")
    assert {p.manifest_hash for p in chain} == {v.manifest_hash for v in versions}
    assert len(chain) == 6

    # One fewer than there are: even one after the other they all find an earlier champion.
    barrier = threading.Barrier(5)

    def back(_):
        barrier.wait()
        try:
            return roll_back(open_store(root), "tiny", **WHO).moved
        except StoreError:
            return False

    with ThreadPoolExecutor(5) as pool:
        moved = sum(pool.map(back, range(5)))
    assert moved >= 1
    after = history(store, "tiny")
    assert len(after) == 6 + moved
    assert after[moved:] == chain
    assert [p.manifest_hash for p in reversed(after[:moved])] == [p.manifest_hash for p in chain[1 : 1 + moved]]


def test_a_swap_whose_answer_was_lost_counts_as_done(tmp_path, publish, monkeypatch):
    store = open_store(str(tmp_path / "root"))
    first, second = publish(store, 0.6), publish(store, 0.7)
    promote(store, "tiny", first.manifest_hash, **WHO)
    swap = FileStore.compare_and_swap

    def lose(self, key, data, *, expected_etag):
        swap(self, key, data, expected_etag=expected_etag)
        raise PreconditionFailed("the request was sent again, and lost against itself")

    monkeypatch.setattr(FileStore, "compare_and_swap", lose)
    assert promote(store, "tiny", second.manifest_hash, **WHO).moved
    assert roll_back(store, "tiny", **WHO).moved
    assert hashes(store) == [v.manifest_hash for v in (first, second, first)]
