"""Exemplars under new keys: nothing lost, nothing the old keys tell, and nobody disturbed."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import sqlalchemy as sa

import exemplar_store.store
from exemplar_store import EncryptionKeyError, ExemplarStore, TamperedError
from exemplar_store.encryption import place
from exemplar_store.tables import exemplars, knowledge_bases, units
from service.database import open_database
from tests.exemplar_store.test_data_keys import NEW, OLD, texts
from tests.exemplar_store.test_encryption import _stored_bytes


def stored(engine: sa.Engine, table: sa.Table) -> list[sa.Row]:
    with engine.connect() as connection:
        return list(connection.execute(sa.select(table).order_by(*table.primary_key)))


def keys_of(store: ExemplarStore, engine: sa.Engine):
    with engine.connect() as connection:
        return store.data_keys.of(connection, connection.execute(sa.select(knowledge_bases)).one())


@pytest.mark.parametrize("embeddings", [True, False])
def test_all_is_there_under_keys_that_the_old_ones_do_not_tell(store, engine, tickets, rows, embed, embeddings):
    embed = embed if embeddings else None
    store.ingest("tickets", rows(1001, each=2), embed)
    before, was = texts(store), keys_of(store, engine)
    old_units, old_rows = stored(engine, units), stored(engine, exemplars)
    percents: list[int] = []
    assert store.renew("tickets", percents.append) == 0
    assert percents == sorted(percents)
    assert percents[-1] == 100

    now = keys_of(store, engine)
    assert texts(store) == before == texts(ExemplarStore(engine, OLD))
    new_units, new_rows = stored(engine, units), stored(engine, exemplars)
    assert [row.position for row in new_units] == [row.position for row in old_units]
    assert not {row.unit_tag for row in new_units} & {row.unit_tag for row in old_units}
    for column in ("content_tag", "payload"):
        assert not {getattr(row, column) for row in new_rows} & {getattr(row, column) for row in old_rows}
    assert now.unit_tag("u0") in {row.unit_tag for row in new_units}
    assert was.unit_tag("u0") not in {row.unit_tag for row in new_units}
    for row in new_rows[:5]:
        with pytest.raises(TamperedError):
            was.decrypt(row.payload, place(row.position, row.content_tag))
    if engine.dialect.name == "sqlite":
        left = _stored_bytes(engine)
        assert not [row for row in old_rows if row.payload in left]

    assert store.ingest("tickets", rows(1002, each=2), embed).already_there == 2002
    store.renew("tickets")
    assert store.ingest("tickets", rows(1002, each=2), embed).exemplars == 0
    assert store.forget("tickets", "u1001") == 2
    assert texts(store) == before


def test_a_knowledge_base_with_nobody_in_it(store, engine, tickets, rows):
    assert store.renew("tickets") == 0
    store.ingest("tickets", rows(2))
    assert len(texts(store)) == 2


def test_another_master_key_must_be_retired_first(store, engine, tickets, rows):
    store.ingest("tickets", rows(2))
    store.data_keys.add(NEW)
    with pytest.raises(EncryptionKeyError, match="dpicl encryption retire"):
        store.renew("tickets")
    assert len(texts(ExemplarStore(engine, NEW))) == 2


def test_a_row_that_does_not_open_stays_as_it_was(store, engine, tickets, rows):
    store.ingest("tickets", rows(3))
    with engine.begin() as connection:
        connection.execute(sa.update(exemplars).where(exemplars.c.position == 1).values(payload=b"broken"))
    assert store.renew("tickets") == 1
    assert texts(store) == ["text 0 of u0", "text 0 of u2"]
    assert [row.payload for row in stored(engine, exemplars)][1] == b"broken"
    assert store.forget("tickets", "u1") == 1


@pytest.mark.parametrize("embeddings", [True, False])
def test_an_upload_that_began_before_is_stored_under_the_new_keys(store, engine, tickets, rows, embed, embeddings):
    store.ingest("tickets", rows(2), embed if embeddings else None)
    other = ExemplarStore(engine, OLD)

    def renewing():
        yield from rows(2)
        other.renew("tickets")
        other.renew("tickets")
        yield from rows(4)

    report = store.ingest("tickets", renewing(), embed if embeddings else None)
    assert (report.exemplars, report.units, report.already_there) == (2, 2, 4)
    assert texts(store) == texts(other) == [f"text 0 of u{i}" for i in range(4)]


@pytest.mark.parametrize("step", ["members", "read_exemplars"])
def test_a_renewal_between_two_steps_of_a_sample_is_not_seen(store, engine, tickets, rows, monkeypatch, step):
    store.ingest("tickets", rows(50))
    other, real = ExemplarStore(engine, OLD), getattr(exemplar_store.store, step)

    def after_a_renewal(*args):
        other.renew("tickets")
        return real(*args)

    monkeypatch.setattr(exemplar_store.store, step, after_a_renewal)
    # It waits for readers to be done, and this thread's sample is one.
    monkeypatch.setattr(exemplar_store.store, "empty_write_ahead_log", lambda _engine: None)
    for _ in range(2):
        assert len(texts(store)) == 50
        blocks = store.sample_blocks("tickets", probability=1, blocks=3, max_exemplars=1000)
        assert sum(map(len, blocks)) == 50


def test_samples_are_whole_and_uploads_go_on_meanwhile(store, engine, database_url, tickets, rows, embed):
    """Another engine stands for another process: it shares nothing with the one that renews but the database."""
    store.ingest("tickets", rows(600), embed)
    elsewhere = open_database(database_url)
    running = ExemplarStore(elsewhere, OLD)
    done, seen, failed = threading.Event(), [], []

    def work() -> None:
        number = 0
        try:
            while not done.is_set():
                slots = running.sample_slots("tickets", probability=1, ensemble=2, max_exemplars=10_000)
                seen.append(sum(map(len, slots)) - number)
                blocks = running.sample_blocks("tickets", probability=1, blocks=2, max_exemplars=10_000)
                seen.append(sum(map(len, blocks)) - number)
                number += running.ingest("tickets", rows(1, prefix=f"more{number}-"), embed).exemplars
        except Exception as error:
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(4):
            store.renew("tickets")
    finally:
        done.set()
        worker.join()
    elsewhere.dispose()
    assert failed == []
    assert set(seen) == {600}
    assert texts(store) == texts(ExemplarStore(engine, OLD))


KILLED = """
import os, signal, sys
from exemplar_store import ExemplarStore
from service.database import open_database

def die(connection):
    os.kill(os.getpid(), signal.SIGKILL)

ExemplarStore(open_database(sys.argv[1]), bytes(range(32))).renew("tickets", within=die)
"""


def test_a_renewal_whose_process_is_killed_changes_nothing(store, engine, database_url, tickets, rows):
    store.ingest("tickets", rows(50))
    before = [stored(engine, table) for table in (knowledge_bases, units, exemplars)]
    killed = subprocess.run([sys.executable, "-c", KILLED, database_url], capture_output=True, timeout=60, check=False)
    assert killed.returncode < 0, killed.stderr
    assert [stored(engine, table) for table in (knowledge_bases, units, exemplars)] == before
    store.renew("tickets")
    assert len(texts(store)) == 50
