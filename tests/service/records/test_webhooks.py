"""Webhooks: nothing secret is stored in clear, and every message is taken by one, and by another if that one dies."""

from __future__ import annotations

import re
import threading
from collections import Counter
from datetime import timedelta

import pytest
import sqlalchemy as sa

from accounting.ledger.trail import AuditTrail
from accounting.replay.trail import verify
from service.records.schema import migrate
from service.records.tables import deliveries, webhooks
from service.records.webhooks import GIVEN_UP_AFTER, KEPT, LEASE, MOST, UnknownWebhookError, Webhooks, check_address
from tests.conftest import Clock

KEY = b"k" * 32
ADDRESS = "https://hooks.example.org/services/hidden-part"


@pytest.fixture
def hooks(engine: sa.Engine, clock: Clock) -> Webhooks:
    migrate(engine)
    return Webhooks(engine, KEY, clock=clock)


def tell(hooks: Webhooks, engine: sa.Engine, unlisted: bool = False) -> None:
    with engine.begin() as connection:
        hooks.tell(connection, {"text": "ä"}, unlisted=unlisted)


def everything(engine: sa.Engine) -> str:
    tables = sa.MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        rows = [tuple(row) for table in tables.sorted_tables for row in connection.execute(sa.select(table))]
    return repr([bytes(value) if isinstance(value, memoryview) else value for row in rows for value in row])


def test_addresses_and_secrets_are_not_in_the_database(hooks: Webhooks, engine: sa.Engine):
    id, secret = hooks.add("on call", ADDRESS, by="root")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
    tell(hooks, engine)
    stored = everything(engine)
    assert "on call" in stored
    for part in ("hidden-part", "hooks.example", secret, secret.removeprefix("whsec_")[:20]):
        assert part not in stored
    (one,) = hooks.all()
    assert (one.id, one.name, one.host, one.is_clear) == (id, "on call", "hooks.example.org", False)
    assert hooks.add("other", ADDRESS, by="root")[1] != secret


def test_a_row_that_was_moved_or_is_of_another_key_does_not_open(hooks: Webhooks, engine: sa.Engine):
    first, _ = hooks.add("first", ADDRESS, by="root")
    second, _ = hooks.add("second", ADDRESS, by="root")
    with engine.begin() as connection:
        sealed = sa.select(webhooks.c.sealed).where(webhooks.c.id == first).scalar_subquery()
        connection.execute(sa.update(webhooks).where(webhooks.c.id == second).values(sealed=sealed))
    assert [one.host for one in hooks.all()] == ["hooks.example.org", None]
    assert [one.host for one in Webhooks(engine, b"x" * 32).all()] == [None, None]
    tell(hooks, engine)
    assert {one.name: one.address for one in hooks.claim(unlisted=False)} == {"first": ADDRESS, "second": None}
    hooks.remove(second, by="root")


def test_what_is_added_and_removed_is_in_the_trail(hooks: Webhooks, engine: sa.Engine):
    id, _ = hooks.add("on call", ADDRESS, by="root")
    tell(hooks, engine)
    assert hooks.remove(id, by="root") == "on call"
    assert hooks.all() == hooks.claim(unlisted=True) == []
    with pytest.raises(UnknownWebhookError):
        hooks.remove(id, by="root")
    with pytest.raises(UnknownWebhookError):
        hooks.test(id, {})
    lines = [*AuditTrail(engine).export()]
    assert verify(lines).problems == []
    assert "example" not in "".join(lines)
    assert [event.kind for event in AuditTrail(engine).events()] == ["webhook.added", "webhook.removed"]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "must begin with https"),
        ("ftp://example.org/x", "must begin with https"),
        ("hooks.example.org/hidden", "must begin with https"),
        ("https://", "names no host"),
        ("https:///hidden", "names no host"),
        ("https://example.org:0/hidden", "names no host"),
        ("https://example.org:99999/hidden", "cannot be read"),
        ("https://[::1/hidden", "cannot be read"),
        ("https://maria:hidden@example.org/", "leave out user name and password"),  # pragma: allowlist secret
        ("https://example.org/#hidden", "leave out #"),
        ("https://example.org/hid den", "blanks or other characters"),
        ("https://example.org/\nhidden", "blanks or other characters"),
        ("https://exämple.org/hidden", "blanks or other characters"),
        ("https://example.org/" + "x" * 2000, "longer than 2,000 characters"),
    ],
)
def test_an_address_that_cannot_be_used(address: str, says: str):
    with pytest.raises(ValueError, match=f"^address: .*{re.escape(says)}") as caught:
        check_address(address)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("address", [ADDRESS, "http://127.0.0.1:8080", "https://[::1]/x?token=a%20b"])
def test_an_address_that_can(address: str):
    check_address(address)


