"""The data key under successive master keys: which key opens it, and what attackers and accidents achieve."""

import base64
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from exemplar_store import EncryptionKeyError, ExemplarStore, Keyring, MasterKey, WrongKeyError
from exemplar_store.tables import data_key, metadata
from service.records.database import open_database
from tests.exemplar_store.test_encryption import _stored_bytes
from tests.processes import FRESH

OLD, NEW, THIRD = bytes(range(32)), b"n" * 32, b"t" * 32
ALL = {"probability": 1, "ensemble": 3, "max_exemplars": 10_000}


def texts(store: ExemplarStore, name: str = "tickets") -> list[str]:
    return sorted(one.fields["text"] for slot in store.sample_slots(name, **ALL) for one in slot)


def wrap(engine: sa.Engine) -> tuple[int, str, bytes]:
    with engine.connect() as connection:
        return tuple(connection.execute(sa.select(data_key)).one())


def test_processes_that_open_a_new_database_together_make_one_data_key(engine):
    metadata.create_all(engine)
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: Keyring(engine, OLD), range(4)))
    assert wrap(engine)[:2] == (1, MasterKey(OLD).fingerprint)
    assert len({one.queries for one in opened}) == 1
    with pytest.raises(WrongKeyError, match=MasterKey(OLD).fingerprint):
        Keyring(engine, NEW)  # though nothing is encrypted yet


def test_the_key_is_changed_while_processes_run(store, another, engine, tickets, rows):
    store.ingest("tickets", rows(5))
    before = texts(store)
    store.keyring.rewrap(MasterKey(NEW))
    newer = ExemplarStore(engine, NEW)
    assert newer.keyring.queries == store.keyring.queries
    assert texts(newer) == texts(store) == before
    with pytest.raises(WrongKeyError, match=MasterKey(NEW).fingerprint):
        ExemplarStore(engine, OLD)
    # Processes that have the database open go on.
    assert newer.ingest("tickets", rows(6)).exemplars == 1
    assert store.ingest("tickets", rows(7)).exemplars == 1
    another("more")
    store.ingest("more", rows(1))
    assert texts(newer, "more") == texts(store, "more") == ["text 0 of u0"]
    assert newer.forget("tickets", "u0") == 1


def test_a_failed_change_changes_nothing(store, engine, tickets):
    before = wrap(engine)
    with pytest.raises(EncryptionKeyError, match="already"):
        store.keyring.rewrap(MasterKey(OLD))
    with pytest.raises(RuntimeError):
        store.keyring.rewrap(MasterKey(NEW), Mock(side_effect=RuntimeError("power cut")))
    assert wrap(engine) == before
    store.keyring.rewrap(MasterKey(NEW))
    with pytest.raises(WrongKeyError, match=MasterKey(NEW).fingerprint):
        store.keyring.rewrap(MasterKey(THIRD))
    assert wrap(engine)[1] == MasterKey(NEW).fingerprint


def test_of_two_admins_who_change_the_key_at_once_one_succeeds(engine):
    metadata.create_all(engine)

    def change(key: bytes) -> bool:
        try:
            admins[key].rewrap(MasterKey(key))
        except WrongKeyError:
            return False
        return True

    admins = {key: Keyring(engine, OLD) for key in (NEW, THIRD)}
    with ThreadPoolExecutor(2) as pool:
        succeeded = dict(zip(admins, pool.map(change, admins), strict=True))
    assert sorted(succeeded.values()) == [False, True]
    for key, opens in succeeded.items():
        if opens:
            assert Keyring(engine, key).queries == admins[key].queries
        else:
            with pytest.raises(WrongKeyError):
                Keyring(engine, key)


def rewrap_and_die(url: str, statement: int) -> None:
    """Change the key in a process that is killed before the statement with this number."""
    database = open_database(url)
    keyring = Keyring(database, OLD)
    die_before(database, statement)
    keyring.rewrap(MasterKey(NEW))


