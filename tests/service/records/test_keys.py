"""API keys: shown once, hashed at rest, revocable."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.quotas import in_scope
from accounting.ledger.trail import AuditTrail
from accounting.replay.trail import verify
from service.operations.sessions import Sessions
from service.records.api_keys import PREFIX, ApiKeys, KeyRotatedError, StoredKey, UnknownKeyError
from service.records.tables import api_keys, metadata
from tests.conftest import Clock


@pytest.fixture
def keys(engine: sa.Engine, clock: Clock) -> ApiKeys:
    metadata.create_all(engine)
    tables.metadata.create_all(engine)
    return ApiKeys(engine, clock=clock)


def test_a_token_belongs_to_one_key_alone(keys: ApiKeys, clock: Clock):
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


def test_a_revoked_key_is_refused_permanently_and_stays_listed(keys: ApiKeys, clock: Clock):
    key, token = keys.create("ana", "analyst")
    other, other_token = keys.create("bo", "analyst")
    keys.revoke(key.id)
    revoked_at = clock.now
    clock.now += timedelta(days=1)
    keys.revoke(key.id)
    assert keys.authenticate(token) is None
    assert keys.authenticate(other_token).id == other.id
    assert {listed.id: listed.revoked_at for listed in keys.list()} == {key.id: revoked_at, other.id: None}
    with pytest.raises(UnknownKeyError):
        keys.revoke("no such key")


def test_a_rotated_key_is_the_same_key_under_another_token(keys: ApiKeys, engine: sa.Engine, clock: Clock):
    made, first = keys.create("ana", "analyst", quota=7, rate_per_minute=5, scope=["kb.task"])
    tokens = [first]

    def rotate(key: StoredKey, **options: timedelta) -> StoredKey:
        rotated, token = keys.rotate(key, by="root", **options)
        tokens.append(token)
        return rotated

    def valid() -> list[int]:
        return [number for number, token in enumerate(tokens) if keys.authenticate(token) is not None]

    clock.now += timedelta(days=1)
    rotated = rotate(made)
    assert rotated == replace(made, rotated_at=clock.now)
    assert valid() == [1]
    assert keys.authenticate(tokens[1]).id == made.id
    rotated = rotate(rotated, overlap=timedelta(hours=2))
    clock.now += timedelta(hours=1)
    rotated = rotate(rotated, overlap=timedelta(hours=2))
    assert valid() == [1, 2, 3]
    clock.now += timedelta(hours=1)
    assert valid() == [2, 3]
    rotated = rotate(rotated)  # as after a theft: no earlier token is valid
    assert valid() == [4]
    assert verify(AuditTrail(engine).export()).problems == []
    keys.revoke(made.id)
    assert valid() == []
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


def test_of_racing_rotations_one_wins_and_the_others_raise(keys: ApiKeys, engine: sa.Engine):
    made, first = keys.create("ana", "analyst")
    together = threading.Barrier(4)

    def rotate(_: int) -> str:
        together.wait()
        with suppress(KeyRotatedError):
            return keys.rotate(made, overlap=timedelta(hours=1))[1]
        return ""

    with ThreadPoolExecutor(4) as threads:
        (won,) = filter(None, threads.map(rotate, range(4)))
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
    ("scope", "allowed", "refused"),
    [
        ((), ["support.queue"], []),
        (("support",), ["support.queue@3"], ["supported.queue"]),
        (("support.queue",), ["support.queue", "support.queue@2"], ["support.queues", "support"]),
        (("support.queue", "billing"), ["billing.page"], ["support.page"]),
    ],
)
def test_a_scope_names_knowledge_bases_and_tasks(keys: ApiKeys, scope: tuple[str, ...], allowed, refused):
    key, token = keys.create("ana", "analyst", scope=scope)
    for same in (key, keys.get(key.id), keys.authenticate(token), *keys.list()):
        assert same.scope == scope
        assert [task for task in (*allowed, *refused) if in_scope(same.scope, task)] == allowed


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


def test_limits_are_set_changed_and_recorded_in_the_trail(keys: ApiKeys, engine: sa.Engine):
    key, token = keys.create("ana", "analyst", quota=5, rate_per_minute=60, by="root")
    assert (key.quota, key.charged, key.rate_per_minute) == (5, 0, 60)
    assert keys.authenticate(token) == key
    changed = keys.limit(key.id, quota=None, rate_per_minute=None, by="root")
    assert (changed.quota, changed.rate_per_minute) == (None, None)
    for _ in range(2):
        keys.revoke(key.id, "root")
    with pytest.raises(UnknownKeyError):
        keys.limit("nobody", quota=1, rate_per_minute=None)
    events = AuditTrail(engine).events()
    assert [event.kind for event in events] == ["key.created", "key.changed", "key.revoked"]
    assert {event.particulars.by for event in events} == {"root"}
    assert events[0].particulars.quota == 5
    assert token not in "".join(event.line() for event in events)
