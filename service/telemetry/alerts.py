"""Raises alerts and delivers them to webhooks, in the background: no query waits for either, or sets one off.

Messages are signed as Standard Webhooks says (https://www.standardwebhooks.com), but for those to the webhook of the
settings, which has no secret besides its address.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import httpx
import sqlalchemy as sa
import structlog

from service.plans.alerts import Alert, raise_due
from service.records.records import Records
from service.records.webhooks import Claimed, Webhooks

log = structlog.get_logger()

_RAISE_EVERY_S = 60.0
_DELIVER_EVERY_S = 5.0
_TIMEOUT_S = 10.0
"""Of an attempt, well within the lease of a message."""


class Alerts:
    """Alerts of the whole service, whichever replica sees to them.

    Args:
        records: what is looked at, and where it is written down.
        webhook: the address of the settings, or None. It may hold a secret, so it is never logged.
        clock: returns the present as an aware datetime.
    """

    def __init__(
        self, records: Records, webhook: str | None = None, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        for name in ("httpx", "httpcore"):  # they would tell addresses
            logging.getLogger(name).setLevel(logging.WARNING)
        self._records = records
        self._webhook = webhook
        self._clock = clock
        self.webhooks = Webhooks(records.database, records.digest_key, clock=clock)

    async def keep_raising(self) -> None:
        """Look what is due once a minute, until cancelled."""
        await _keep(self.raise_due, _RAISE_EVERY_S)

    async def keep_delivering(self) -> None:
        """Deliver what waits, every few seconds, until cancelled. What is cut off is sent again after its lease."""
        await _keep(self.deliver, _DELIVER_EVERY_S)

    async def raise_due(self) -> None:
        """Raise what is due; the log says what."""
        unlisted = self._webhook is not None
        for alert in await asyncio.to_thread(raise_due, self._records, self.webhooks, self._clock(), unlisted=unlisted):
            _log(alert)

    async def deliver(self) -> None:
        """Try to deliver what is due, each message once."""
        claimed = await asyncio.to_thread(self.webhooks.claim, unlisted=self._webhook is not None)
        if claimed:
            async with httpx.AsyncClient(follow_redirects=False) as client:
                await asyncio.gather(*(self._deliver(client, one) for one in claimed))

    async def _deliver(self, client: httpx.AsyncClient, message: Claimed) -> None:
        address = message.address if message.name is not None else self._webhook
        error = "address unreadable" if address is None else await _post(client, address, message, self._clock())
        given_up = await asyncio.to_thread(self.webhooks.settle, message, error)
        webhook = message.name or "DPICL_ALERT_WEBHOOK"
        if given_up:
            log.error("alert_given_up", webhook=webhook, error=error)
        elif error is not None:
            log.warning("alert_not_posted", webhook=webhook, attempts=message.attempts, error=error)


def sign(secret: bytes, id: str, timestamp: int, payload: str) -> str:
    """The header ``webhook-signature`` of a message.

    Args:
        secret: the webhook's.
        id: the message's.
        timestamp: of the attempt, as Unix time.
        payload: the body.
    """
    signed = hmac.digest(secret, f"{id}.{timestamp}.{payload}".encode(), hashlib.sha256)
    return f"v1,{base64.b64encode(signed).decode()}"


async def _post(client: httpx.AsyncClient, address: str, message: Claimed, now: datetime) -> str | None:
    """Send a message; why it did not arrive, in words without the address."""
    timestamp = int(now.timestamp())
    headers = {"content-type": "application/json", "webhook-id": message.id, "webhook-timestamp": str(timestamp)}
    if message.secret is not None:
        headers["webhook-signature"] = sign(message.secret, message.id, timestamp, message.payload)
    try:
        async with (
            asyncio.timeout(_TIMEOUT_S),
            client.stream("POST", address, content=message.payload.encode(), headers=headers) as response,
        ):
            return None if response.is_success else f"status {response.status_code}"  # whatever it says, unread
    except Exception as error:  # one address must not keep messages from the others
        return type(error).__name__


async def _keep(act: Callable[[], Awaitable[None]], every_s: float) -> None:
    while True:
        try:
            await act()
        except sa.exc.SQLAlchemyError as error:
            log.error("alerts_interrupted", error=type(error).__name__)
        await asyncio.sleep(every_s)


def _log(alert: Alert) -> None:
    task, left = alert.of.task, alert.of.left
    if alert.rule == "days":
        log.warning("answers_end_soon", task=task, days=alert.threshold, left=left)
    else:
        log.warning("answers_nearly_spent" if left else "answers_spent", task=task, percent=alert.threshold, left=left)
