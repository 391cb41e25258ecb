"""Data keys under master keys that come and go: who opens what, and what attackers and accidents achieve."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from exemplar_store import DataKeys, EncryptionKeyError, ExemplarStore, WrongKeyError
from exemplar_store.master_key import DataKey, MasterKey
from exemplar_store.tables import key_wraps, metadata
from service.records.database import open_database
from tests.exemplar_store.test_encryption import _stored_bytes

OLD, NEW, THIRD = bytes(range(32)), b"n" * 32, b"t" * 32
ALL = {"probability": 1, "ensemble": 3, "max_exemplars": 1000}


def texts(store: ExemplarStore, name: str = "tickets") -> list[str]:
    return sorted(one.fields["text"] for slot in store.sample_slots(name, **ALL) for one in slot)


def wraps(engine: sa.Engine) -> list[tuple[int, str, bytes]]:
    with engine.connect() as connection:
        columns = (key_wraps.c.data_key, key_wraps.c.fingerprint, key_wraps.c.wrapped)
        return [tuple(row) for row in connection.execute(sa.select(*columns).order_by(*columns))]


def test_processes_that_open_a_new_database_together_make_one_data_key(engine):
    metadata.create_all(engine)
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: DataKeys(engine, OLD), range(4)))
    assert len(wraps(engine)) == 1
    assert len({one.queries for one in opened}) == 1
    with pytest.raises(WrongKeyError, match="If yours was retired, start with the newer key"):
        DataKeys(engine, NEW)  # though nothing is encrypted yet
    assert [(one.fingerprint, one.held) for one in opened[0].masters()] == [(MasterKey(OLD).fingerprint, True)]


def test_the_key_is_changed_while_processes_run(store, engine, tickets, rows):
    store.ingest("tickets", rows(5))
    before = texts(store)
    new = store.data_keys.add(NEW)
    newer = ExemplarStore(engine, NEW)
    assert newer.data_keys.queries == ExemplarStore(engine, OLD).data_keys.queries
    assert texts(newer) == texts(store) == before
    assert newer.ingest("tickets", rows(6)).exemplars == 1
    assert store.ingest("tickets", rows(7)).exemplars == 1

    assert newer.data_keys.retire() == [store.data_keys.fingerprint]
    assert newer.data_keys.retire() == []
    assert [(one.fingerprint, one.held) for one in newer.data_keys.masters()] == [(new, True)]
    with pytest.raises(WrongKeyError, match=f"opens with: {new}"):
        ExemplarStore(engine, OLD)
    # Who has the database open goes on.
    assert len(texts(store)) == 7
    assert store.ingest("tickets", rows(8)).exemplars == 1
    with engine.begin() as connection:
        store.create(connection, "more", public_size=1, fields=["text", "label"], embedded_field="text")
    store.ingest("more", rows(1))
    assert texts(ExemplarStore(engine, NEW), "more") == texts(store, "more") == ["text 0 of u0"]
    assert newer.forget("tickets", "u0") == 1


def test_nobody_is_locked_out(store, engine, tickets):
    keys = store.data_keys
    with pytest.raises(EncryptionKeyError, match="opens this database already"):
        keys.add(OLD)
    assert keys.retire() == []
    new = keys.add(NEW)
    with pytest.raises(EncryptionKeyError, match="opens this database already"):
        keys.add(NEW)
    for named, says in (
        (None, f"Start this command with {new} to retire the older one"),
        (keys.fingerprint, "is the one given"),
        ("0" * 16, "is none of them"),
    ):
        with pytest.raises(EncryptionKeyError, match=says):
            keys.retire(named)
    assert len(wraps(engine)) == 2
    assert keys.retire(new) == [new]  # added by mistake
    keys.add(NEW)
    newer = DataKeys(engine, NEW)
    newer.retire()
    for change in (lambda: keys.retire(new), keys.retire, lambda: keys.add(THIRD), lambda: store.renew("tickets")):
        with pytest.raises(WrongKeyError, match="start with the newer key"):
            change()
    assert [one for _, one, _ in wraps(engine)] == [new]


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_admins_who_retire_each_others_key_one_succeeds(engine, attempt):
    metadata.create_all(engine)
    DataKeys(engine, OLD).add(NEW)
    admins = {DataKeys(engine, key): key for key in (OLD, NEW)}
    barrier, failed = threading.Barrier(2), []

    def retire(mine: DataKeys, other: DataKeys) -> None:
        barrier.wait()
        try:
            mine.retire(other.fingerprint)
        except WrongKeyError:
            failed.append(mine)

    one, other = admins
    threads = [threading.Thread(target=retire, args=pair) for pair in ((one, other), (other, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 1
    (kept,) = admins.keys() - set(failed)
    assert [one for _, one, _ in wraps(engine)] == [kept.fingerprint]
    DataKeys(engine, admins[kept])


def test_two_admins_may_add_keys_at_once(engine):
    metadata.create_all(engine)
    keys = DataKeys(engine, OLD)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(keys.add, (NEW, THIRD)))
    assert len({DataKeys(engine, key).queries for key in (OLD, NEW, THIRD)}) == 1


def test_a_step_that_fails_changes_nothing(store, engine, tickets, rows):
    def fail(*_: object) -> None:
        raise RuntimeError("power cut")

    store.ingest("tickets", rows(3))
    before, found = wraps(engine), texts(store)
    with pytest.raises(RuntimeError):
        store.data_keys.add(NEW, fail)
    assert wraps(engine) == before
    with pytest.raises(RuntimeError):
        store.renew("tickets", before_commit=fail)
    assert texts(store) == found
    assert wraps(engine)[:1] == before  # the second is the unfinished copy's
    store.data_keys.add(NEW)
    both = wraps(engine)
    with pytest.raises(RuntimeError):
        DataKeys(engine, NEW).retire(before_commit=fail)
    assert wraps(engine) == both
    DataKeys(engine, NEW).retire()
    newer = ExemplarStore(engine, NEW)
    newer.renew("tickets")
    assert [number for number, _, _ in wraps(engine)] == [3]
    assert texts(newer) == texts(ExemplarStore(engine, NEW)) == found


def test_a_wrap_opens_in_its_row_only_and_unchanged_only():
    master, data_key = MasterKey(OLD), DataKey(b"e" * 32, b"q" * 32)
    wrapped = master.wrap(data_key, 7)
    assert master.unwrap(wrapped, 7) == data_key
    assert len(wrapped) == 93
    assert master.wrap(data_key, 7) != wrapped
    assert repr(data_key) == "DataKey(...)"
    for bit in range(8 * len(wrapped)):
        changed = bytearray(wrapped)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WrongKeyError, match="key_wraps was changed"):
            master.unwrap(bytes(changed), 7)
    for other, number in ((master, 8), (MasterKey(NEW), 7)):
        with pytest.raises(WrongKeyError):
            other.unwrap(wrapped, number)
    for short in (b"", wrapped[:1], wrapped[:12], wrapped[:13]):
        with pytest.raises(WrongKeyError):
            master.unwrap(short, 7)


def _flip(connection: sa.Connection) -> None:
    (wrapped,) = connection.scalars(sa.select(key_wraps.c.wrapped).where(key_wraps.c.data_key == 1))
    connection.execute(sa.update(key_wraps).values(wrapped=wrapped[:-1] + bytes([wrapped[-1] ^ 1])))


def _swap(connection: sa.Connection) -> None:
    rows = connection.execute(sa.select(key_wraps.c.data_key, key_wraps.c.wrapped)).all()
    for (number, _), (_, wrapped) in zip(rows, reversed(rows), strict=True):
        connection.execute(sa.update(key_wraps).where(key_wraps.c.data_key == number).values(wrapped=wrapped))


def _rename(connection: sa.Connection) -> None:
    connection.execute(sa.update(key_wraps).values(fingerprint=MasterKey(NEW).fingerprint))


def _drop(connection: sa.Connection) -> None:
    connection.execute(sa.delete(key_wraps))


@pytest.mark.parametrize("attack", [_flip, _swap, _rename, _drop])
def test_a_wrap_changed_or_moved_behind_the_stores_back_opens_for_nobody(
    store, engine, tickets, attack: Callable[[sa.Connection], None]
):
    with engine.begin() as connection:
        store.create(connection, "other", public_size=1, fields=["text", "label"], embedded_field="text")
    store.renew("other")  # two data keys now
    assert [number for number, _, _ in wraps(engine)] == [1, 2]
    with engine.begin() as connection:
        attack(connection)
    for key in (OLD, NEW):
        with pytest.raises(WrongKeyError):
            ExemplarStore(engine, key)


def test_wraps_of_another_database_do_not_open_this_ones_exemplars(store, engine, tickets, rows, tmp_path):
    store.ingest("tickets", rows(2))
    elsewhere = open_database(f"sqlite:///{tmp_path}/elsewhere.sqlite")
    metadata.create_all(elsewhere)
    DataKeys(elsewhere, OLD)  # the same master key
    ((_, _, wrapped),) = wraps(elsewhere)
    elsewhere.dispose()
    with engine.begin() as connection:
        connection.execute(sa.update(key_wraps).values(wrapped=wrapped))
    with pytest.raises(WrongKeyError, match="'tickets' was written under another"):
        ExemplarStore(engine, OLD).list()


def test_neither_keys_nor_what_was_retired_is_found_in_the_database(store, engine, tickets, rows, caplog, capfd):
    store.ingest("tickets", rows(3))
    ((_, _, retired),) = wraps(engine)
    store.data_keys.add(NEW)
    newer = ExemplarStore(engine, NEW)
    newer.data_keys.retire()
    newer.renew("tickets")
    newer.get("tickets")
    stored = _stored_bytes(engine)
    assert b"tickets" in stored
    assert retired not in stored
    secrets = [OLD, NEW, *(part for one in newer.data_keys._opened.values() for part in (one.exemplars, one.queries))]
    assert len(secrets) == 6
    told = "".join((*capfd.readouterr(), caplog.text)).encode()
    for secret in secrets:
        for written in (secret, secret.hex().encode(), base64.b64encode(secret)):
            assert written not in stored
            assert written not in told


def test_data_keys_are_kept_while_they_are_used(store, engine, tickets, rows):
    with engine.begin() as connection:
        store.create(connection, "other", public_size=1, fields=["text", "label"], embedded_field="text")
    store.renew("tickets")
    assert [number for number, _, _ in wraps(engine)] == [1, 2]
    assert store.data_keys.since().keys() == {"other", "tickets"}
    store.renew("other")
    assert [number for number, _, _ in wraps(engine)] == [2, 3]
    store.renew("other")
    with engine.begin() as connection:
        store.create(connection, "newest", public_size=1, fields=["text", "label"], embedded_field="text")
    store.renew("other")
    assert [number for number, _, _ in wraps(engine)] == [2, 4, 5]
    store.ingest("newest", rows(1))
    assert texts(ExemplarStore(engine, OLD), "newest") == ["text 0 of u0"]
