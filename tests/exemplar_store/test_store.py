"""Knowledge bases: created, listed, sampled, and units forgotten."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from exemplar_store import (
    ExemplarStore,
    InvalidKnowledgeBaseError,
    InvalidUnitIdError,
    KnowledgeBaseExistsError,
    Row,
    UnknownKnowledgeBaseError,
    UnknownUnitError,
    sampling,
)
from exemplar_store.encryption import KnowledgeBaseKeys
from exemplar_store.tables import exemplars, knowledge_bases
from tests.exemplar_store.effort import listening, postgresql_rows, sqlite_steps

GOOD = {"name": "kb", "public_size": 10, "fields": ["text", "label"], "embedded_field": "text"}


def create(store: ExemplarStore, engine: sa.Engine, **changes: object):
    arguments = {**GOOD, **changes}
    with engine.begin() as connection:
        return store.create(connection, arguments.pop("name"), **arguments)


def test_a_knowledge_base_is_found_as_it_was_created(store, engine, tickets):
    created = create(store, engine, remote_engine=True, public_size=10**12)
    assert store.get("kb") == created
    assert (created.public_size, created.remote_engine) == (10**12, True)
    assert (created.fields, created.embedded_field) == (("text", "label"), "text")
    assert created.created_at.tzinfo is UTC
    assert abs(datetime.now(UTC) - created.created_at) < timedelta(minutes=1)
    assert store.list() == [created, tickets]


def test_a_remote_engine_is_allowed_and_forbidden_again(store, engine, tickets):
    other = create(store, engine)
    assert (tickets.remote_engine, other.remote_engine) == (False, False)
    assert store.allow_remote_engine("kb", True) == store.get("kb") == replace(other, remote_engine=True)
    assert store.get("tickets") == tickets
    assert store.allow_remote_engine("kb", False) == store.get("kb") == other


def test_a_name_is_given_once(store, engine, tickets):
    with pytest.raises(KnowledgeBaseExistsError):
        create(store, engine, name="tickets")
    assert store.list() == [tickets]


def test_creation_belongs_to_the_callers_transaction(store, engine, tickets):
    with engine.connect() as connection:
        store.create(connection, "kb", public_size=1, fields=["text"], embedded_field="text")
        connection.rollback()
    assert store.list() == [tickets]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "a.b"},
        {"name": "Kb"},
        {"name": "x" * 65},
        {"name": "kb\n"},
        {"public_size": 0},
        {"public_size": 1.5},
        {"public_size": True},
        {"fields": []},
        {"fields": "text"},
        {"fields": ["text", "text"]},
        {"fields": ["text", "two words"]},
        {"embedded_field": "title"},
        {"response_field": "title"},
        {"response_field": "text"},
        {"response_field": ""},
    ],
)
def test_an_invalid_knowledge_base_is_refused(store, engine, tickets, changes):
    with pytest.raises(InvalidKnowledgeBaseError) as refused:
        create(store, engine, **changes)
    assert [refused.value.field] == list(changes)
    assert store.list() == [tickets]


def test_an_unknown_knowledge_base_is_an_error(store, tickets, rows):
    for action in (
        lambda: store.get("none"),
        lambda: store.ingest("none", rows(1)),
        lambda: store.forget("none", "u0"),
        lambda: store.allow_remote_engine("none", True),
        lambda: store.sample_slots("none", probability=1, ensemble=1, max_exemplars=1),
        lambda: store.sample_blocks("none", probability=1, blocks=1, max_exemplars=1),
        lambda: next(store.every_unit("none")),
    ):
        with pytest.raises(UnknownKnowledgeBaseError):
            action()


def test_probability_one_draws_everything_and_zero_nothing(store, tickets, rows):
    assert store.sample_slots("tickets", probability=1, ensemble=3, max_exemplars=5) == [(), (), ()]
    store.ingest("tickets", rows(50))
    slots = store.sample_slots("tickets", probability=1, ensemble=3, max_exemplars=50)
    assert sorted(e.fields["text"] for slot in slots for e in slot) == sorted(r.fields["text"] for r in rows(50))
    assert store.sample_slots("tickets", probability=0, ensemble=3, max_exemplars=5) == [(), (), ()]


@pytest.mark.parametrize("number", ["ensemble", "blocks"])
@pytest.mark.parametrize("wrong", [{"probability": 1.1}, {"probability": -1}, {"number": 0}, {"max_exemplars": 0}])
def test_sampling_arguments_out_of_range_are_refused(store, tickets, number, wrong):
    arguments = {"probability": 0.5, "number": 2, "max_exemplars": 2, **wrong}
    arguments[number] = arguments.pop("number")
    sample = store.sample_blocks if number == "blocks" else store.sample_slots
    with pytest.raises(ValueError, match=number if "number" in wrong else next(iter(wrong))):
        sample("tickets", **arguments)


@pytest.mark.parametrize("way", [{"ensemble": 2}, {"blocks": 2}])
def test_only_the_exemplars_kept_are_decrypted(store, tickets, rows, monkeypatch, way):
    store.ingest("tickets", rows(40, each=2))
    decrypt, calls = KnowledgeBaseKeys.decrypt, []

    def counted(keys: KnowledgeBaseKeys, payload: bytes, place: bytes) -> bytes:
        calls.append(place)
        return decrypt(keys, payload, place)

    monkeypatch.setattr(KnowledgeBaseKeys, "decrypt", counted)
    sample = store.sample_blocks if "blocks" in way else store.sample_slots
    slots = sample("tickets", probability=1, max_exemplars=3, **way)
    assert len(calls) == sum(map(len, slots)) <= 6


@pytest.mark.slow
def test_only_the_sampled_rows_are_read(store, engine, tickets, rows, monkeypatch):
    """SQLite: machine instructions executed, at two sizes. PostgreSQL: rows that its executor reports as touched."""
    drawn = np.arange(5, 1500, 50)
    monkeypatch.setattr(sampling, "poisson_sample", lambda positions, probability: drawn)

    def sample() -> None:
        slots = store.sample_slots("tickets", probability=0.01, ensemble=10, max_exemplars=100)
        assert sum(map(len, slots)) == drawn.size

    store.ingest("tickets", rows(1500))
    if engine.dialect.name == "sqlite":
        small = sqlite_steps(engine, sample)
        store.ingest("tickets", rows(15_000))
        assert sqlite_steps(engine, sample) == small < 100 * drawn.size
    else:
        store.ingest("tickets", rows(15_000))
        with engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE exemplars")
        assert drawn.size <= postgresql_rows(engine, sample, "exemplars.payload") < 5 * drawn.size


def test_of_a_large_unit_only_what_a_slot_keeps_is_read(store, engine, tickets, rows, embed):
    """Otherwise the time that it takes would reveal whether the unit was drawn."""
    store.ingest("tickets", rows(1, each=1000), embed)
    read: list[int] = []
    read_now: list[bool] = []

    def remember(connection, cursor, statement, parameters, context, many) -> None:
        with engine.connect() as another:
            if statement.startswith("SELECT") and not read_now:
                read_now.append(True)
                read.append(len(another.exec_driver_sql(statement, parameters).all()))
                read_now.clear()

    with listening(engine, "before_cursor_execute", remember):
        for sample in (
            lambda: store.sample_slots("tickets", probability=1, ensemble=3, max_exemplars=4),
            lambda: store.sample_blocks("tickets", probability=1, blocks=3, max_exemplars=4),
        ):
            assert sorted(map(len, sample())) == [0, 0, 4]
            assert max(read) == 4


@pytest.mark.slow
def test_an_upload_seeks_its_own_units_only(store, engine, tickets, rows):
    """This holds however many units the knowledge base has, and before PostgreSQL has statistics of the table."""
    store.ingest("tickets", rows(15_000))
    if engine.dialect.name == "postgresql":
        assert postgresql_rows(engine, lambda: store.ingest("tickets", rows(900)), "SELECT units.position") < 5 * 900
    else:
        steps = sqlite_steps(engine, lambda: store.ingest("tickets", rows(900)))
        store.ingest("tickets", rows(15_000, prefix="v"))
        assert sqlite_steps(engine, lambda: store.ingest("tickets", rows(900))) < 1.1 * steps


def test_forgetting_deletes_a_unit_for_good(store, engine, tickets, rows):
    store.ingest("tickets", rows(3, each=2))
    assert store.forget("tickets", "u1") == 2
    (slot,) = store.sample_slots("tickets", probability=1, ensemble=1, max_exemplars=100)
    assert {exemplar.fields["text"].split()[-1] for exemplar in slot} == {"u0", "u2"}
    with pytest.raises(UnknownUnitError):
        store.forget("tickets", "u1")
    with pytest.raises(UnknownUnitError):
        store.forget("tickets", "nobody")


@pytest.mark.parametrize("unit", ["u1\u200b", "\ufeffu1", "u1 ", "ｕ1", "u\u0661"])
def test_an_id_that_reads_like_a_unit_s_is_that_unit(store, tickets, rows, unit):
    """Otherwise a unit that is still there could be taken for deleted, or come back as another."""
    store.ingest("tickets", rows(3))
    assert store.forget("tickets", unit) == 1
    store.ingest("tickets", [Row(1, unit, {"text": "t", "label": "l"})])
    assert store.forget("tickets", "u1") == 1


@pytest.mark.parametrize("unit", ["\udcffu1", "", " \u200b", "u" * 1001])
def test_what_no_id_can_be_is_refused(store, tickets, unit):
    with pytest.raises(InvalidUnitIdError):
        store.forget("tickets", unit)


def test_a_forgotten_unit_comes_back_to_its_position_and_no_other_unit_gets_it(store, engine, tickets, rows):
    store.ingest("tickets", rows(3))
    store.forget("tickets", "u2")
    store.ingest("tickets", [Row(1, "new", {"text": "n", "label": "l"})])
    with engine.connect() as connection:
        assert set(connection.scalars(sa.select(exemplars.c.position))) == {0, 1, 3}
    report = store.ingest("tickets", [Row(1, "u2", {"text": "back", "label": "l"})])
    assert (report.exemplars, report.units) == (1, 0)
    with engine.connect() as connection:
        assert set(connection.scalars(sa.select(exemplars.c.position))) == {0, 1, 2, 3}
        assert connection.scalar(sa.select(knowledge_bases.c.next_position)) == 4


def test_forgetting_takes_from_one_knowledge_base_only(store, engine, tickets, rows):
    create(store, engine)
    store.ingest("tickets", rows(2))
    store.ingest("kb", rows(2))
    store.forget("kb", "u0")
    assert len(store.sample_slots("tickets", probability=1, ensemble=1, max_exemplars=9)[0]) == 2
    assert len(store.sample_slots("kb", probability=1, ensemble=1, max_exemplars=9)[0]) == 1


@pytest.mark.parametrize("length", [50, 15_000])  # within a page of the file, and over several
def test_forgotten_bytes_are_overwritten_in_a_sqlite_file(store, engine, tickets, length):
    if engine.dialect.name != "sqlite":
        return  # PostgreSQL overwrites at VACUUM, which is the operator's task (see `forget`)

    @sa.event.listens_for(engine, "connect")
    def leave_deleted_bytes(connection, record) -> None:
        connection.execute("PRAGMA secure_delete=OFF")  # SQLite's own default; some builds have another

    engine.dispose()
    upload = [Row(1, "ann", {"text": "a" * length, "label": "l"}), Row(2, "bo", {"text": "b" * length, "label": "l"})]
    store.ingest("tickets", upload)
    with engine.connect() as connection:
        payloads = connection.scalars(sa.select(exemplars.c.payload).order_by(exemplars.c.position)).all()
    file = Path(engine.url.database)

    def pieces_found(payload: bytes) -> int:
        stored = b"".join(path.read_bytes() for path in file.parent.glob(f"{file.name}*"))
        return sum(payload[at : at + 16] in stored for at in range(0, len(payload) - 16, 16))

    assert pieces_found(payloads[0]) > 0
    store.forget("tickets", "ann")
    assert pieces_found(payloads[0]) == 0
    assert pieces_found(payloads[1]) > 0
