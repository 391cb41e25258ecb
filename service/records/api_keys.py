"""API keys: which callers may ask, and which admins may decide.

A token is 256 random bits. The database keeps only its SHA-256, looked up by equality: with that much entropy there is
nothing to guess, so neither a slow hash nor a constant-time comparison would add anything, and a stolen database holds
no key that works.
"""

import builtins
import hashlib
import secrets
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.dialects import reading
from accounting.ledger.events import KeyChanged, KeyCreated, KeyRevoked, KeyRotated
from accounting.ledger.quotas import set_quota
from accounting.ledger.tables import quotas
from service.problem_kinds import ProblemKind, RefusalError
from service.records.tables import admin_sessions, api_keys, retired_tokens

Role = Literal["analyst", "viewer", "auditor", "admin"]
"""The roles that a key can have; :mod:`service.operations.roles` lists what each may do."""

PREFIX = "dpicl_"
"""The beginning of every token, so that people and secret scanners recognise one."""

USE_NOTED_EVERY = timedelta(minutes=1)
LONGEST_OVERLAP = timedelta(days=365)
LONGEST_LIFE = timedelta(days=36_500)


def token_digest(token: str) -> bytes:
    """The SHA-256 of a token of 256 random bits, which is all that the database keeps of it."""
    return hashlib.sha256(token.encode()).digest()


class UnknownKeyError(RefusalError, LookupError):
    """No API key has this id."""

    kind = ProblemKind.UNKNOWN_KEY


class KeyRotatedError(RefusalError):
    """Another admin replaced the key's token meanwhile; nothing was done."""

    kind = ProblemKind.KEY_ROTATED


@dataclass(frozen=True)
class StoredKey:
    """A key without its secret; a revoked one stays listed.

    Attributes:
        id: the id that names it in charges and in the audit trail.
        name: a name for people.
        role: the role that decides what it may do (:mod:`service.operations.roles`).
        created_at: the time it was made.
        last_used_at: the time of its last use, exact to a minute; None: never used.
        revoked_at: the time since which it is refused; None: not revoked.
        rate_per_minute: number of requests that it may send in a minute; None: any number.
        quota: number of answers that it may be charged in all; None: what the budgets allow.
        charged: number of answers that it has been charged.
        scope: the knowledge bases and tasks that it may ask, like ``support`` and ``billing.queue``; empty: all.
        expires_at: the time from which it is refused; None: it does not expire.
        rotated_at: the time its token was last replaced; None: never.
    """

    id: str
    name: str
    role: Role
    created_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    rate_per_minute: int | None = None
    quota: int | None = None
    charged: int = 0
    scope: tuple[str, ...] = ()
    expires_at: datetime | None = None
    rotated_at: datetime | None = None

    def status(self, now: datetime) -> Literal["valid", "expired", "revoked"]:
        """Whether requests with it are accepted, or why they are refused."""
        if self.revoked_at is not None:
            return "revoked"
        return "valid" if self.expires_at is None or self.expires_at > now else "expired"


