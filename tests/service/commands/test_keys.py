"""Keys, whoever makes them: they are as they were wanted, and nobody locks everybody out unawares."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from service.commands import keys
from service.commands.command import Confirmation, UnconfirmedError
from service.commands.keys import KeyLimits, NewKey, Rotation
from service.records.records import Records
from service.records.roles import Actor

ROOT = Actor("root", "root", "account", "admin")
CHIEF = Actor("chief", "chief", "person", "admin")


def test_a_key_is_made_as_it_was_wanted(records: Records) -> None:
    wanted = NewKey(
        name="ana", role="analyst", quota=5, rate_per_minute=6, scope=["toys", "toys.colour"], expires_in_days=36_500
    )
    made = keys.create(ROOT, records, wanted)
    assert records.keys.authenticate(made.token).id == made.id
    assert (made.name, made.role, made.quota, made.rate_per_minute) == ("ana", "analyst", 5, 6)
    assert made.scope == ("toys", "toys.colour")
    assert abs(made.expires_at - datetime.now(UTC) - timedelta(days=36_500)) < timedelta(minutes=1)
    assert records.audit.events(kinds=["key.created"])[-1].particulars.by == "root"
    limited = keys.limit(ROOT, records, made.id, KeyLimits(quota=None, rate_per_minute=None))
    assert (limited.quota, limited.rate_per_minute) == (None, None)
    with pytest.raises(ValidationError):
        Rotation(overlap_hours=8761)


def test_nobody_locks_everybody_out_unawares(records: Records) -> None:
    chief, _ = records.keys.create("chief", "admin")
    with pytest.raises(UnconfirmedError) as refused:
        keys.revoke(CHIEF, records, chief.id)
    assert refused.value.confirmation == Confirmation.LOCK_OUT
    assert records.keys.get(chief.id).revoked_at is None
    keys.revoke(ROOT, records, chief.id)  # an account here can make another
    assert records.keys.get(chief.id).revoked_at is not None
    deputy, _ = records.keys.create("deputy", "admin")
    keys.revoke(CHIEF, records, deputy.id, {Confirmation.LOCK_OUT})
    assert records.keys.get(deputy.id).revoked_at is not None
