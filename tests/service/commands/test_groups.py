"""Groups, whoever makes and joins them."""

from collections.abc import Callable
from typing import Any

import pytest

from accounting.ledger.errors import GroupError, UnknownBudgetError, UnknownGroupError
from service.commands import budgets
from service.commands.budgets import NewGroup
from service.records.records import Records
from service.records.roles import Actor
from service.settings import Settings
from tests.service.conftest import make_records

ROOT = Actor("root", "root", "account", "admin")
CARE: dict[str, Any] = {"name": "care", "epsilon": 5.0, "delta": 1.5e-4}


def test_a_group_is_made_joined_and_listed_by_the_rules_of_the_ledger(records: Records) -> None:
    assert budgets.make_group(ROOT, records, NewGroup(**CARE)).free.epsilon == 5
    with pytest.raises(GroupError):
        budgets.make_group(ROOT, records, NewGroup(**CARE))
    budgets.make_group(ROOT, records, NewGroup(**CARE | {"name": "tight", "epsilon": 1.0}))
    for group, name, error in (
        ("tight", "toys", GroupError),  # too little is left
        ("car", "toys", UnknownGroupError),
        ("care", "toy", UnknownBudgetError),
        ("care", "", UnknownBudgetError),
    ):
        with pytest.raises(error):
            budgets.join_group(ROOT, records, group, name)
    joined = budgets.join_group(ROOT, records, "care", "toys")
    assert (joined.knowledge_bases, joined.promised.epsilon, joined.free.epsilon) == (["toys"], 4, 1)
    with pytest.raises(GroupError):
        budgets.join_group(ROOT, records, "care", "toys")
    vera = Actor("vera", "vera", "key", "viewer")
    assert [group.knowledge_bases for group in budgets.list_groups(vera, records)] == [["toys"], []]


def test_postgresql_is_not_asked_for_a_name_that_it_cannot_hold(tmp_path, new_postgres: Callable[[], str]) -> None:
    settings = Settings(database_url=new_postgres(), witness_url="none", development=True, latency_unpadded=True)
    records = make_records(tmp_path, settings=settings)
    budgets.make_group(ROOT, records, NewGroup(**CARE))
    with pytest.raises(UnknownBudgetError):
        budgets.join_group(ROOT, records, "care", "to\0ys")
    records.database.dispose()