def die_before(database: sa.Engine, statement: int) -> None:
    numbers = itertools.count()

    def step(*_: object) -> None:
        if next(numbers) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    for event in ("before_cursor_execute", "commit"):
        sa.event.listen(database, event, step)


def killed(target: Callable[[str, int], None], url: str, step: int, fewest: int) -> Iterator[bool]:
    """Run ``target`` in processes that are killed later and later; yields whether each was, up to one that was not."""
    for number, statement in enumerate(itertools.count(0, step)):
        process = FRESH.Process(target=target, args=(url, statement))
        process.start()
        process.join(60)
        assert process.exitcode in (-signal.SIGKILL, 0)
        yield process.exitcode != 0
        if process.exitcode == 0:
            assert number + 1 >= fewest
            return


@pytest.mark.slow
def test_a_killed_change_leaves_one_key_that_opens_everything(store, engine, database_url, tickets, rows):
    store.ingest("tickets", rows(3))
    before = texts(store)
    for was_killed in killed(rewrap_and_die, database_url, 1, 4):  # find, wrap, commit
        key, other = (OLD, NEW) if was_killed else (NEW, OLD)
        assert texts(ExemplarStore(engine, key)) == before
        with pytest.raises(WrongKeyError):
            ExemplarStore(engine, other)


def _flip(connection: sa.Connection) -> None:
    wrapped = connection.scalars(sa.select(data_key.c.wrapped)).one()
    connection.execute(sa.update(data_key).values(wrapped=wrapped[:-1] + bytes([wrapped[-1] ^ 1])))


def changed(**values: object) -> Callable[[sa.Connection], object]:
    return lambda connection: connection.execute(sa.update(data_key).values(**values))


ATTACKS = {
    "flipped": _flip,
    "renumbered": changed(number=2),
    "renamed": changed(fingerprint=MasterKey(NEW).fingerprint),
    "dropped": lambda connection: connection.execute(sa.delete(data_key)),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_key_opens_a_wrap_changed_behind_the_stores_back(store, engine, tickets, attack: str):
    with engine.begin() as connection:
        ATTACKS[attack](connection)
    for key in (OLD, NEW):
        with pytest.raises(WrongKeyError):
            ExemplarStore(engine, key).list()


def test_the_wrap_of_another_database_does_not_open_this_ones_exemplars(store, engine, tickets, rows, tmp_path):
    store.ingest("tickets", rows(2))
    elsewhere = open_database(f"sqlite:///{tmp_path}/elsewhere.sqlite")
    metadata.create_all(elsewhere)
    Keyring(elsewhere, OLD)  # the same master key
    _, _, wrapped = wrap(elsewhere)
    elsewhere.dispose()
    with engine.begin() as connection:
        connection.execute(sa.update(data_key).values(wrapped=wrapped))
    with pytest.raises(WrongKeyError, match="'tickets'"):
        ExemplarStore(engine, OLD).list()


def test_neither_keys_nor_what_was_replaced_is_found_in_the_database(store, engine, tickets, rows, caplog, capfd):
    store.ingest("tickets", rows(3))
    _, _, replaced = wrap(engine)
    secrets = [OLD, NEW, store.keyring._data_key.exemplars, store.keyring.queries]
    store.keyring.rewrap(MasterKey(NEW))
    newer = ExemplarStore(engine, NEW)
    newer.reencrypt(lambda _done, _of: None)
    secrets.append(ExemplarStore(engine, NEW).keyring._data_key.exemplars)
    assert len(set(secrets)) == 5
    stored = _stored_bytes(engine)
    assert b"tickets" in stored
    assert replaced not in stored
    told = "".join((*capfd.readouterr(), caplog.text)).encode()
    for secret in secrets:
        for written in (secret, secret.hex().encode(), base64.b64encode(secret)):
            assert written not in stored
            assert written not in told
