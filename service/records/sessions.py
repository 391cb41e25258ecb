"""Who is signed in. A session is a row, so every replica knows it, and it ends when its key is revoked.

The cookie holds 256 random bits and the database their SHA-256 alone, as with API keys: a stolen database signs nobody
in. A session lasts a working day from its sign-in, used or not, so that looking at a page writes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.dialects import reading
from accounting.ledger.events import AdminSignedIn, AdminSignedOut
from service.records.api_keys import ApiKey, standing, token_digest
from service.records.tables import admin_sessions, api_keys

LASTS = timedelta(hours=8)


@dataclass(frozen=True)
class Session:
    """An admin who is signed in.

    Attributes:
        key_id: the key they signed in with.
        key_name: its name.
        csrf: what their forms must carry.
        expires_at: when they must sign in again.
    """

    key_id: str
    key_name: str
    csrf: str
    expires_at: datetime


class Sessions:
    """The sessions in the database.

    Args:
        database: from :func:`service.records.database.open_database`.
        clock: returns the present as an aware datetime.
    """

    def __init__(self, database: sa.Engine, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database = database
        self._clock = clock

    def start(self, key: ApiKey) -> str:
        """Sign an admin key in.

        Returns:
            The token for the cookie. It cannot be recovered.

        Raises:
            ValueError: not an admin's key.
        """
        if key.role != "admin":
            raise ValueError(f"{key.name!r} is an {key.role} key: only admin keys sign in")
        token, now = secrets.token_urlsafe(32), self._clock()
        with self._database.begin() as connection:
            connection.execute(sa.delete(admin_sessions).where(admin_sessions.c.expires_at <= now))
            connection.execute(
                sa.insert(admin_sessions).values(
                    token_sha256=token_digest(token),
                    key_id=key.id,
                    csrf=secrets.token_urlsafe(32),
                    created_at=now,
                    expires_at=now + LASTS,
                )
            )
            trail.append(connection, now, AdminSignedIn(key=key.id))
        return token

    def find(self, token: str) -> Session | None:
        """The session of a cookie, or None: unknown, over, signed out, or its key was revoked or has expired."""
        now = self._clock()
        query = (
            sa.select(admin_sessions.c.key_id, api_keys.c.name, admin_sessions.c.csrf, admin_sessions.c.expires_at)
            .join(api_keys, api_keys.c.id == admin_sessions.c.key_id)
            .where(
                admin_sessions.c.token_sha256 == token_digest(token),
                admin_sessions.c.expires_at > now,
                standing(now),
                api_keys.c.role == "admin",
            )
        )
        with reading(self._database) as connection:
            row = connection.execute(query).first()
        return None if row is None else Session(row.key_id, row.name, row.csrf, row.expires_at)

    def end(self, token: str) -> None:
        """Sign out."""
        held = sa.delete(admin_sessions).where(admin_sessions.c.token_sha256 == token_digest(token))
        with self._database.begin() as connection:
            key_id = connection.execute(held.returning(admin_sessions.c.key_id)).scalar_one_or_none()
            if key_id is not None:
                trail.append(connection, self._clock(), AdminSignedOut(key=key_id))
