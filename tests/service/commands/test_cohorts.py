"""Cohorts, whoever opens and closes them."""

from typing import Any

import pytest

from accounting.ledger.errors import CohortError
from service.commands import budgets
from service.commands.budgets import NewCohort
from service.commands.command import Confirmation, UnconfirmedError
from service.records.records import Records
from service.records.roles import Actor

ROOT = Actor("root", "root", "account", "admin")
NEW: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-5, "public_size": 900}


def test_cohorts_are_opened_listed_and_closed(records: Records) -> None:
    weak = NewCohort(**NEW | {"epsilon": 30.0})
    with pytest.raises(UnconfirmedError) as refused:
        budgets.open_cohort(ROOT, records, "toys", weak)
    assert refused.value.confirmation == Confirmation.WEAK_PROMISE
    opened = budgets.open_cohort(ROOT, records, "toys", NewCohort(**NEW))
    assert (opened.cohort, opened.public_size, opened.plans, opened.free.epsilon) == (2, 900, [], 5)
    assert budgets.open_cohort(ROOT, records, "toys", weak, {Confirmation.WEAK_PROMISE}).cohort == 3
    assert budgets.close_cohort(ROOT, records, "toys", 1).closed_at
    for number in (1, 3, 9):  # closed, the newest, none
        with pytest.raises(CohortError):
            budgets.close_cohort(ROOT, records, "toys", number)
    vera = Actor("vera", "vera", "key", "viewer")
    listed = budgets.list_cohorts(vera, records, "toys")
    assert [(one.cohort, one.lifetime.epsilon, one.plans, one.closed_at is None) for one in listed] == [
        (1, 8, [1], False),
        (2, 5, [], True),
        (3, 30, [], True),
    ]
