"""Sessions of the dashboard: rows, which every replica knows, and which end when their key is revoked.

The cookie holds 256 random bits and the database only their SHA-256, as with API keys: a thief of the database cannot
sign in with it. A session lasts a working day from its sign-in, used or not, so that looking at a page writes nothing.
People sign in with a key, or at the provider that the settings name.
"""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from accounting.ledger import trail
from accounting.ledger.dialects import reading
from accounting.ledger.events import KeySignedIn, KeySignedOut, Particulars, PersonSignedIn, PersonSignedOut
from service.operations.roles import MAY, Actor, Right, may, why_not
from service.records.api_keys import Role, StoredKey, standing, token_digest
from service.records.rate_limits import CLOCKS_DIFFER_S
from service.records.tables import admin_sessions, api_keys

LASTS = timedelta(hours=8)
_CLOCKS_DIFFER = timedelta(seconds=CLOCKS_DIFFER_S)
_MAY_SIGN_IN = [role for role in MAY if may(role, Right.SIGN_IN)]


@dataclass(frozen=True)
class Person:
    """A person whom a provider vouches for.

    Attributes:
        issuer: issuer of the provider, an address.
        subject: identifier of the person at the provider, which never changes.
        name: name for people.
        role: name of their role, which determines their rights.
    """

    issuer: str
    subject: str
    name: str
    role: Role

    @property
    def by(self) -> str:
        """The person's identifier in the audit trail."""
        return f"{self.subject} at {self.issuer}"


@dataclass(frozen=True)
class Session:
    """A session of a person who is signed in.

    Attributes:
        actor: the actor, who has a key, or is a person whom the provider vouches for.
        csrf: token that the session's forms must carry.
        expires_at: time from which the actor must sign in again.
    """

    actor: Actor
    csrf: str
    expires_at: datetime


@dataclass(eq=False, repr=False)
class Sessions:
    """The sessions in the database.

    Attributes:
        database: database opened by :func:`service.records.database.open_database`.
        issuer: issuer of the provider whose people may be signed in; None: sessions need a key.
        clock: function that returns the present as an aware datetime.
    """

    database: sa.Engine
    issuer: str | None = field(default=None, kw_only=True)
    clock: Callable[[], datetime] = field(default=partial(datetime.now, UTC), kw_only=True)

    def start(self, whose: StoredKey | Person) -> str:
        """Sign in the owner of a key, or a person.

        Returns:
            The token for the cookie. It cannot be recovered.

        Raises:
            ValueError: the role may not use the dashboard.
        """
        if whose.role not in _MAY_SIGN_IN:
            raise ValueError(f"{whose.name!r}: {why_not(whose.role, Right.SIGN_IN)}")
        token, now = secrets.token_urlsafe(32), self.clock()
        values: dict[str, Any] = {"token_sha256": token_digest(token), "csrf": secrets.token_urlsafe(32)}
        signed_in: Particulars
        if isinstance(whose, Person):
            values |= {"key_id": "", **vars(whose)}
            signed_in = PersonSignedIn(by=whose.by, issuer=whose.issuer, subject=whose.subject, role=whose.role)
        else:
            values |= {"key_id": whose.id}
            signed_in = KeySignedIn(key=whose.id)
        with self.database.begin() as connection:
            connection.execute(sa.delete(admin_sessions).where(admin_sessions.c.expires_at <= now))
            connection.execute(sa.insert(admin_sessions).values(**values, created_at=now, expires_at=now + LASTS))
            trail.append(connection, now, signed_in)
        return token

    def find(self, token: str) -> Session | None:
        """The session of a cookie; None: unknown, ended or signed out, or its key was revoked or has expired."""
        now = self.clock()
        held = admin_sessions.c
        query = (
            sa.select(admin_sessions, *(api_keys.c[name].label(f"key_{name}") for name in ("name", "role", "scope")))
            .outerjoin(api_keys, api_keys.c.id == held.key_id)
            .where(
                held.token_sha256 == token_digest(token),
                held.expires_at > now,
                held.created_at <= now + _CLOCKS_DIFFER,  # else a clock was wrong, and it would last for long
                sa.or_(
                    sa.and_(standing(now), api_keys.c.role.in_(_MAY_SIGN_IN)),
                    sa.and_(held.issuer == self.issuer, held.role.in_(_MAY_SIGN_IN)),
                ),
            )
        )
        with reading(self.database) as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        if row.issuer is None:
            scope = tuple(row.key_scope.split(",")) if row.key_scope else ()
            actor = Actor(row.key_id, row.key_name, "key", row.key_role, scope)
        else:
            person = Person(row.issuer, row.subject, row.name, row.role)
            actor = Actor(person.by, person.name or person.subject, "person", person.role)
        return Session(actor, row.csrf, row.expires_at)

    def takes_form(self, session: Session, csrf: str) -> bool:
        """Whether a form comes from a page of this session, or of another one of the same actor that has not ended.

        A browser has one cookie and several tabs: a page stays usable when its actor signs in once more beside it.
        Another actor's page does not, since its form would be done in the name of the new one.

        Args:
            session: session of the request.
            csrf: token that the form carries.
        """
        if hmac.compare_digest(csrf.encode(), session.csrf.encode()):
            return True
        held = admin_sessions.c
        query = sa.select(admin_sessions).where(held.csrf == csrf, held.expires_at > self.clock())
        with reading(self.database) as connection:
            row = connection.execute(query).first() if "\0" not in csrf else None
        return row is not None and _actor_id(row) == session.actor.id

    def end(self, token: str) -> None:
        """Sign out."""
        held = sa.delete(admin_sessions).where(admin_sessions.c.token_sha256 == token_digest(token))
        with self.database.begin() as connection:
            row = connection.execute(held.returning(admin_sessions)).first()
            if row is None:
                return
            signed_out: Particulars = KeySignedOut(key=row.key_id)
            if row.issuer is not None:
                signed_out = PersonSignedOut(by=_actor_id(row))
            trail.append(connection, self.clock(), signed_out)


def _actor_id(row: Any) -> str:
    """The identifier in the audit trail of a session's actor."""
    return row.key_id if row.issuer is None else Person(row.issuer, row.subject, row.name, row.role).by
