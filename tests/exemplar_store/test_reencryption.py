"""Exemplars under a new data key: nothing is lost, the old key opens nothing, and no other process is connected."""

from contextlib import closing

import pytest
import sqlalchemy as sa

from exemplar_store import DatabaseInUseError, ExemplarStore, Row, TamperedError, WrongKeyError, reencryption
from exemplar_store.encryption import place
from exemplar_store.tables import exemplars, knowledge_bases, units
from service.records.database import open_database
from tests.exemplar_store.test_encryption import _stored_bytes
from tests.exemplar_store.test_keyring import OLD, die_before, killed, texts, wrap

pytestmark = pytest.mark.slow


def stored(engine: sa.Engine, table: sa.Table) -> list[sa.Row]:
    with engine.connect() as connection:
        return list(connection.execute(sa.select(table).order_by(*table.primary_key)))


def keys_of(store: ExemplarStore, engine: sa.Engine):
    return store.keyring.of(stored(engine, knowledge_bases)[0])


def reencrypted(store: ExemplarStore, engine: sa.Engine, unreadable: int = 0) -> ExemplarStore:
    assert store.reencrypt(lambda _done, _of: None) == unreadable
    return ExemplarStore(engine, OLD)


@pytest.mark.parametrize("embeddings", [True, False])
def test_everything_is_kept_under_keys_that_the_old_ones_do_not_reveal(store, engine, tickets, rows, embed, embeddings):
    embed = embed if embeddings else None
    store.ingest("tickets", rows(1001, each=2), embed)
    before, was = texts(store), keys_of(store, engine)
    old_units, old_rows = stored(engine, units), stored(engine, exemplars)
    progress: list[tuple[int, int]] = []
    assert store.reencrypt(lambda done, of: progress.append((done, of))) == 0
    assert progress == sorted(progress)
    assert progress[-1] == (1001, 1001)

    store = ExemplarStore(engine, OLD)
    now = keys_of(store, engine)
    assert texts(store) == before
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
    store = reencrypted(store, engine)
    assert wrap(engine)[0] == 3
    assert store.ingest("tickets", rows(1002, each=2), embed).exemplars == 0
    assert store.forget("tickets", "u1001") == 2
    assert texts(store) == before


def test_every_knowledge_base_is_encrypted_anew_an_empty_one_too(store, another, engine, tickets, rows):
    another("other")
    store.ingest("other", rows(2))
    store = reencrypted(store, engine)
    assert texts(store, "other") == ["text 0 of u0", "text 0 of u1"]
    assert store.ingest("tickets", rows(3)).exemplars == 3
    with engine.begin() as connection:
        store.create(connection, "newest", public_size=1, fields=["text", "label"], embedded_field="text")
    assert [one.name for one in store.list()] == ["newest", "other", "tickets"]


def test_a_row_that_does_not_open_stays_as_it_was(store, engine, tickets, rows):
    store.ingest("tickets", rows(3))
    with engine.begin() as connection:
        connection.execute(sa.update(exemplars).where(exemplars.c.position == 1).values(payload=b"broken"))
    store = reencrypted(store, engine, unreadable=1)
    assert texts(store) == ["text 0 of u0", "text 0 of u2"]
    assert [row.payload for row in stored(engine, exemplars)][1] == b"broken"
    assert store.forget("tickets", "u1") == 1


def test_it_is_refused_while_another_process_has_the_database_open(store, engine, database_url, tickets, rows):
    store.ingest("tickets", rows(3))
    before = stored(engine, exemplars), wrap(engine)
    service = open_database(database_url)
    with closing(service.connect()) as connection:
        connection.execute(sa.select(1))
    with pytest.raises(DatabaseInUseError):  # its connection is idle in its pool
        store.reencrypt(lambda _done, _of: None)
    assert (stored(engine, exemplars), wrap(engine)) == before
    assert store.ingest("tickets", rows(4)).exemplars == 1
    service.dispose()
    assert len(texts(reencrypted(store, engine))) == 4


def test_a_process_with_the_old_data_key_reads_and_writes_nothing_afterwards(store, engine, tickets, rows):
    store.ingest("tickets", rows(3))
    stale = ExemplarStore(engine, OLD)

    def meanwhile():
        yield from rows(4)
        store.reencrypt(lambda _done, _of: None)

    with pytest.raises(WrongKeyError, match="restart"):
        stale.ingest("tickets", meanwhile())
    after = stored(engine, exemplars), stored(engine, units), stored(engine, knowledge_bases)
    for refused in (
        lambda: stale.ingest("tickets", [Row(1, "u9", {"text": "t", "label": "l"})]),
        lambda: stale.forget("tickets", "u1"),
        lambda: texts(stale),
        stale.list,
    ):
        with pytest.raises(WrongKeyError):
            refused()
    with pytest.raises(WrongKeyError), engine.begin() as connection:
        stale.create(connection, "more", public_size=1, fields=["text", "label"], embedded_field="text")
    assert (stored(engine, exemplars), stored(engine, units), stored(engine, knowledge_bases)) == after
    assert texts(ExemplarStore(engine, OLD)) == [f"text 0 of u{number}" for number in range(3)]


def reencrypt_and_die(url: str, statement: int) -> None:
    """Re-encrypt 20 units at a time, in a process that is killed before the statement with this number."""
    reencryption._UNITS_AT_ONCE = 20
    database = open_database(url)
    store = ExemplarStore(database, OLD)
    die_before(database, statement)
    store.reencrypt(lambda _done, _of: None)


def test_a_killed_reencryption_has_changed_nothing(store, engine, database_url, tickets, rows):
    store.ingest("tickets", rows(50))
    before, was = texts(store), (stored(engine, exemplars), stored(engine, units), wrap(engine))
    engine.dispose()
    for was_killed in killed(reencrypt_and_die, database_url, 3, 5):
        assert ((stored(engine, exemplars), stored(engine, units), wrap(engine)) == was) == was_killed
        assert texts(ExemplarStore(engine, OLD)) == before
        engine.dispose()
