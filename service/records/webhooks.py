"""Webhooks, and the messages that wait to be delivered to them.

A message is written in the transaction of what it tells, and stays until the webhook has taken it: it arrives at least
once. Whichever replica is free takes it for a while (a lease); what it does not settle by then is anybody's again.

Addresses and signing secrets open doors elsewhere, so they are stored encrypted (AES-256-GCM), under a key derived from
one that never changes, and no error quotes them.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from accounting.ledger import trail
from accounting.ledger.dialects import reading
from accounting.ledger.events import WebhookAdded, WebhookRemoved
from service.records.tables import deliveries, webhooks

MOST = 20
"""Webhooks at a time."""

LEASE = timedelta(minutes=1)
GIVEN_UP_AFTER = timedelta(days=1)
KEPT = timedelta(days=90)
"""How long a message that is settled stays, unless it is the newest to its webhook."""

_PAUSE = timedelta(seconds=10)
_LONGEST_PAUSE = timedelta(hours=4)
_AT_ONCE = 20
_LONGEST_NAME = 100
_LONGEST_URL = 2000
_NONCE_BYTES = 12
_SECRET_BYTES = 32


class UnknownWebhookError(LookupError):
    """No such webhook."""


@dataclass(frozen=True)
class Delivery:
    """How a message fares.

    Attributes:
        made_at: when it was written.
        attempts: to deliver it, so far.
        due_at: when it is tried again; None: it is settled.
        error: why the last attempt failed.
    """

    made_at: datetime
    attempts: int
    due_at: datetime | None
    error: str | None

    @property
    def state(self) -> str:
        """In a word or two."""
        if self.due_at is None:
            return "failed" if self.error else "delivered"
        return "being retried" if self.error else "waiting"


@dataclass(frozen=True)
class Webhook:
    """Where alerts are sent.

    Attributes:
        id: names it.
        name: what people call it.
        address: secret; None if it does not open, since the row was changed outside this program.
        added_at: when.
        last: the newest message to it.
    """

    id: str
    name: str
    address: str | None
    added_at: datetime
    last: Delivery | None

    @property
    def host(self) -> str | None:
        """What may be shown of the address."""
        return self.address and urlsplit(self.address).hostname

    @property
    def is_clear(self) -> bool:
        """Whether what is sent can be read on the way."""
        return self.address is not None and in_clear(self.address)


@dataclass(frozen=True)
class Claimed:
    """A message to be sent now, by whoever claimed it.

    Attributes:
        id: the message's, the same at every attempt.
        payload: JSON, as it is signed.
        attempts: with this one.
        name: the webhook's; None: that of the settings.
        address: where to; None: that of the settings, or none that opens.
        secret: what to sign with; None: nothing.
    """

    id: str
    payload: str
    attempts: int
    made_at: datetime
    name: str | None
    address: str | None
    secret: bytes | None


class Webhooks:
    """The webhooks in the database.

    Args:
        database: from :func:`service.records.database.open_database`.
        secret: 32 bytes, from which the key for addresses is derived.
        clock: returns the present as an aware datetime.
    """

    def __init__(
        self, database: sa.Engine, secret: bytes, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._database = database
        self._aead = AESGCM(HKDF(SHA256(), 32, None, b"dp-icl webhooks v1: encryption").derive(secret))
        self._clock = clock

    def add(self, name: str, address: str, *, by: str) -> tuple[str, str]:
        """Send alerts to another address.

        Returns:
            The webhook's id, and the secret that its messages are signed with, which cannot be shown again.

        Raises:
            ValueError: the name or the address cannot be used; begins with which of them.
        """
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise ValueError(f"name: give it one of at most {_LONGEST_NAME} printable characters, such as “on call”")
        check_address(address)
        new, key, now = str(uuid.uuid4()), secrets.token_bytes(_SECRET_BYTES), self._clock()
        secret = f"whsec_{base64.b64encode(key).decode()}"
        with self._database.begin() as connection:
            count = connection.execute(sa.select(sa.func.count()).select_from(webhooks)).scalar_one()
            if count >= MOST:
                raise ValueError(f"name: there are {MOST} webhooks already; remove one first")
            sealed = self._seal(new, {"address": address, "secret": secret})
            connection.execute(sa.insert(webhooks).values(id=new, name=name, sealed=sealed, added_at=now))
            trail.append(connection, now, WebhookAdded(webhook=new, name=name, by=by))
        return new, secret

    def remove(self, webhook: str, *, by: str) -> str:
        """Send nothing there any more, not even what waits; its name.

        Raises:
            UnknownWebhookError: there is none.
        """
        with self._database.begin() as connection:
            gone = sa.delete(webhooks).where(webhooks.c.id == webhook).returning(webhooks.c.name)
            name: str | None = connection.execute(gone).scalar()
            if name is None:
                raise UnknownWebhookError("There is no such webhook; perhaps it was removed.")
            trail.append(connection, self._clock(), WebhookRemoved(webhook=webhook, name=name, by=by))
        return name

    def all(self) -> list[Webhook]:
        """All of them, by name, each with its newest message."""
        newest = sa.select(deliveries.c.webhook, sa.func.max(deliveries.c.made_at).label("made_at"))
        last = newest.group_by(deliveries.c.webhook).subquery()
        both = (deliveries.c.webhook == last.c.webhook) & (deliveries.c.made_at == last.c.made_at)
        with reading(self._database) as connection:
            rows = connection.execute(sa.select(webhooks).order_by(webhooks.c.name, webhooks.c.id)).all()
            messages = connection.execute(sa.select(deliveries).join(last, both)).all()
        found = {row.webhook: Delivery(row.made_at, row.attempts, row.due_at, row.error) for row in messages}
        return [
            Webhook(row.id, row.name, (self._open(row.id, row.sealed) or {}).get("address"), row.added_at, last)
            for row in rows
            for last in (found.get(row.id),)
        ]

    def tell(self, connection: sa.Connection, message: dict[str, Any], *, unlisted: bool) -> None:
        """Write a message to every webhook, to be delivered when the transaction is committed.

        Args:
            connection: in a transaction that writes.
            message: to be sent as JSON.
            unlisted: whether to send it to the webhook of the settings, too.
        """
        ids = connection.scalars(sa.select(webhooks.c.id)).all()
        self._write(connection, [*ids, *[None] * unlisted], message)

    def test(self, webhook: str, message: dict[str, Any]) -> None:
        """Write a message to one.

        Raises:
            UnknownWebhookError: there is none.
        """
        with self._database.begin() as connection:
            if connection.execute(sa.select(webhooks.c.id).where(webhooks.c.id == webhook)).first() is None:
                raise UnknownWebhookError("There is no such webhook; perhaps it was removed.")
            self._write(connection, [webhook], message)

    def claim(self, *, unlisted: bool) -> list[Claimed]:
        """Messages that are due, which nobody else sends before the lease is over.

        Args:
            unlisted: whether those for the webhook of the settings are wanted, too.
        """
        now = self._clock()
        due = sa.select(deliveries.c.id, deliveries.c.attempts).where(deliveries.c.due_at <= now)
        if not unlisted:
            due = due.where(deliveries.c.webhook.is_not(None))
        with reading(self._database) as connection:
            waiting = connection.execute(due.order_by(deliveries.c.due_at).limit(_AT_ONCE)).all()
        if not waiting:  # the usual case takes no lock
            return []
        claimed = []
        with self._database.begin() as connection:
            for row in sorted(waiting):  # in one order, so that replicas cannot wait for each other in a circle
                mine = sa.update(deliveries).where(
                    deliveries.c.id == row.id, deliveries.c.attempts == row.attempts, deliveries.c.due_at <= now
                )
                mine = mine.values(attempts=row.attempts + 1, due_at=now + LEASE)
                if (taken := connection.execute(mine.returning(deliveries)).first()) is not None:
                    claimed.append(taken)
            named = {row.id: row for row in connection.execute(sa.select(webhooks))}
        return [self._claimed(row, named.get(row.webhook)) for row in claimed]

    def settle(self, claimed: Claimed, error: str | None) -> bool:
        """Note how an attempt ended, unless the lease was over and somebody else made another.

        Args:
            claimed: from :meth:`claim`.
            error: why it failed, without anything secret; None: it did not.

        Returns:
            Whether the message is given up.
        """
        again = self._clock() + min(_PAUSE * 4 ** min(claimed.attempts - 1, 10), _LONGEST_PAUSE)
        given_up = error is not None and again > claimed.made_at + GIVEN_UP_AFTER
        mine = sa.update(deliveries).where(
            deliveries.c.id == claimed.id, deliveries.c.attempts == claimed.attempts, deliveries.c.due_at.is_not(None)
        )
        due_at = None if error is None or given_up else again
        with self._database.begin() as connection:
            connection.execute(mine.values(due_at=due_at, error=error))
        return given_up

    def _write(self, connection: sa.Connection, ids: Sequence[str | None], message: dict[str, Any]) -> None:
        now, payload = self._clock(), json.dumps(message, ensure_ascii=False)
        rows = [
            {"id": str(uuid.uuid4()), "webhook": one, "payload": payload, "made_at": now, "attempts": 0, "due_at": now}
            for one in ids
        ]
        if rows:
            connection.execute(sa.insert(deliveries), rows)
        self._prune(connection, now)

    def _prune(self, connection: sa.Connection, now: datetime) -> None:
        later = deliveries.alias()
        newer = sa.exists().where(later.c.webhook == deliveries.c.webhook, later.c.made_at > deliveries.c.made_at)
        old = sa.select(deliveries.c.id).where(
            deliveries.c.due_at.is_(None),
            deliveries.c.made_at < now - KEPT,
            deliveries.c.webhook.is_(None) | newer.correlate(deliveries),
        )
        # What another replica deletes already is skipped, so that neither waits for the other.
        old = old.with_for_update(skip_locked=True)
        connection.execute(sa.delete(deliveries).where(deliveries.c.id.in_(old)))

    def _claimed(self, row: sa.Row[Any], webhook: sa.Row[Any] | None) -> Claimed:
        opened = None if webhook is None else self._open(webhook.id, webhook.sealed)
        secret = base64.b64decode(opened["secret"].removeprefix("whsec_")) if opened else None
        name = webhook.name if webhook is not None else None
        address = opened["address"] if opened else None
        return Claimed(row.id, row.payload, row.attempts, row.made_at, name, address, secret)

    def _seal(self, webhook: str, content: dict[str, str]) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, json.dumps(content).encode(), webhook.encode())

    def _open(self, webhook: str, sealed: bytes) -> dict[str, str] | None:
        try:
            opened = self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], webhook.encode())
        except (InvalidTag, ValueError):
            return None
        content: dict[str, str] = json.loads(opened)
        return content


def check_address(address: str) -> None:
    """Whether messages can be sent to an address. Any host is allowed: who adds one decides that.

    Raises:
        ValueError: they cannot; begins with ``address``, and quotes nothing of it.
    """
    if len(address) > _LONGEST_URL:
        raise ValueError(f"address: it is longer than {_LONGEST_URL:,} characters")
    if not address.isprintable() or not address.isascii() or " " in address:
        raise ValueError("address: it has blanks or other characters that an address cannot have; quote them with %")
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise ValueError("address: it cannot be read; it should look like https://example.org/hook") from None
    if parts.scheme not in ("https", "http"):
        raise ValueError("address: it must begin with https:// (or http://, which others can read on the way)")
    if not parts.hostname or port == 0:
        raise ValueError("address: it names no host; it should look like https://example.org/hook")
    if parts.username is not None or parts.password is not None:
        raise ValueError("address: leave out user name and password; messages are signed instead")
    if parts.fragment:
        raise ValueError("address: leave out # and what follows, which is never sent")


def in_clear(address: str) -> bool:
    """Whether messages to an address can be read on the way."""
    return urlsplit(address).scheme == "http"
