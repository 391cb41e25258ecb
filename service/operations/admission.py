"""A token checked: its key, and the requests and answers that the key has left."""

from __future__ import annotations

from dataclasses import dataclass

from service.operations.roles import Actor
from service.records.api_keys import StoredKey
from service.records.rate_limits import Rate
from service.records.records import Records


@dataclass(frozen=True)
class Admitted:
    """A request with a valid key.

    Attributes:
        actor: the caller.
        key: the key of the request.
        rate: requests that the key may still send, without this one; None: any number.
    """

    actor: Actor
    key: StoredKey
    rate: Rate | None


def admit(records: Records, token: str) -> Admitted | None:
    """Count a request of the key that a token belongs to; None: the key is unknown, was revoked or has expired.

    The request may come too soon, which :attr:`Admitted.rate` shows.
    """
    key = records.keys.authenticate(token)
    return None if key is None else _counted(records, key)


def admit_session(records: Records, actor: Actor) -> Admitted:
    """Count a request of an actor who is signed in with a key, as one with its token.

    Raises:
        service.records.api_keys.UnknownKeyError: the actor has no key.
    """
    return _counted(records, records.keys.get(actor.id))


def _counted(records: Records, key: StoredKey) -> Admitted:
    limit = key.rate_per_minute
    rate = None if limit is None else records.rates.take(f"key {key.id}", limit)
    return Admitted(Actor.with_key(key), key, rate)
