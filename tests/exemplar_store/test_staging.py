"""An upload is written in small transactions, and no reader sees anything of it until all of it is there."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from exemplar_store import (
    ExemplarStore,
    KnowledgeBaseNotEmptyError,
    OnTopic,
    Row,
    TopicList,
    UnknownUnitError,
    dialects,
    staging,
)
from exemplar_store.cohorts import note_lost_arrivals
from exemplar_store.dialects import reading
from exemplar_store.errors import UploadLostError
from exemplar_store.staging import Staging
from exemplar_store.tables import exemplars, forgotten_meanwhile, metadata, staged_uploads
from service.records.database import open_database
from tests.exemplar_store.test_ingest import counts, rows_of
from tests.exemplar_store.test_keyring import OLD, die_before, killed, texts


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """``between(act)``: from then on ``act(number)`` is called before each transaction of an upload, of one row."""
    monkeypatch.setattr("exemplar_store.ingest.BATCH", 1)
    right = Staging.batch

    def before_each(act: Callable[[int], None]) -> None:
        number = 0

        @contextmanager
        def batch(self: Staging) -> Iterator[sa.Connection]:
            nonlocal number
            number += 1
            act(number)
            with right(self) as connection:
                yield connection

        monkeypatch.setattr(Staging, "batch", batch)

    return before_each


def seen(store: ExemplarStore) -> list[object]:
    """All that a reader sees."""
    way = {"probability": 1, "max_exemplars": 100}
    by_units, by_blocks = (
        sorted(exemplar.fields["text"] for slot in slots for exemplar in slot)
        for slots in (
            store.sample_slots("tickets", ensemble=3, **way),
            store.sample_blocks("tickets", blocks=3, **way),
        )
    )
    whole = [sorted(exemplar.fields["text"] for exemplar in unit) for unit in store.every_unit("tickets")]
    described = store.get("tickets")
    return [by_units, by_blocks, whole, described.arrived, described.embedding_dimension]


def left(engine: sa.Engine) -> list[int]:
    """Numbers of rows that are there for an upload that is being written."""
    hidden = sa.select(sa.func.count()).select_from(exemplars).where(exemplars.c.replaced_in != 0)
    tables = (staged_uploads, forgotten_meanwhile)
    with engine.connect() as connection:
        return [
            connection.scalar(hidden),
            *(connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in tables),
        ]


@pytest.mark.parametrize("replace", [False, True])
def test_no_reader_sees_half_an_upload(store, engine, tickets, embed, between, replace) -> None:
    store.ingest("tickets", [*rows_of("1", "2"), *rows_of("3", unit="bo")], embed)
    before, looks = seen(store), []
    between(lambda _: looks.append(seen(store)))
    store.ingest("tickets", [*rows_of("2", "4"), *rows_of("5", "6", unit="cy")], embed, replace=replace)
    published = 1 + sum(look == before for look in looks)
    assert published > 4
    after = [*before[:3], 3, 16]
    after[0] = after[1] = sorted(["2", "3", "4", "5", "6"] if replace else ["1", "2", "3", "4", "5", "6"])
    after[2] = [["2", "4"] if replace else ["1", "2", "4"], ["3"], ["5", "6"]]
    assert all(look == after for look in looks[published - 1 :])
    assert seen(store) == after
    assert left(engine) == [0, 0, 0]
    assert counts(engine)[1] == len(after[0])


@pytest.mark.parametrize("fails", ["before_commit", "embedding", "dry run"])
@pytest.mark.parametrize("replace", [False, True])
def test_what_is_not_published_is_cleared(store, engine, tickets, rows, embed, between, replace, fails) -> None:
    store.ingest("tickets", rows(3, each=2), embed)
    before, stored = seen(store), counts(engine)
    between(lambda _: None)

    def refuse(_connection: sa.Connection) -> None:
        raise RuntimeError

    if fails == "dry run":
        store.ingest("tickets", rows(5, each=3), embed, replace=replace, dry_run=True)
    else:
        with pytest.raises((RuntimeError, UploadLostError)):
            store.ingest("tickets", rows(5, each=3), embed, replace=replace, before_commit=refuse)
    assert seen(store) == before
    assert counts(engine) == stored
    assert left(engine) == [0, 0, 0]


def test_others_write_between_batches_of_bounded_size(store, engine, tickets, rows, monkeypatch) -> None:
    """Otherwise a charge would wait on SQLite for as long as all rows take."""
    monkeypatch.setattr("exemplar_store.ingest.BATCH", 10)
    monkeypatch.setattr("exemplar_store.staging.BATCH", 10)
    written: list[int] = [0]

    def count(_connection, _cursor, statement: str, parameters, *_: object) -> None:
        if statement.startswith(("INSERT INTO", "UPDATE", "DELETE")) and "exemplars" in statement:
            written[-1] += len(parameters) if isinstance(parameters, list) else 10

    sa.event.listen(engine, "before_cursor_execute", count)
    sa.event.listen(engine, "commit", lambda _: written.append(0))
    store.ingest("tickets", rows(15, each=3))
    store.ingest("tickets", rows(15, each=3), replace=True)
    store.ingest("tickets", rows(30, each=3), replace=True, dry_run=True)
    assert max(written) <= 30
    assert sum(map(bool, written)) > 20


def test_a_forgotten_unit_s_upload_is_stored_whole(store, engine, tickets, between) -> None:
    """A unit that is forgotten while it is uploaded comes back as if it had been forgotten before."""
    store.ingest("tickets", [*rows_of("1", "2"), *rows_of("3", unit="bo")])
    forgets = iter([2, 3, 5])
    at = next(forgets)

    def act(number: int) -> None:
        if number == at:
            store.forget("tickets", "ann")

    between(act)
    report = store.ingest("tickets", [*rows_of("4", unit="cy"), *rows_of("1", "2", "5")])
    assert report.returned == 1
    assert texts(store) == ["1", "2", "3", "4", "5"]
    assert left(engine) == [0, 0, 0]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_forgotten_units_are_left_out(store, engine, tickets, embed, between, at, replace) -> None:
    """This holds however late they are forgotten."""
    store.ingest("tickets", [*rows_of("1", "2"), *rows_of("3", unit="bo")], embed)
    if at == 0:
        store.forget("tickets", "ann")

    def act(number: int) -> None:
        if number == at:
            store.forget("tickets", "ann")

    between(act)
    upload = [*rows_of("2", "5"), *rows_of("3", "6", unit="bo"), *rows_of("4", unit="cy")]
    report = store.ingest("tickets", upload, embed, replace=replace, skip_forgotten=True)
    assert (report.skipped_units, report.skipped_rows, report.returned) == (1, 2, 0)
    assert (report.exemplars, report.already_there) == ((3, 0) if replace else (2, 1))
    assert texts(store) == ["3", "4", "6"]
    assert left(engine) == [0, 0, 0]
    assert store.ingest("tickets", upload, embed, skip_forgotten=True, dry_run=True).skipped_rows == 2
    assert store.ingest("tickets", upload, embed).returned == 1


def test_no_unit_of_an_upload_is_forgotten_before_it_is_there(store, tickets, between) -> None:
    tried = []

    def act(_number: int) -> None:
        with pytest.raises(UnknownUnitError):
            store.forget("tickets", "ann")
        tried.append(True)

    between(act)
    store.ingest("tickets", rows_of("1", "2"))
    assert len(tried) > 2
    assert texts(store) == ["1", "2"]


def test_who_is_uploaded_while_a_cohort_is_opened_belongs_to_it(store, tickets, rows, between) -> None:
    store.ingest("tickets", rows(2))
    opened = []

    def act(number: int) -> None:
        if number == 2:
            store.open_cohort("tickets", 10, lambda _connection, cohort: opened.append(cohort))

    between(act)
    store.ingest("tickets", rows(3, prefix="v"))
    assert opened == [2]
    assert [len(list(store.every_unit("tickets", [cohort]))) for cohort in (1, 2)] == [2, 3]
    assert store.open_cohort("tickets", 10, lambda *_: None) == 3, "every unit is recognised"


def by_label(fields: Mapping[str, str]) -> int | None:
    return {"lamp": 0, "kettle": 1}.get(fields["label"])


TOPICS = TopicList(1, "mood", 2, by_label)


def on(store: ExemplarStore, number: int) -> list[str]:
    way = {"probability": 1, "ensemble": 1, "max_exemplars": 100, "topic": OnTopic(TOPICS, number)}
    (slot,) = store.sample_slots("tickets", **way)
    return sorted(exemplar.fields["text"] for exemplar in slot)


def of_label(label: str, *named: str) -> list[Row]:
    return [Row(number, name, {"text": name, "label": label}) for number, name in enumerate(named, 1)]


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_who_is_uploaded_while_a_plan_is_signed_has_a_topic(store, engine, tickets, between, at) -> None:
    store.ingest("tickets", of_label("lamp", "ann"))
    signed: list[TopicList] = []

    def act(number: int) -> None:
        if number == at:
            found = store.topics_of("tickets", TOPICS)
            with engine.begin() as connection:
                store.lock(connection, "tickets")
                store.keep_topics(connection, "tickets", TOPICS, found)
            signed.append(TOPICS)

    between(act)
    upload = [*of_label("kettle", "bo", "cy"), *of_label("lamp", "di")]
    store.ingest("tickets", upload, topics=lambda _: signed)
    assert signed == [TOPICS]
    assert [on(store, number) for number in (0, 1)] == [["ann", "di"], ["bo", "cy"]]


def test_no_unit_gets_the_topic_of_an_upload_that_was_never_published(store, engine, tickets) -> None:
    topics = {"topics": lambda _: [TOPICS]}

    def refuse(_connection: sa.Connection) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.ingest("tickets", of_label("kettle", "ann", "bo"), before_commit=refuse, **topics)
    store.ingest("tickets", [*of_label("other", "cy"), *of_label("lamp", "di")], **topics)
    assert [on(store, number) for number in (0, 1)] == [["di"], []]


def ingest_and_die(url: str, statement: int) -> None:
    """Replace a unit and add others in a process that is killed before the statement with this number."""
    staging.BATCH = 1
    database = open_database(url)
    store = ExemplarStore(database, OLD)
    die_before(database, statement)
    store.ingest("tickets", [*rows_of("2", "3"), *rows_of("t", unit="bo")], replace=True)


@pytest.mark.slow
def test_what_a_killed_process_left_is_cleared(engine, database_url, store, tickets, monkeypatch) -> None:
    monkeypatch.setattr(staging, "LEASE_S", 0)
    store = ExemplarStore(engine, OLD)
    store.ingest("tickets", rows_of("1", "2"))
    for was_killed in killed(ingest_and_die, database_url, 7, 3):
        published = texts(store) != ["1", "2"]
        assert published or was_killed
        assert texts(store) == (["2", "3", "t"] if published else ["1", "2"])
        store.clear_abandoned()
        assert left(engine) == [0, 0, 0]
        units_there, exemplars_there, next_position = counts(engine)
        assert (units_there, exemplars_there) == (next_position, len(texts(store)))
        if published:
            store.ingest("tickets", rows_of("1", "2"), replace=True)
            store.forget("tickets", "bo")


def test_who_is_forgotten_after_a_crash_is_left_nowhere(engine, tickets, store, monkeypatch) -> None:
    store.ingest("tickets", rows_of("1"))
    monkeypatch.setattr(Staging, "clear", lambda _: None)
    monkeypatch.setattr(staging, "LEASE_S", 0)

    def refuse(_connection: sa.Connection) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.ingest("tickets", rows_of("2"), before_commit=refuse)
    assert counts(engine) == (1, 2, 1)
    monkeypatch.undo()
    monkeypatch.setattr(staging, "LEASE_S", 0)
    assert store.forget("tickets", "ann") == 1
    assert counts(engine) == (1, 0, 1)


@pytest.mark.parametrize("meanwhile", ["a restore", "new keys"])
def test_an_upload_that_was_lost_is_refused(store, engine, tickets, between, meanwhile) -> None:
    """What others may no longer wait for is cleared, and its process notices."""
    store.ingest("tickets", rows_of("1"))

    def act(number: int) -> None:
        if number != 3:
            return
        if meanwhile == "a restore":
            with engine.begin() as connection:
                note_lost_arrivals(connection, "tickets")
        else:
            ExemplarStore(engine, OLD).reencrypt(lambda *_: None)

    between(act)
    with pytest.raises(UploadLostError):
        store.ingest("tickets", [*rows_of("2"), *rows_of("3", unit="bo")])
    assert texts(ExemplarStore(engine, OLD)) == ["1"]
    assert counts(engine)[:2] == (1, 1)
    assert left(engine) == [0, 0, 0]


def test_a_second_upload_waits_for_the_first(store, tickets, between) -> None:
    done: list[str] = []

    def second() -> None:
        store.ingest("tickets", rows_of("2"))
        done.append("second")

    thread = threading.Thread(target=second)

    def act(number: int) -> None:
        if number == 1:
            thread.start()
            time.sleep(0.5)
            assert not done

    between(act)
    store.ingest("tickets", rows_of("1"), before_commit=lambda _: done.append("first"))
    thread.join()
    assert done == ["first", "second"]
    assert texts(store) == ["1", "2"]


def test_a_knowledge_base_to_which_an_upload_is_written_is_not_deleted(store, engine, tickets, between) -> None:
    def act(_number: int) -> None:
        with pytest.raises(KnowledgeBaseNotEmptyError), engine.begin() as connection:
            store.delete(connection, "tickets")

    between(act)
    store.ingest("tickets", rows_of("1"))
    assert texts(store) == ["1"]


def test_the_write_ahead_log_stays_bounded_while_others_read(tmp_path: Path, rows, monkeypatch) -> None:
    """Some reader reads at any time, so SQLite itself would never begin its log anew."""
    monkeypatch.setattr("exemplar_store.ingest.BATCH", 100)
    monkeypatch.setattr(dialects, "_LARGE_LOG_PAGES", 100)
    file = tmp_path / "db"
    database = open_database(f"sqlite:///{file}")
    metadata.create_all(database)
    store, largest, ended = ExemplarStore(database, OLD), [0], threading.Event()
    with database.begin() as connection:
        store.create(connection, "tickets", public_size=9, fields=["text", "label"], embedded_field="text")

    def read() -> None:
        while not ended.is_set():
            with reading(database) as connection:
                connection.execute(sa.select(exemplars.c.position).limit(1)).all()
                time.sleep(0.01)
                largest.append(Path(f"{file}-wal").stat().st_size)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        store.ingest("tickets", rows(5000))
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert max(largest) < 1_000_000, "without that it has more than three"
