"""All units are read for a release of the whole knowledge base."""

import pytest
import sqlalchemy as sa

from exemplar_store import store as stores
from exemplar_store.tables import exemplars
from service.records.database import BUSY_TIMEOUT_S


def held(units) -> list[list[str]]:
    return sorted(sorted(exemplar.fields["text"] for exemplar in unit) for unit in units)


def test_each_unit_comes_once_and_whole(store, tickets, rows, embed, monkeypatch) -> None:
    """This holds however many units are read at a time."""
    store.ingest("tickets", [*rows(7, each=3), *rows(5, prefix="single")], embed)
    expected = sorted(
        [sorted(f"text {one} of u{unit}" for one in range(3)) for unit in range(7)]
        + [[f"text 0 of single{unit}"] for unit in range(5)]
    )
    for at_once in (1, 2, 5, 500):
        monkeypatch.setattr(stores, "_UNITS_AT_ONCE", at_once)
        found = list(store.every_unit("tickets"))
        assert held(found) == expected
        for unit in found:
            for exemplar in unit:
                assert exemplar.embedding @ embed([exemplar.fields["text"]])[0] > 0.999


def test_forgotten_units_and_rows_that_do_not_open_are_left_out(store, engine, tickets, rows, embed) -> None:
    assert list(store.every_unit("tickets")) == []
    store.ingest("tickets", rows(4, each=2), embed)
    store.forget("tickets", "u1")
    with engine.begin() as connection:
        some = sa.select(exemplars.c.position, exemplars.c.content_tag).limit(1)
        position, tag = connection.execute(some).one()
        changed = sa.update(exemplars).where(exemplars.c.position == position, exemplars.c.content_tag == tag)
        connection.execute(changed.values(payload=b"changed"))
    assert sorted(len(unit) for unit in store.every_unit("tickets")) == [1, 2, 2]


@pytest.mark.slow
def test_it_is_the_knowledge_base_of_one_moment(store, engine, tickets, rows, embed, monkeypatch) -> None:
    """Uploads and deletions during the reading change nothing, and writers still wait for each other."""
    store.ingest("tickets", rows(6), embed)
    monkeypatch.setattr(stores, "_UNITS_AT_ONCE", 1)
    reading = store.every_unit("tickets")
    first = [next(reading)]
    store.forget("tickets", "u5")
    store.ingest("tickets", rows(3, prefix="new"), embed)
    assert held([*first, *reading]) == [[f"text 0 of u{unit}"] for unit in range(6)]
    if engine.dialect.name == "sqlite":  # forgetting waits less for readers, and restores the usual timeout
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == BUSY_TIMEOUT_S * 1000
