"""The ledger read back by time."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.charges import Charged, Ledger, Release
from accounting.ledger.history import Day, Fallbacks, History, Minute, UnknownCursorError, Use
from tests.accounting.books import signed

START = datetime(2030, 1, 31, 22, 30, tzinfo=UTC)


class Past:
    """A ledger written hour by hour, and its history."""

    def __init__(self, engine: sa.Engine):
        tables.metadata.create_all(engine)
        self.now = START
        self.ledger = Ledger(engine, lease_s=60, clock=lambda: self.now)
        self.history = History(engine)
        for knowledge_base in ("animals", "plants"):
            with engine.begin() as connection:
                self.ledger.budgets.open(connection, knowledge_base, 3, 1e-4)
            self.sign(knowledge_base)
        self._queries = 0

    def sign(self, knowledge_base: str) -> None:
        signed(self.ledger, knowledge_base, tasks=[("kind", 9), ("age", 9)])

    def charge(self, task: str, key_id: str = "k", hours: int = 1) -> str:
        self._queries += 1
        charged = self.ledger.charge(self.ledger.budgets.task(task), b"%d" % self._queries, key_id=key_id)
        assert isinstance(charged, Charged)
        self.now += timedelta(hours=hours)
        return charged.id

    def release(self, task: str, **options) -> Release:
        return self.ledger.release(self.charge(task, **options), {"label": "x"})


@pytest.fixture
def past(engine: sa.Engine) -> Iterator[Past]:
    return Past(engine)


def test_releases_come_newest_first_and_page_by_page(past: Past) -> None:
    released = [past.release("animals.kind") for _ in range(5)]
    newest_first = released[::-1]
    assert past.history.releases() == newest_first
    assert past.history.releases(limit=2) == newest_first[:2]
    assert past.history.releases(limit=2, after=newest_first[1].id) == newest_first[2:4]
    later = past.release("animals.kind")
    assert past.history.releases(limit=9, after=newest_first[1].id) == newest_first[2:]  # new releases move no page
    assert past.history.releases(limit=1) == [later]
    assert past.history.releases(after=released[0].id) == []


def test_pages_split_entries_of_one_moment(past: Past) -> None:
    charged = [past.charge("animals.kind", hours=0) for _ in range(6)]
    for charge in charged:
        past.ledger.release(charge, {"label": "x"})
    seen: list[str] = []
    while page := past.history.releases(limit=4, after=seen[-1] if seen else None):
        seen += [entry.id for entry in page]
    assert len(seen) == len(set(seen)) == 6


def test_what_is_not_asked_for_is_left_out(past: Past) -> None:
    kinds = [past.release("animals.kind"), past.release("plants.kind")]
    past.sign("animals")
    newer = past.release("animals.kind")
    age = past.release("animals.age@1", key_id="other")
    history = past.history
    assert history.releases(knowledge_base="animals") == [age, newer, kinds[0]]
    assert history.releases(task="animals.kind") == [newer, kinds[0]]
    assert history.releases(task="animals.kind@1") == [kinds[0]]
    assert history.releases(task="animals.kind@2", knowledge_base="plants") == []
    assert history.releases(task="kind") == []


def test_days_are_utc_and_count_what_stays_spent(past: Past) -> None:
    past.release("animals.kind")  # 22:30
    past.charge("animals.kind")  # 23:30
    past.charge("animals.kind", hours=24)  # 0:30 of the next day
    past.ledger.void(past.charge("animals.age"))
    past.charge("plants.kind")
    first, second, third = date(2030, 1, 31), date(2030, 2, 1), date(2030, 2, 2)
    everything = [Day(first, "animals.kind@1", 2), Day(second, "animals.kind@1", 1), Day(third, "plants.kind@1", 1)]
    assert past.history.charges_per_day() == everything
    assert past.history.charges_per_day(knowledge_base="animals") == everything[:2]
    assert past.history.charges_per_day(since=second) == everything[1:]
    assert past.history.charges_per_day(since=date(2030, 2, 9)) == []


def test_minutes_count_what_stays_spent_and_keep_the_last_moment(past: Past) -> None:
    for seconds in (0, 20):
        past.now = START + timedelta(seconds=seconds)
        past.charge("animals.kind", hours=0)
    past.now = START + timedelta(minutes=1)
    past.ledger.void(past.charge("animals.kind", hours=0))
    past.charge("plants.kind", hours=0)
    first = Minute(START + timedelta(seconds=20), "animals.kind@1", 2)
    second = Minute(START + timedelta(minutes=1), "plants.kind@1", 1)
    assert past.history.charges_per_minute(since=START.date()) == [first, second]
    assert past.history.charges_per_minute(knowledge_base="plants", since=START.date()) == [second]
    assert past.history.charges_per_minute(since=date(2030, 2, 1)) == []


def test_use_is_counted_by_key(past: Past) -> None:
    past.release("animals.kind", hours=0)
    past.charge("animals.kind", hours=0)
    past.charge("animals.age", key_id="other")
    past.ledger.void(past.charge("animals.kind", key_id="other"))
    past.charge("plants.kind", hours=24)
    past.charge("animals.kind")
    day, later = date(2030, 1, 31), date(2030, 2, 2)
    uses = [
        Use(day, "animals.age@1", "other", 1),
        Use(day, "animals.kind@1", "k", 2),
        Use(later, "animals.kind@1", "k", 1),
    ]
    assert past.history.usage(knowledge_base="animals", since=day) == uses
    assert past.history.usage(knowledge_base="animals", since=later) == uses[2:]


def test_fallbacks_are_counted_where_answers_record_them(past: Past) -> None:
    past.release("animals.kind")
    for fell_back in (True, False, False):
        past.ledger.release(past.charge("animals.age"), {"text": "x", "fallback": fell_back})
    past.ledger.release(past.charge("plants.age"), {"text": "x", "fallback": False})
    assert past.history.fallbacks(knowledge_base="animals") == [Fallbacks("animals.age@1", 3, 1)]
    assert past.history.fallbacks(knowledge_base="plants") == [Fallbacks("plants.age@1", 1, 0)]
    assert past.history.fallbacks() == [Fallbacks("animals.age@1", 3, 1), Fallbacks("plants.age@1", 1, 0)]


def test_an_unknown_cursor_is_refused(past: Past) -> None:
    past.release("animals.kind")
    with pytest.raises(UnknownCursorError):
        past.history.releases(after="nothing")
