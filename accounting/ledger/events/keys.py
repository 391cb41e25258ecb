"""Events of keys, and of people on the dashboard."""

# ruff: noqa: D102 - Particulars documents these methods
from __future__ import annotations

from collections.abc import Iterable

from accounting.ledger.events.particulars import Names, Particulars, plural
from accounting.ledger.events.replayed import Replayed


class KeyCreated(Particulars, kind="key.created", words="Key made"):
    """An API key was made."""

    key: str
    name: str
    role: str
    quota: int | None
    rate_per_minute: int | None = None
    scope: tuple[str, ...] = ()
    expires_at: str | None = None
    by: str = ""

    lost = "key {name} ({key}) was made: make another"

    def sentence(self, named: Names) -> str:
        scope = f", for {', '.join(self.scope)} only" if self.scope else ""
        until = f", until {self.expires_at[:10]}" if self.expires_at else ""
        which = f"{self.role} key “{self.name}” ({self.key})"
        return f"{named(self.by)} created the {which}{scope}{until}, with {_limits(self)}."

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.key in past.keys:
            yield f"key {self.key} was made before"
        past.keys[self.key] = self


class KeyChanged(Particulars, kind="key.changed", words="Key’s limits changed"):
    """An API key got other limits."""

    key: str
    quota: int | None
    rate_per_minute: int | None = None
    by: str = ""

    lost = "key {key} got other limits: will get them again"

    def sentence(self, named: Names) -> str:
        return f"{named(self.by)} changed the limits of the key {named(self.key)}: {_limits(self)}."

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.key not in past.keys:
            yield f"key {self.key} was never made"
            return
        past.keys[self.key] = past.keys[self.key].model_copy(update={"quota": self.quota})


class KeyRotated(Particulars, kind="key.rotated", words="Key’s token replaced"):
    """An API key got another token; all else of it stays.

    Attributes:
        token_sha256: hash of the new token, in hexadecimal. It reveals nothing, since a token has 256 random bits.
        until: when the token before is refused (ISO 8601); None: at once, as are those before it.
    """

    key: str
    token_sha256: str
    until: str | None
    by: str

    lost = "key {key} got another token: will get it again"

    def sentence(self, named: Names) -> str:
        ends = f"until {self.until[:16].replace('T', ' ')}" if self.until else "no longer"
        return f"{named(self.by)} replaced the token of the key {named(self.key)}; the one before is valid {ends}."

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.key not in past.keys or self.key in past.revoked:
            yield f"key {self.key} is not a key whose token could be replaced"
        if self.token_sha256 in past.tokens:
            yield f"key {self.key} got a token that a key had before"
        past.tokens.add(self.token_sha256)


class KeyRevoked(Particulars, kind="key.revoked", words="Key revoked"):
    """An API key is refused from now on."""

    key: str
    by: str = ""

    says = "{by} revoked the key {key}."
    lost = "key {key} was revoked: will be revoked again"

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.key not in past.keys or self.key in past.revoked:
            yield f"key {self.key} is not a key that could be revoked"
        past.revoked.add(self.key)


class KeySignedIn(Particulars, kind="key.signed_in", words="Signed in"):
    """A session on the dashboard began, by a key."""

    key: str

    says = "{key} signed in to the dashboard."

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from _may_sign_in(self.key, past)


class KeySignedOut(Particulars, kind="key.signed_out", words="Signed out"):
    """A key ended its session on the dashboard."""

    key: str

    says = "{key} signed out of the dashboard."

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from _may_sign_in(self.key, past)


class PersonSignedIn(Particulars, kind="person.signed_in", words="Person signed in"):
    """A person whom a provider vouches for signed in to the dashboard; later events name the person as ``by`` does."""

    by: str
    issuer: str
    subject: str
    role: str

    def sentence(self, named: Names) -> str:
        return f"{self.by} signed in to the dashboard as {self.role}."

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.by != f"{self.subject} at {self.issuer}" or self.role not in ("viewer", "auditor", "admin"):
            yield f"{self.by} is not who signed in, or has no role that may"
        past.people.add(self.by)


class PersonSignedOut(Particulars, kind="person.signed_out", words="Person signed out"):
    """A person ended a session on the dashboard."""

    by: str

    def sentence(self, named: Names) -> str:
        return f"{self.by} signed out of the dashboard."

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.by not in past.people:
            yield f"{self.by} never signed in"


def _may_sign_in(key: str, past: Replayed) -> Iterable[str]:
    if key not in past.keys:
        yield f"key {key} may not sign in"


def _limits(key: KeyCreated | KeyChanged) -> str:
    answers = "no quota" if key.quota is None else f"a quota of {plural(key.quota, 'answer')}"
    rate = key.rate_per_minute
    pace = "no rate limit" if rate is None else f"at most {plural(rate, 'request')} a minute"
    return f"{answers} and {pace}"