def test_a_name_is_needed_and_there_is_an_end(hooks: Webhooks):
    for name in ("", "x" * 101, "on\0call", "on\ud800call"):
        with pytest.raises(ValueError, match=r"^name: "):
            hooks.add(name, ADDRESS, by="root")
    for number in range(MOST):
        hooks.add(str(number), ADDRESS, by="root")
    with pytest.raises(ValueError, match="remove one first"):
        hooks.add("one more", ADDRESS, by="root")


def test_a_message_is_one_replicas_until_its_lease_is_over(hooks: Webhooks, engine: sa.Engine, clock: Clock):
    hooks.add("on call", ADDRESS, by="root")
    tell(hooks, engine)
    (lost,) = hooks.claim(unlisted=False)
    assert lost.payload == '{"text": "ä"}'
    assert hooks.claim(unlisted=False) == []
    clock.advance(LEASE.total_seconds())
    (other,) = hooks.claim(unlisted=False)
    assert (other.id, other.payload, other.attempts) == (lost.id, lost.payload, 2)
    assert hooks.settle(lost, "late") is False  # it is not theirs any more
    hooks.settle(other, None)
    assert hooks.all()[0].last.state == "delivered"
    clock.advance(1e6)
    assert hooks.claim(unlisted=False) == []


def test_what_fails_is_tried_for_a_day_and_then_given_up(hooks: Webhooks, engine: sa.Engine, clock: Clock):
    hooks.add("on call", ADDRESS, by="root")
    tell(hooks, engine)
    begin, tried, given_up = clock.now, [], False
    assert hooks.all()[0].last.state == "waiting"
    while not given_up:
        (claimed,) = hooks.claim(unlisted=False)
        tried.append(clock.now - begin)
        given_up = hooks.settle(claimed, "status 500")
        last = hooks.all()[0].last
        assert (last.state, last.error) == ("failed" if given_up else "being retried", "status 500")
        if not given_up:
            assert hooks.claim(unlisted=False) == []
            clock.now = last.due_at
    assert [round(one.total_seconds()) for one in tried[:4]] == [0, 10, 50, 210]
    assert GIVEN_UP_AFTER - timedelta(hours=4) < tried[-1] <= GIVEN_UP_AFTER
    clock.advance(1e6)
    assert hooks.claim(unlisted=False) == []


def test_those_for_the_webhook_of_the_settings_wait_for_a_replica_that_has_it(hooks: Webhooks, engine: sa.Engine):
    tell(hooks, engine, unlisted=True)
    assert hooks.claim(unlisted=False) == []
    (one,) = hooks.claim(unlisted=True)
    assert (one.name, one.address, one.secret) == (None, None, None)


def test_replicas_share_messages_without_sending_one_twice(hooks: Webhooks, engine: sa.Engine):
    hooks.add("on call", ADDRESS, by="root")
    for _ in range(30):
        tell(hooks, engine)
    together, claimed = threading.Barrier(4), []

    def replica() -> None:
        together.wait()
        while found := hooks.claim(unlisted=False):
            claimed.extend(one.id for one in found)

    threads = [threading.Thread(target=replica) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while found := hooks.claim(unlisted=False):  # what two looked at and a third took
        claimed.extend(one.id for one in found)
    with engine.connect() as connection:
        assert Counter(claimed) == Counter(connection.scalars(sa.select(deliveries.c.id)).all())


def test_what_is_settled_is_pruned_but_for_the_newest_of_each(hooks: Webhooks, engine: sa.Engine, clock: Clock):
    first, _ = hooks.add("first", ADDRESS, by="root")

    def kept() -> Counter[str | None]:
        with engine.connect() as connection:
            return Counter(connection.scalars(sa.select(deliveries.c.webhook)))

    for _ in range(2):
        tell(hooks, engine, unlisted=True)
        clock.advance(1)
    for claimed in hooks.claim(unlisted=True):
        hooks.settle(claimed, None)
    tell(hooks, engine, unlisted=True)  # waits
    clock.advance(KEPT.total_seconds() - 2)
    hooks.test(first, {})
    assert kept() == {first: 4, None: 3}  # none is old enough yet
    clock.advance(2)
    hooks.test(first, {})
    assert kept() == {first: 3, None: 1}  # what waits stays, however old
    second, _ = hooks.add("second", ADDRESS, by="root")
    hooks.test(second, {})
    while due := hooks.claim(unlisted=True):
        for claimed in due:
            hooks.settle(claimed, None)
    clock.advance(2 * KEPT.total_seconds())
    hooks.test(second, {})
    assert kept() == {first: 1, second: 1}
    assert {one.name: one.last.state for one in hooks.all()} == {"first": "delivered", "second": "waiting"}
