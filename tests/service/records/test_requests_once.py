"""Requests by their Idempotency-Key: a change and the note that it was made stand or fall together."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from accounting.ledger import tables, trail
from accounting.ledger.charges import IdempotencyConflictError
from service.records.api_keys import ApiKeys
from service.records.requests_once import KEPT, LEASE, Answered, Attempt, DoneBeforeError, InProgressError, RequestsOnce
from service.records.tables import metadata, requests
from tests.conftest import Clock


@pytest.fixture
def once(engine: sa.Engine, clock: Clock) -> RequestsOnce:
    metadata.create_all(engine)
    tables.metadata.create_all(engine)
    return RequestsOnce(engine, b"secret", clock=clock)


def change(once: RequestsOnce, engine: sa.Engine, attempt: Attempt) -> None:
    """Make a change that is audited, in this attempt."""
    before = trail.beside.set(once.noted(attempt))
    try:
        ApiKeys(engine).create("ana", "analyst")
    finally:
        trail.beside.reset(before)


def test_what_it_was_answered_is_kept_for_its_caller_and_request(once: RequestsOnce, engine: sa.Engine) -> None:
    attempt = once.begin("root", "k", b"request")
    with pytest.raises(InProgressError):
        once.begin("root", "k", b"request")
    with pytest.raises(IdempotencyConflictError):
        once.begin("root", "k", b"other")
    once.keep(attempt, 201, "{}")
    assert once.begin("root", "k", b"request") == Answered(201, "{}")
    with pytest.raises(IdempotencyConflictError):
        once.begin("root", "k", b"other")
    assert isinstance(once.begin("bo", "k", b"request"), Attempt)
    with engine.connect() as connection:
        assert b"request" not in {row.request for row in connection.execute(sa.select(requests))}


def test_of_many_at_once_one_begins(once: RequestsOnce) -> None:
    with ThreadPoolExecutor(4) as threads:
        begun = [threads.submit(once.begin, "root", "k", b"request") for _ in range(8)]
    assert sorted(type(one.exception()).__name__ for one in begun) == ["InProgressError"] * 7 + ["NoneType"]


def test_a_change_is_noted_in_its_own_transaction(once: RequestsOnce, engine: sa.Engine, clock: Clock) -> None:
    """A process that dies after the change cannot repeat it; one that dies before it can be followed by another."""
    attempt = once.begin("root", "k", b"request")
    change(once, engine, attempt)
    once.refused(attempt)  # it failed afterwards
    clock.now += LEASE
    with pytest.raises(DoneBeforeError):
        once.begin("root", "k", b"request")


def test_an_attempt_that_another_replaced_can_no_longer_change_anything(
    once: RequestsOnce, engine: sa.Engine, clock: Clock
) -> None:
    slow = once.begin("root", "k", b"request")
    clock.now += LEASE
    second = once.begin("root", "k", b"request")
    with pytest.raises(InProgressError):
        change(once, engine, slow)
    assert ApiKeys(engine).list() == []
    once.refused(slow)  # has no effect: the second attempt has taken over
    change(once, engine, second)
    once.keep(second, 201, "{}")
    assert once.begin("root", "k", b"request") == Answered(201, "{}")
    assert len(ApiKeys(engine).list()) == 1


def test_one_that_changed_nothing_may_be_sent_again_and_old_ones_are_forgotten(
    once: RequestsOnce, engine: sa.Engine, clock: Clock
) -> None:
    once.refused(once.begin("root", "k", b"request"))
    once.keep(once.begin("root", "k", b"another"), 201, "{}")
    clock.now += KEPT
    assert once.begin("root", "k", b"another") == Answered(201, "{}")
    clock.advance(1)
    assert isinstance(once.begin("root", "other", b"request"), Attempt)
    with engine.connect() as connection:
        assert connection.execute(sa.select(requests.c.name)).scalars().all() == ["other"]


def test_responses_lie_encrypted(once: RequestsOnce, engine: sa.Engine) -> None:
    """The response to an upload names values of private rows."""
    attempt = once.begin("ana", "k", b"upload")
    once.keep(attempt, 201, '{"values": {"label": {"asthma": 3}}}')
    with engine.connect() as connection:
        assert b"asthma" not in connection.execute(sa.select(requests.c.body)).scalar_one()
    assert once.begin("ana", "k", b"upload") == Answered(201, '{"values": {"label": {"asthma": 3}}}')
