"""The chain is checked a bounded piece at a time, and no change of what was checked, or comes next, goes unnoticed."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from accounting.ledger.events import AnswerCharged
from accounting.ledger.tables import audit_events, metadata
from accounting.ledger.trail import AuditTrail, append
from accounting.replay.chain import ChainCheck, Checked
from service.records.database import open_database

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def database(tmp_path) -> sa.Engine:
    engine = open_database(f"sqlite:///{tmp_path}/trail.sqlite")
    metadata.create_all(engine)
    with engine.begin() as connection:  # these tests act as the database's owner
        for guard in ("update", "delete"):
            connection.exec_driver_sql(f"DROP TRIGGER audit_events_no_{guard}")
    add(engine, 10)
    return engine


def add(engine: sa.Engine, events: int) -> None:
    with engine.begin() as connection:
        for number in range(events):
            append(connection, NOW, AnswerCharged(charge=str(number), task="kb.topic@1", key="ana"))


def test_it_goes_on_where_it_stopped(database: sa.Engine):
    check = ChainCheck(AuditTrail(database))
    assert [check.advance(4).events for _ in range(4)] == [4, 8, 10, 10]
    add(database, 3)
    assert check.advance(100) == Checked(13, broken=False)


def test_an_empty_trail_is_whole(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path}/empty.sqlite")
    metadata.create_all(engine)
    check = ChainCheck(AuditTrail(engine))
    assert check.advance(10) == Checked(0, broken=False)
    add(engine, 1)
    assert check.advance(10) == Checked(1, broken=False)


def rewrite(connection: sa.Connection, last: int) -> None:
    """Another chain in the place of the old one from event 5 on: whole, but not what it was."""
    connection.execute(sa.delete(audit_events).where(audit_events.c.sequence >= 5))
    for number in range(5, last + 1):
        append(connection, NOW, AnswerCharged(charge=str(-number), task="kb.topic@1", key="ana"))


@pytest.mark.parametrize(
    "change",
    [
        sa.update(audit_events).where(audit_events.c.sequence == 8).values(body="{}"),
        sa.update(audit_events).where(audit_events.c.sequence == 8).values(at=datetime(2031, 1, 1, tzinfo=UTC)),
        sa.delete(audit_events).where(audit_events.c.sequence == 8),
    ],
    ids=["a body", "a time", "one missing"],
)
def test_a_change_ahead_is_found(database: sa.Engine, change: sa.Executable):
    check = ChainCheck(AuditTrail(database))
    assert check.advance(6) == Checked(6, broken=False)
    with database.begin() as connection:
        connection.execute(change)
    assert [check.advance(1) for _ in range(3)] == [Checked(7, broken=False)] + [Checked(7, broken=True)] * 2


@pytest.mark.parametrize("last", [4, 10, 20], ids=["cut off", "rewritten", "rewritten and longer"])
def test_another_past_is_found(database: sa.Engine, last: int):
    check = ChainCheck(AuditTrail(database))
    assert check.advance(100) == Checked(10, broken=False)
    with database.begin() as connection:
        rewrite(connection, last)
    assert check.advance(100) == Checked(10, broken=True)
