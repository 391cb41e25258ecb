"""Keys, whoever revokes them."""

import pytest

from service.commands import keys
from service.commands.command import Confirmation, UnconfirmedError
from service.records.records import Records
from service.records.roles import Actor

ROOT = Actor("root", "root", "account", "admin")
CHIEF = Actor("chief", "chief", "person", "admin")


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
