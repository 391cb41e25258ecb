"""Creating and revoking keys, by a person or by an account of the machine."""

import pytest

from service.operations import keys
from service.operations.command import Confirmation, UnconfirmedError
from service.operations.fields import FieldError
from service.operations.keys import NewKey
from service.operations.roles import Actor
from service.records.records import Records

ROOT = Actor("root", "root", "account", "admin")
CHIEF = Actor("chief", "chief", "person", "admin")


def test_an_admin_revokes_the_last_admin_key_only_on_confirmation(records: Records) -> None:
    chief, _ = records.keys.create("chief", "admin")
    with pytest.raises(UnconfirmedError) as refused:
        keys.revoke(CHIEF, records, chief.id)
    assert refused.value.confirmation == Confirmation.LOCK_OUT
    assert records.keys.get(chief.id).revoked_at is None
    keys.revoke(ROOT, records, chief.id, {Confirmation.PERMANENT})  # an account here can make another
    assert records.keys.get(chief.id).revoked_at is not None
    deputy, _ = records.keys.create("deputy", "admin")
    keys.revoke(CHIEF, records, deputy.id, set(Confirmation))
    assert records.keys.get(deputy.id).revoked_at is not None


def test_a_scope_names_knowledge_bases_and_tasks_that_exist(records: Records) -> None:
    def create(*scope: str) -> tuple[str, ...]:
        return keys.create(ROOT, records, NewKey(name="ana", role="analyst", scope=list(scope))).scope

    assert create("toys", "toys.colour") == ("toys", "toys.colour")
    records.create_knowledge_base(
        "empty", epsilon=1, delta=1e-4, public_size=60, fields=["text"], embedded_field="text", by="root"
    )
    before = records.keys.list()
    for wrong, named in (("toy", "'toys'"), ("toys.color", "'colour'"), ("empty.colour", ""), ("nowhere.colour", "")):
        with pytest.raises(FieldError) as refused:
            create("toys", wrong)
        assert refused.value.field == "scope"
        assert named in str(refused.value)  # the name that was most likely meant
    assert records.keys.list() == before
    assert create("empty") == ("empty",)
