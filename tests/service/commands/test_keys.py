"""Keys, whoever makes them: what is wrong with an input is said by field, and nobody locks everybody out unawares."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from service.commands import keys
from service.commands.command import Confirmation, UnconfirmedError
from service.commands.fields import problems
from service.commands.keys import KeyLimits, NewKey, Rotation
from service.records.records import Records
from service.records.roles import Actor

ROOT = Actor("root", "root", "account", "admin")
CHIEF = Actor("chief", "chief", "person", "admin")
ANA: dict[str, Any] = {"name": "ana", "role": "analyst"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"name": "a" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"role": "king"}, "role"),
        ({"quota": -1}, "quota"),
        ({"quota": 2**53}, "quota"),
        ({"quota": True}, "quota"),
        ({"rate_per_minute": 0}, "rate_per_minute"),
        ({"rate_per_minute": 1_000_001}, "rate_per_minute"),
        ({"role": "admin", "quota": 5}, "quota"),
        ({"role": "viewer", "scope": ["toys"]}, "scope"),
        ({"scope": ["All of it"]}, "scope"),
        ({"scope": ["toys"] * 101}, "scope"),
        ({"expires_in_days": 0}, "expires_in_days"),
        ({"expires_in_days": 36_501}, "expires_in_days"),
        ({"owner": "ana"}, "owner"),
    ],
)
def test_a_wrong_field_is_named(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        NewKey(**ANA | wrong)
    assert list(problems(refused.value, NewKey)) == [field]


def test_a_key_is_made_as_it_was_wanted(records: Records) -> None:
    wanted = NewKey(**ANA, quota=5, rate_per_minute=6, scope=["toys", "toys.colour"], expires_in_days=36_500)
    made, token = keys.create(ROOT, records, wanted)
    assert records.keys.authenticate(token).id == made.id
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
