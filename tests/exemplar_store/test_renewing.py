"""Exemplars under new keys: nothing lost, nothing the old keys tell, and nobody disturbed."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest
import sqlalchemy as sa

import exemplar_store.store
from exemplar_store import (
    EncryptionKeyError,
    ExemplarStore,
    RenewalOvertakenError,
    Row,
    TamperedError,
    UnknownKnowledgeBaseError,
    renewing,
)
from exemplar_store.encryption import place
from exemplar_store.tables import data_keys, exemplars, knowledge_bases, units
from service.records.database import open_database
from tests.exemplar_store.test_data_keys import NEW, OLD, texts
from tests.exemplar_store.test_encryption import _stored_bytes
from tests.processes import FRESH

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("step", ["members", "list_exemplars", "read_listed"])
def test_a_renewal_between_two_steps_of_a_sample_is_not_seen(store, engine, tickets, rows, monkeypatch, step):
    store.ingest("tickets", rows(50))
    other, real = ExemplarStore(engine, OLD), getattr(exemplar_store.store, step)

    def after_a_renewal(*args):
        other.renew("tickets")
        return real(*args)

    monkeypatch.setattr(exemplar_store.store, step, after_a_renewal)
    # It waits for readers to be done, and this thread's sample is one.
    monkeypatch.setattr(renewing, "empty_write_ahead_log", lambda _engine: None)
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


WITHIN = 99
"""For a number of pauses: killed while the names change."""


def renew_and_die(url: str, pauses: int) -> None:
    """Be killed after so many pauses of a renewal, which takes 10 exemplars a step."""
    numbers = itertools.count()

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def pause(_seconds: float) -> None:
        if next(numbers) == pauses:
            die()

    renewing.STEP_ROWS, renewing._pause = 10, pause
    before_commit = die if pauses == WITHIN else lambda _connection: None
    ExemplarStore(open_database(url), OLD).renew("tickets", before_commit=before_commit)


# One pause looks for what was left, one begins, 5 copy, one changes names, 5 delete, one deletes the hidden row.


@pytest.mark.parametrize("pauses", [1, 3, 7, WITHIN, 8, 10, 13])
def test_a_renewal_whose_process_is_killed_is_made_good_by_the_next(store, engine, database_url, tickets, rows, pauses):
    store.ingest("tickets", rows(50))
    before = texts(store)
    process = FRESH.Process(target=renew_and_die, args=(database_url, pauses))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert texts(store) == before
    assert [one.name for one in store.list()] == ["tickets"] == [*store.data_keys.since()]
    assert len(stored(engine, knowledge_bases)) == 2 - (pauses == 13)

    # Uploads and deletions go on in between, for both copies.
    assert store.ingest("tickets", [*rows(1, each=2), *rows(51)]).exemplars == 2
    assert store.forget("tickets", "u7") == 1
    assert not [row for row in stored(engine, exemplars) if row.position == 7]
    expected = texts(store)
    assert len(expected) == 51

    store.renew("tickets")
    assert texts(store) == expected
    assert len(stored(engine, exemplars)) == 51
    assert len(stored(engine, units)) == 51  # the forgotten one's tag stays
    assert len(stored(engine, knowledge_bases)) == len(stored(engine, data_keys)) == 1


class Pauses:
    """Stands for the pauses of a renewal, which take 10 exemplars a step: calls somebody in each, and counts them."""

    def __init__(self, monkeypatch, then=lambda number: None, rows: int = 10) -> None:
        self.number, self._then, self._within = 0, then, False
        monkeypatch.setattr(renewing, "STEP_ROWS", rows)
        monkeypatch.setattr(renewing, "_pause", self)

    def __call__(self, seconds: float) -> None:
        if not self._within:  # a renewal within another's pause
            self._within = True
            self._then(self.number)
            self._within = False
            self.number += 1


def test_what_is_replaced_in_any_pause_does_not_come_back(store, engine, tickets, rows, monkeypatch):
    """Whatever the copy has of it by then."""
    store.ingest("tickets", rows(8, each=2))

    def replace(number: int) -> None:
        new = [Row(1, f"u{i}", {"text": f"{number} of u{i}", "label": "yes"}) for i in range(8)]
        assert store.ingest("tickets", new, replace=True).replaced == (8 if number else 16)

    pauses = Pauses(monkeypatch, replace, rows=3)
    assert store.renew("tickets") == 0
    assert pauses.number > 3
    assert texts(store) == texts(ExemplarStore(engine, OLD)) == [f"{pauses.number - 1} of u{i}" for i in range(8)]


def test_uploads_and_deletions_in_every_pause_are_in_the_renewed_copy(store, engine, tickets, rows, embed, monkeypatch):
    store.ingest("tickets", rows(80), embed)
    expected = {f"text 0 of u{number}" for number in range(80)}

    def all_of(slots) -> list[str]:
        return sorted(one.fields["text"] for slot in slots for one in slot)

    def work(number: int) -> None:
        forgotten = (number * 7) % 80
        if f"text 0 of u{forgotten}" in expected:
            store.forget("tickets", f"u{forgotten}")
            expected.difference_update({f"text 0 of u{forgotten}", f"text 1 of u{forgotten}"})
            assert forgotten not in {row.position for row in stored(engine, exemplars)}
        grown = (number * 11 + 5) % 80
        if f"text 0 of u{grown}" in expected:
            upload = [row for row in rows(80, each=2) if row.unit_id == f"u{grown}"]
            store.ingest("tickets", [*upload, *rows(1, prefix=f"new{number}-")], embed)
            expected.update({f"text 1 of u{grown}", f"text 0 of new{number}-0"})
        for one in (
            store.sample_slots("tickets", probability=1, ensemble=3, max_exemplars=1000),
            store.sample_blocks("tickets", probability=1, blocks=3, max_exemplars=1000),
        ):
            assert all_of(one) == sorted(expected)
        assert [one.name for one in store.list()] == ["tickets"]
        for row in stored(engine, knowledge_bases):
            if row.name != "tickets":
                with pytest.raises(UnknownKnowledgeBaseError):
                    store.get(row.name)

    pauses = Pauses(monkeypatch, work)
    seen: list[sa.Connection] = []
    assert store.renew("tickets", before_commit=seen.append) == 0
    assert pauses.number > 16
    assert len(seen) == 1
    assert texts(store) == texts(ExemplarStore(engine, OLD)) == sorted(expected)
    assert len(stored(engine, exemplars)) == len(expected)
    assert len(stored(engine, knowledge_bases)) == 1
    assert store.get("tickets").embedding_dimension == 16


def test_what_an_upload_changes_of_a_knowledge_base_is_kept(store, engine, tickets, rows, embed, monkeypatch):
    def first_upload(number: int) -> None:
        if number == 1:
            store.ingest("tickets", rows(3), embed)
            store.allow_remote_engine("tickets", True)

    Pauses(monkeypatch, first_upload)
    store.renew("tickets")
    now = store.get("tickets")
    assert (now.embedding_dimension, now.remote_engine, now.fields) == (16, True, tickets.fields)
    assert len(texts(store)) == 3


@pytest.mark.parametrize("units_", [30, 600])
def test_a_step_is_bounded_and_every_pause_is_free_for_writers(
    store, engine, database_url, tickets, rows, monkeypatch, units_
):
    """However many exemplars there are: so no writer's wait tells how many."""
    store.ingest("tickets", rows(units_, each=2))
    elsewhere = open_database(database_url)
    changed, counts = [], {1: 2 * units_}

    def write(_number: int) -> None:
        nonlocal counts
        with elsewhere.connect() as connection:
            if engine.dialect.name == "sqlite":
                connection.connection.cursor().execute("PRAGMA busy_timeout=0")
            else:
                connection.exec_driver_sql("SET lock_timeout = '1ms'")
            connection.execute(sa.select(knowledge_bases).with_for_update()).all()
            counted = sa.select(exemplars.c.kb_id, sa.func.count()).group_by(exemplars.c.kb_id)
            now = dict(connection.execute(counted).all())
            connection.rollback()
        changed.append(sum(abs(now.get(one, 0) - counts.get(one, 0)) for one in now.keys() | counts.keys()))
        counts = now

    pauses = Pauses(monkeypatch, write)
    store.renew("tickets")
    elsewhere.dispose()
    assert max(changed) == 10
    assert sum(changed) == 4 * units_
    assert pauses.number == 2 * (2 * units_ // 10) + 4


def test_a_step_is_bounded_in_bytes_too_but_takes_a_unit_at_least(store, engine, tickets, monkeypatch):
    store.ingest("tickets", [Row(n, f"u{n // 3}", {"text": f"{n}" * 500, "label": "l"}) for n in range(9)])
    monkeypatch.setattr(renewing, "STEP_BYTES", 1000)
    pauses = Pauses(monkeypatch)
    store.renew("tickets")
    assert pauses.number == 2 * 3 + 4
    assert len(texts(store)) == 9


def test_of_two_renewals_at_once_one_goes_on(store, engine, tickets, rows, monkeypatch):
    store.ingest("tickets", rows(50))
    other, finished = ExemplarStore(engine, OLD), []

    def another(at: int, number: int) -> None:
        if number == at:
            finished.append(other.renew("tickets"))

    for at, overtaken in ((0, False), (1, True), (4, True), (7, False), (9, False), (13, False)):
        Pauses(monkeypatch, partial(another, at))
        if overtaken:
            with pytest.raises(RenewalOvertakenError, match="renewal of knowledge base 'tickets' began"):
                store.renew("tickets")
        else:
            store.renew("tickets")
        assert finished.pop() == 0
        assert len(texts(store)) == len(stored(engine, exemplars)) == 50
        assert len(stored(engine, knowledge_bases)) == len(stored(engine, data_keys)) == 1


def test_a_copy_made_while_another_looked_for_one_is_left_alone(store, engine, tickets, rows, monkeypatch):
    store.ingest("tickets", rows(50))
    Pauses(monkeypatch)
    with pytest.raises(RuntimeError):
        store.renew("tickets", before_commit=fail)
    monkeypatch.setattr(renewing.Renewal, "_delete_some", lambda *_: False)  # the other's was not there yet
    with pytest.raises(RenewalOvertakenError):
        store.renew("tickets")
    assert len(texts(store)) == 50


def fail(_connection: sa.Connection) -> None:
    raise RuntimeError


def test_other_master_keys_may_come_and_go_meanwhile(store, engine, tickets, rows, monkeypatch):
    store.ingest("tickets", rows(50))

    def change(number: int) -> None:
        if number == 3:
            store.data_keys.add(NEW)
        if number == 5:
            ExemplarStore(engine, NEW).data_keys.retire()

    Pauses(monkeypatch, change)
    store.renew("tickets")
    newer = ExemplarStore(engine, NEW)
    assert len(texts(newer)) == 50
    newer.renew("tickets")
    assert len(texts(newer)) == len(stored(engine, exemplars)) == 50
    assert len(stored(engine, data_keys)) == 1


@pytest.mark.parametrize("change", ["forget", "ingest", "allow_remote_engine"])
def test_who_waits_for_the_knowledge_base_while_names_change_finds_the_renewed_one(
    store, engine, database_url, tickets, rows, change
):
    store.ingest("tickets", rows(5))
    elsewhere = open_database(database_url)
    other = ExemplarStore(elsewhere, OLD)
    arguments = {"forget": ("u1",), "ingest": (rows(1, prefix="more"),), "allow_remote_engine": (True,)}[change]
    with ThreadPoolExecutor(1) as pool:

        def wait_for_a_waiter(_connection: sa.Connection) -> None:
            waiting.append(pool.submit(getattr(other, change), "tickets", *arguments))
            deadline = time.monotonic() + 30
            while engine.dialect.name == "postgresql" and time.monotonic() < deadline:
                with engine.connect() as connection:
                    if connection.exec_driver_sql("SELECT 1 FROM pg_locks WHERE NOT granted").first():
                        return
            time.sleep(0.2)

        waiting: list[Future] = []
        store.renew("tickets", before_commit=wait_for_a_waiter)
        waiting[0].result(60)
    elsewhere.dispose()
    assert len(texts(store)) == {"forget": 4, "ingest": 6}.get(change, 5)
    assert store.get("tickets").remote_engine == (change == "allow_remote_engine")
    assert len(stored(engine, knowledge_bases)) == 1
