"""Whether a charge's holder is at work, as others see it: by its beats, whatever any clock shows."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from accounting.ledger import holders, tables
from accounting.ledger.charges import Charged, InFlight, Ledger, Release
from accounting.ledger.holders import Holder, Watch
from service.records.database import open_database
from tests.accounting.books import opened, signed, wrong


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    monkeypatch.setattr(holders, "BEAT_S", 0.05)
    database = open_database(database_url)
    yield database
    database.dispose()


def dead_holder(database: sa.Engine) -> Ledger:
    """A ledger whose holder never beats, as one that was killed."""
    holder = Holder(database)
    holder.hold = lambda *_: None  # type: ignore[method-assign]
    return Ledger(database, lease_s=10**6, holder=holder)


def ask_until_answered(ledger: Ledger, *, most_s: float) -> Charged | Release | InFlight:
    """What a caller gets who asks again and again for some seconds."""
    task = ledger.budgets.task("kb.topic")
    watch, gone, ends = Watch(), None, time.monotonic() + most_s
    while True:
        outcome = ledger.charge(task, b"query", key_id="k", gone=gone)
        if not isinstance(outcome, InFlight) or time.monotonic() > ends:
            return outcome
        gone = outcome.charge_id if watch.is_gone(outcome) else None
        time.sleep(0.01)


def held(database: sa.Engine) -> list[int]:
    with database.connect() as connection:
        return list(connection.execute(sa.select(tables.holders.c.beats)).scalars())


def beating() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holder"]


def test_a_killed_holders_query_can_be_asked_again_long_before_the_lease_ends(
    database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "GONE_AFTER_S", 0.5)
    signed(opened(database, 3, 1e-4))
    killed = dead_holder(database)
    first = killed.charge(killed.budgets.task("kb.topic"), b"query", key_id="k")
    assert isinstance(first, Charged)
    started = time.monotonic()
    second = ask_until_answered(Ledger(database), most_s=60)
    assert isinstance(second, Charged)
    assert time.monotonic() - started >= 0.5
    assert killed.release(first.id, {"label": "late"}).charge_id == first.id  # it was slow, not dead: paid for twice
    assert Ledger(database).release(second.id, {"label": "twin"}).answer == {"label": "late"}
    assert wrong(database) == []


def test_a_holder_at_work_keeps_its_charge_and_leaves_nothing(
    database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "GONE_AFTER_S", 1.0)
    signed(opened(database, 3, 1e-4))
    ledger = Ledger(database, lease_s=60, holder=Holder(database))
    charged = ledger.charge(ledger.budgets.task("kb.topic"), b"query", key_id="k")
    assert isinstance(charged, Charged)
    assert isinstance(ask_until_answered(Ledger(database), most_s=4), InFlight)
    assert len(held(database)) == 1
    assert held(database)[0] > 5
    release = ledger.release(charged.id, {"label": "slow"})
    assert ask_until_answered(Ledger(database), most_s=60) == release
    until = time.monotonic() + 60
    while (held(database) or beating()) and time.monotonic() < until:
        time.sleep(0.01)
    assert held(database) == [] == beating()


def test_answers_within_a_beat_write_nothing(database: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "BEAT_S", 60.0)
    signed(opened(database, 3, 1e-4))
    ledger = Ledger(database, lease_s=60, holder=Holder(database))
    charged = ledger.charge(ledger.budgets.task("kb.topic"), b"query", key_id="k")
    assert isinstance(charged, Charged)
    assert held(database) == []
    ledger.void(charged.id)
    assert held(database) == []


def test_a_charge_without_a_holder_is_left_to_its_lease() -> None:
    now = datetime.now(UTC)
    watch, twin = Watch(), InFlight("charge", now, now)
    assert not any(watch.is_gone(twin) for _ in range(10**4))


def test_a_database_that_did_not_answer_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 30.0, 31.0, 32.0, 33.0, 34.0])
    monkeypatch.setattr(holders, "time", SimpleNamespace(monotonic=lambda: next(times)))
    now = datetime.now(UTC)
    watch, twin = Watch(), InFlight("charge", now, now, beats=7)
    assert [watch.is_gone(twin) for _ in range(6)] == [False] * 5 + [True]
