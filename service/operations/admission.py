"""Who calls with a token, and what they have left of requests and answers."""

from __future__ import annotations

from dataclasses import dataclass

from service.operations.roles import Actor
from service.records.api_keys import StoredKey
from service.records.rate_limits import Rate
from service.records.records import Records


@dataclass(frozen=True)
class Admission:
    """A request with a valid key.

    Attributes:
        actor: who calls.
        key: which they call with.
        rate: what the key may still send, this request counted; None: any number.
    """

    actor: Actor
    key: StoredKey
    rate: Rate | None


def admit(records: Records, token: str) -> Admission | None:
    """Count a request of the key that a token belongs to; None if it is unknown, was revoked or has expired.

    It may come too soon: :attr:`Admission.rate` says so.
    """
    key = records.keys.authenticate(token)
    if key is None:
        return None
    limit = key.rate_per_minute
    rate = None if limit is None else records.rates.take(f"key {key.id}", limit)
    return Admission(Actor.with_key(key), key, rate)
