"""Requests that change something, each done once for its caller's Idempotency-Key.

A request is begun before it changes anything. Its changes are written in one transaction with the note that it was
done (:data:`accounting.ledger.trail.beside`), and its response is kept after that. A request whose process died is
begun anew when its lease has ended; if the first attempt was only slow, the transaction of its change fails.

Responses are kept encrypted: that of an upload names values of private rows.

Uploads are announced and ended by events of their own, and one that is repeated stores nothing twice: they are noted
only by their response.
"""

import hmac
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from accounting.ledger import trail
from accounting.ledger.charges import IdempotencyConflictError
from accounting.ledger.dialects import insert
from accounting.ledger.events import ExemplarsIngested, Particulars, UploadEnded
from exemplar_store.encryption import seal, unseal
from service.problem_kinds import ProblemKind, RefusalError
from service.records.tables import requests

KEPT = timedelta(days=7)
"""The time for which an Idempotency-Key stands for its request."""
LEASE = timedelta(minutes=15)
"""The time for which a request without a response is taken to be running. A request that takes longer does no harm."""
_FORGOTTEN_AT_ONCE = 100


class InProgressError(RefusalError):
    """The request is being done, for the same Idempotency-Key; nothing is done now."""

    kind = ProblemKind.REQUEST_IN_PROGRESS
    retry_after_s = 5


class DoneBeforeError(RefusalError):
    """The request was done before, for the same Idempotency-Key, and its response is not kept; nothing is done now."""

    kind = ProblemKind.DONE_BEFORE


@dataclass(frozen=True)
class Attempt:
    """An attempt at a request: its caller, the caller's Idempotency-Key, and the attempt's own id."""

    caller: str
    name: str
    id: str


@dataclass(frozen=True)
class Answered:
    """The response to a request that is done: its HTTP status, and its body, JSON."""

    status: int
    body: str


class RequestsOnce:
    """The requests in the database.

    Args:
        database: a database from :func:`service.records.database.open_database`.
        secret: the key for hashing requests and encrypting responses, as both may hold private text.
        clock: a function that returns the present as an aware datetime.
    """

    def __init__(
        self, database: sa.Engine, secret: bytes, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._database = database
        self._secret = secret
        self._aead = AESGCM(hmac.digest(secret, b"responses to requests", "sha256"))
        self._clock = clock

    def begin(self, caller: str, name: str, request: bytes) -> Attempt | Answered:
        """Begin a request, or return its response if it is done.

        Args:
            caller: the id of the caller's key.
            name: the caller's Idempotency-Key, at most 255 characters.
            request: the whole content of the request; another request under the same name differs in it.

        Raises:
            IdempotencyConflictError: the caller used the name for another request.
            InProgressError: it is being done.
            DoneBeforeError: it was done, and its response is not kept.
        """
        now, attempt = self._clock(), Attempt(caller, name, str(uuid.uuid4()))
        digest = hmac.digest(self._secret, request, "sha256")
        row = {"request": digest, "attempt": attempt.id, "begun_at": now, "done": False}
        with self._database.begin() as connection:
            _forget_old(connection, now - KEPT)
            new = insert(connection.dialect.name, requests).values(key_id=caller, name=name, **row)
            connection.execute(new.on_conflict_do_nothing())
            found = connection.execute(sa.select(requests).where(_is(caller, name)).with_for_update()).one()
            if found.attempt == attempt.id:
                return attempt
            if found.request != digest:
                raise IdempotencyConflictError(
                    f"Idempotency-Key {name!r} was used for another request; use a new one for this"
                )
            if found.body is not None:
                return Answered(found.status, unseal(self._aead, found.body, found.attempt.encode()).decode())
            if found.done:
                raise DoneBeforeError(
                    "this request was done before, and its response is not kept: look at what there is now, and use a "
                    "new Idempotency-Key if more is to be done"
                )
            if now < found.begun_at + LEASE:
                raise InProgressError(
                    "a request with this Idempotency-Key is being done: send it again in a moment, for its response"
                )
            connection.execute(sa.update(requests).where(_is(caller, name)).values(row))
            return attempt

    def noted(self, attempt: Attempt) -> trail.Beside:
        """A function that notes the request as done, in the transaction of its change."""

        def note(connection: sa.Connection, happened: tuple[Particulars, ...]) -> None:
            if all(isinstance(one, ExemplarsIngested | UploadEnded) for one in happened):
                return
            if not connection.execute(_of(attempt).values(done=True)).rowcount:
                raise InProgressError("this request took too long and was begun anew; the newer one will be answered")

        return note

    def keep(self, attempt: Attempt, status: int, body: str | None) -> None:
        """Keep the response to a request; without a body, only note that it was done."""
        with self._database.begin() as connection:
            sealed = None if body is None else seal(self._aead, body.encode(), attempt.id.encode())
            connection.execute(_of(attempt).values(done=True, status=status, body=sealed))

    def refused(self, attempt: Attempt) -> None:
        """Forget a request that changed nothing, so that it may be sent again; one that did stays noted."""
        with self._database.begin() as connection:
            undone = sa.and_(_is(attempt.caller, attempt.name), requests.c.attempt == attempt.id, ~requests.c.done)
            connection.execute(sa.delete(requests).where(undone))


def _is(caller: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(requests.c.key_id == caller, requests.c.name == name)


def _of(attempt: Attempt) -> sa.Update:
    return sa.update(requests).where(_is(attempt.caller, attempt.name), requests.c.attempt == attempt.id)


def _forget_old(connection: sa.Connection, before: datetime) -> None:
    old = sa.select(requests.c.attempt).where(requests.c.begun_at < before).limit(_FORGOTTEN_AT_ONCE)
    chosen = connection.scalars(old.with_for_update(skip_locked=True)).all()
    if chosen:
        connection.execute(sa.delete(requests).where(requests.c.attempt.in_(chosen)))