class ApiKeys:
    """The API keys in the database.

    Args:
        database: a database from :func:`service.records.database.open_database`.
        clock: a function that returns the present as an aware datetime.
    """

    def __init__(self, database: sa.Engine, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database = database
        self._clock = clock

    def create(
        self,
        name: str,
        role: Role,
        *,
        quota: int | None = None,
        rate_per_minute: int | None = None,
        scope: Sequence[str] = (),
        expires_at: datetime | None = None,
        by: str = "",
    ) -> tuple[StoredKey, str]:
        """Make a key.

        Args:
            name: a name for people; need not be unique.
            role: the role that decides what it may do (:mod:`service.operations.roles`).
            quota: number of answers that it may be charged in all; None: what the budgets allow.
            rate_per_minute: number of requests that it may send in a minute; None: any number.
            scope: knowledge bases and tasks that it may ask, of an analyst's key. Empty: all.
            expires_at: the time from which it is refused; None: it does not expire.
            by: the admin who makes it, for the audit trail: a key's id, or a person's name.

        Returns:
            The key and its token. The token cannot be recovered.
        """
        token, now = PREFIX + secrets.token_urlsafe(32), self._clock()
        limits: dict[str, Any] = {"quota": quota, "rate_per_minute": rate_per_minute, "scope": tuple(scope)}
        key = StoredKey(str(uuid.uuid4()), name, role, now, expires_at=expires_at, **limits)
        stored = {name: value for name, value in vars(key).items() if name in api_keys.c}
        stored["scope"] = ",".join(scope) or None
        expires = None if expires_at is None else expires_at.isoformat()
        with self._database.begin() as connection:
            connection.execute(sa.insert(api_keys).values(**stored, token_sha256=token_digest(token)))
            set_quota(connection, key.id, quota)
            created = KeyCreated(key=key.id, name=name, role=role, expires_at=expires, by=by, **limits)
            trail.append(connection, now, created)
        return key, token

    def names(self) -> dict[str, str]:
        """The names of all keys, by id."""
        return {key.id: key.name for key in self.list()}

    def limit(self, key_id: str, *, by: str = "", **changes: int | None) -> StoredKey:
        """Change a key's limits. Answers charged to it stay charged: a quota below their number is used up.

        Args:
            key_id: id of the key.
            by: the admin who changes them, for the audit trail.
            changes: ``quota``, ``rate_per_minute`` or both, None being unlimited; what is left out stays.

        Raises:
            UnknownKeyError: no key has this id, or it was revoked.
        """
        with self._database.begin() as connection:
            chosen = sa.and_(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
            # Writes first, so that no other admin changes a limit meanwhile.
            kept = {"rate_per_minute": api_keys.c.rate_per_minute} | {
                name: limit for name, limit in changes.items() if name == "rate_per_minute"
            }
            if not connection.execute(sa.update(api_keys).where(chosen).values(kept)).rowcount:
                raise _unknown(key_id)
            if "quota" in changes:
                set_quota(connection, key_id, changes["quota"])
            changed = _read(connection.execute(_KEYS.where(chosen)).one())
            limits = KeyChanged(key=key_id, quota=changed.quota, rate_per_minute=changed.rate_per_minute, by=by)
            trail.append(connection, self._clock(), limits)
        return changed

    def authenticate(self, token: str) -> StoredKey | None:
        """The key a token belongs to, or None: unknown, revoked or expired."""
        now = self._clock()
        presented = {"digest": token_digest(token), "now": now}
        with reading(self._database) as connection:
            row = connection.execute(_PRESENTED, presented).first()
            if row is None:
                row = connection.execute(_RETIRED, presented).first()
        if row is None:
            return None
        # Written at most once a minute, so that authenticating does not turn every request into a write.
        if row.last_used_at is None or now - row.last_used_at >= USE_NOTED_EVERY:
            # A valid key is accepted even if the database is busy.
            with suppress(sa.exc.OperationalError), self._database.begin() as connection:
                connection.execute(sa.update(api_keys).where(api_keys.c.id == row.id).values(last_used_at=now))
        return _read(row)

    def list(self) -> builtins.list[StoredKey]:
        """Every key, the revoked ones too, oldest first."""
        with reading(self._database) as connection:
            rows = connection.execute(_KEYS.order_by(api_keys.c.created_at, api_keys.c.id))
            return [_read(row) for row in rows]

    def get(self, key_id: str) -> StoredKey:
        """A key.

        Raises:
            UnknownKeyError: none has this id.
        """
        with reading(self._database) as connection:
            row = connection.execute(_KEYS.where(api_keys.c.id == key_id)).first()
        if row is None:
            raise _unknown(key_id)
        return _read(row)

    def rotate(self, seen: StoredKey, *, overlap: timedelta = timedelta(0), by: str = "") -> tuple[StoredKey, str]:
        """Give a key another token. Its id stays, and with it limits, scope, and what it was charged.

        Args:
            seen: the key as it was before.
            overlap: time for which the previous token still works. 0: it is refused at once, as is every earlier one,
                and the key's sessions on the dashboard end.
            by: the admin who replaces it, for the audit trail.

        Returns:
            The key and its new token. The token cannot be recovered.

        Raises:
            UnknownKeyError: there is no such key, or it was revoked or has expired.
            KeyRotatedError: another admin replaced its token after ``seen`` was read.
        """
        token, now = PREFIX + secrets.token_urlsafe(32), self._clock()
        digest, until = token_digest(token), now + overlap if overlap else None
        with self._database.begin() as connection:
            chosen = sa.and_(api_keys.c.id == seen.id, standing(now))
            row = connection.execute(sa.select(api_keys.c.rotated_at).where(chosen).with_for_update()).first()
            if row is None:
                raise _unknown(seen.id)
            if row.rotated_at != seen.rotated_at:
                raise KeyRotatedError(f"{seen.name!r} got another token at {row.rotated_at}; nothing was done")
            replace_token(connection, seen.id, digest, until, now)
            rotated = _read(connection.execute(_KEYS.where(chosen)).one())
            ends = None if until is None else until.isoformat()
            trail.append(connection, now, KeyRotated(key=seen.id, token_sha256=digest.hex(), until=ends, by=by))
        return rotated, token

    def revoke(self, key_id: str, by: str = "") -> None:
        """Revoke a key for good. Revoking it again changes nothing.

        Raises:
            UnknownKeyError: no key has this id.
        """
        now = self._clock()
        with self._database.begin() as connection:
            if connection.execute(_KEYS.where(api_keys.c.id == key_id)).first() is None:
                raise _unknown(key_id)
            unrevoked = sa.and_(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
            if connection.execute(sa.update(api_keys).where(unrevoked).values(revoked_at=now)).rowcount:
                trail.append(connection, now, KeyRevoked(key=key_id, by=by))


_KEYS = sa.select(
    *(column for column in api_keys.c if column.name != "token_sha256"),
    quotas.c.answers.label("quota"),
    sa.func.coalesce(quotas.c.charged, 0).label("charged"),
).select_from(api_keys.outerjoin(quotas, quotas.c.key_id == api_keys.c.id))


def replace_token(connection: sa.Connection, key_id: str, digest: bytes, until: datetime | None, now: datetime) -> bool:
    """Replace a key's token, in the caller's transaction; returns whether there is such a key.

    Args:
        connection: a connection in a transaction that writes.
        key_id: id of the key.
        digest: SHA-256 of the new token (:func:`token_digest`).
        until: the time from which the previous token is refused; None: at once, as are all earlier ones.
        now: the present.
    """
    chosen, its = api_keys.c.id == key_id, retired_tokens.c.key_id == key_id
    before = connection.execute(sa.select(api_keys.c.token_sha256).where(chosen)).scalar()
    if before is None:
        return False
    if until is None:
        connection.execute(sa.delete(admin_sessions).where(admin_sessions.c.key_id == key_id))
    connection.execute(sa.delete(retired_tokens).where(its if until is None else retired_tokens.c.ends_at <= now))
    connection.execute(sa.update(api_keys).where(chosen).values(token_sha256=digest, rotated_at=now))
    if until is not None and until > now:
        retired = {"token_sha256": before, "key_id": key_id, "ends_at": until}
        connection.execute(sa.insert(retired_tokens).values(retired))
    return True


def standing(now: datetime | sa.BindParameter[datetime]) -> sa.ColumnElement[bool]:
    """The condition that a row of ``api_keys`` is neither revoked nor expired."""
    return sa.and_(
        api_keys.c.revoked_at.is_(None), sa.or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > now)
    )


# Executed by every request, and built once: see accounting.ledger.budgets.
_STANDING = _KEYS.where(standing(sa.bindparam("now")))
_PRESENTED = _STANDING.where(api_keys.c.token_sha256 == sa.bindparam("digest"))
_RETIRED = _STANDING.join(retired_tokens, retired_tokens.c.key_id == api_keys.c.id).where(
    retired_tokens.c.token_sha256 == sa.bindparam("digest"), retired_tokens.c.ends_at > sa.bindparam("now")
)


def _read(row: Any) -> StoredKey:
    return StoredKey(**dict(row._mapping) | {"scope": tuple(row.scope.split(",")) if row.scope else ()})


def _unknown(key_id: str) -> UnknownKeyError:
    return UnknownKeyError(f"no API key has the id {key_id!r}; `dpicl keys list` shows them")
