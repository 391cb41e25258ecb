"""API keys: shown once, hashed at rest, revocable."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.trail import AuditTrail
from accounting.replay.trail import verify
from service.records.api_keys import PREFIX, ApiKeys, KeyRotatedError, UnknownKeyError
from service.records.sessions import Sessions
from service.records.tables import api_keys, metadata
from tests.conftest import Clock


@pytest.fixture
def keys(engine: sa.Engine, clock: Clock) -> ApiKeys:
    metadata.create_all(engine)
    tables.metadata.create_all(engine)
    return ApiKeys(engine, clock=clock)


def test_a_token_is_its_keys_and_nobody_elses(keys: ApiKeys, clock: Clock):
    ana, ana_token = keys.create("ana", "analyst")
    _, root_token = keys.create("root", "admin")
    assert ana_token.startswith(PREFIX)
    assert len(ana_token) - len(PREFIX) == 43  # 256 bits in base64url
    assert (ana.name, ana.role, ana.created_at, ana.revoked_at) == ("ana", "analyst", clock.now, None)
    assert keys.authenticate(ana_token).id == ana.id
    assert keys.authenticate(root_token).role == "admin"
    for wrong in ("", PREFIX, ana_token[:-1], ana_token + "x", ana_token.upper(), ana.id, "é" * 50):
        assert keys.authenticate(wrong) is None


def test_the_database_holds_no_token(keys: ApiKeys, engine: sa.Engine):
    _, token = keys.create("ana", "analyst")
    with engine.connect() as connection:
        row = connection.execute(sa.select(api_keys)).one()
    assert row.token_sha256 == hashlib.sha256(token.encode()).digest()
    assert token not in str(row)
    assert token[len(PREFIX) :] not in str(row)


def test_a_revoked_key_is_refused_for_ever_and_stays_listed(keys: ApiKeys, clock: Clock):
    key, token = keys.create("ana", "analyst")
    other, other_token = keys.create("bo", "analyst")
    keys.revoke(key.id)
    revoked_at = clock.now
    clock.now += timedelta(days=1)
    keys.revoke(key.id)
    assert keys.authenticate(token) is None
    assert keys.authenticate(other_token).id == other.id
    assert {listed.id: listed.revoked_at for listed in keys.list()} == {key.id: revoked_at, other.id: None}
    with pytest.raises(UnknownKeyError, match="no such key"):
        keys.revoke("no such key")


def test_a_rotated_key_is_the_same_key_under_another_token(keys: ApiKeys, engine: sa.Engine, clock: Clock):
    made, first = keys.create("ana", "analyst", quota=7, rate_per_minute=5, scope=["kb.task"])
    clock.now += timedelta(days=1)
    rotated, second = keys.rotate(made, by="root")
    assert rotated == replace(made, rotated_at=clock.now)
    assert keys.authenticate(first) is None
    assert keys.authenticate(second).id == made.id
    rotated, third = keys.rotate(rotated, overlap=timedelta(hours=2), by="root")
    clock.now += timedelta(hours=1)
    rotated, fourth = keys.rotate(rotated, overlap=timedelta(hours=2), by="root")
    valid = [keys.authenticate(token) is not None for token in (first, second, third, fourth)]
    assert valid == [False, True, True, True]
    clock.now += timedelta(hours=1)
    assert [keys.authenticate(token) is not None for token in (second, third, fourth)] == [False, True, True]
    rotated, fifth = keys.rotate(rotated, by="root")  # as after a theft: nothing of before stands
    assert [keys.authenticate(token) is not None for token in (second, third, fourth, fifth)] == [False] * 3 + [True]
    assert verify(AuditTrail(engine).export()).problems == []
    keys.revoke(made.id)
    assert keys.authenticate(fifth) is None
    with pytest.raises(UnknownKeyError):
        keys.rotate(rotated)


def test_an_overlap_never_outlives_its_key(keys: ApiKeys, clock: Clock):
    made, first = keys.create("ana", "analyst", expires_at=clock.now + timedelta(hours=1))
    rotated, second = keys.rotate(made, overlap=timedelta(days=1))
    clock.now += timedelta(hours=1)
    assert (keys.authenticate(first), keys.authenticate(second)) == (None, None)
    with pytest.raises(UnknownKeyError):
        keys.rotate(rotated)


def test_a_rotation_without_overlap_ends_the_keys_sessions(keys: ApiKeys, engine: sa.Engine, clock: Clock):
    sessions = Sessions(engine, clock=clock)
    made, _ = keys.create("root", "admin")
    held = sessions.start(made)
    made, _ = keys.rotate(made, overlap=timedelta(hours=1))
    assert sessions.find(held) is not None
    keys.rotate(made)
    assert sessions.find(held) is None


def test_of_racing_rotations_one_wins_and_the_others_are_told(keys: ApiKeys, engine: sa.Engine):
    made, first = keys.create("ana", "analyst")
    together = threading.Barrier(4)

    def rotate(_: int) -> str | None:
        together.wait()
        try:
            return keys.rotate(made, overlap=timedelta(hours=1))[1]
        except KeyRotatedError:
            return None

    with ThreadPoolExecutor(4) as threads:
        (won,) = [token for token in threads.map(rotate, range(4)) if token]
    assert keys.authenticate(won).id == keys.authenticate(first).id == made.id
    assert len(AuditTrail(engine).events(kinds=["key.rotated"])) == 1


def test_a_rotation_that_fails_changes_nothing(keys: ApiKeys, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch):
    made, token = keys.create("ana", "analyst")

    broken = Mock(side_effect=ConnectionError)
    monkeypatch.setattr("service.records.api_keys.trail.append", broken)  # the last thing before the commit
    with pytest.raises(ConnectionError):
        keys.rotate(made)
    assert keys.authenticate(token) is not None
    assert keys.get(made.id) == replace(made, last_used_at=keys.get(made.id).last_used_at)
    assert [event.kind for event in AuditTrail(engine).events()] == ["key.created"]


def test_an_expired_key_is_refused_from_that_moment(keys: ApiKeys, clock: Clock):
    key, token = keys.create("ana", "analyst", expires_at=clock.now + timedelta(days=30))
    assert keys.get(key.id).expires_at == clock.now + timedelta(days=30)
    clock.advance(30 * 86400 - 1)
    assert keys.authenticate(token).id == key.id
    clock.advance(1)
    assert keys.authenticate(token) is None


@pytest.mark.parametrize(
    ("scope", "task", "allowed"),
    [
        ((), "support.queue", True),
        (("support",), "support.queue@3", True),
        (("support",), "supported.queue", False),
        (("support.queue",), "support.queue", True),
        (("support.queue",), "support.queue@2", True),
        (("support.queue",), "support.queues", False),
        (("support.queue", "billing"), "billing.page", True),
        (("support.queue", "billing"), "support.page", False),
        (("support.queue",), "support", False),
    ],
)
def test_a_scope_names_knowledge_bases_and_tasks(keys: ApiKeys, scope: tuple[str, ...], task: str, allowed: bool):
    key, token = keys.create("ana", "analyst", scope=scope)
    for same in (key, keys.get(key.id), keys.authenticate(token), *keys.list()):
        assert same.scope == scope
        assert same.may_ask(task) is allowed


def test_use_is_noted_at_most_once_a_minute(keys: ApiKeys, clock: Clock, engine: sa.Engine):
    _, token = keys.create("ana", "analyst")
    writes = []
    sa.event.listen(
        engine, "before_cursor_execute", lambda *a: writes.append(a[2]) if a[2].startswith("UPDATE") else None
    )
    first = clock.now
    for seconds in (0, 1, 58.9, 0.1):
        clock.now += timedelta(seconds=seconds)
        keys.authenticate(token)
    assert len(writes) == 2
    assert keys.list()[0].last_used_at == clock.now == first + timedelta(seconds=60)


def test_keys_are_listed_oldest_first(keys: ApiKeys, clock: Clock):
    for name in ("c", "a", "b"):
        keys.create(name, "analyst")
        clock.now += timedelta(seconds=1)
    assert [key.name for key in keys.list()] == ["c", "a", "b"]


def test_limits_are_set_changed_and_told_to_the_trail(keys: ApiKeys, engine: sa.Engine):
    key, token = keys.create("ana", "analyst", quota=5, rate_per_minute=60, by="root")
    assert (key.quota, key.charged, key.rate_per_minute) == (5, 0, 60)
    assert keys.authenticate(token) == key
    assert keys.get(key.id).quota == 5
    changed = keys.limit(key.id, quota=None, rate_per_minute=None, by="root")
    assert (changed.quota, changed.rate_per_minute) == (None, None)
    keys.revoke(key.id, "root")
    keys.revoke(key.id, "root")
    events = AuditTrail(engine).events()
    assert [event.kind for event in events] == ["key.created", "key.changed", "key.revoked"]
    assert {event.particulars.by for event in events} == {"root"}
    assert events[0].particulars.quota == 5
    assert token not in "".join(event.line() for event in events)


def test_limiting_an_unknown_key_is_refused(keys: ApiKeys):
    with pytest.raises(UnknownKeyError):
        keys.limit("nobody", quota=1, rate_per_minute=None)
