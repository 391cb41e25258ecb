"""Groups of knowledge bases: what they refuse, and what is left of their budget."""

from decimal import Decimal

import pytest
import sqlalchemy as sa

from accounting.ledger.charges import Ledger
from accounting.ledger.errors import BudgetExceededError, GroupError, UnknownBudgetError, UnknownGroupError
from accounting.ledger.trail import AuditTrail
from tests.accounting.books import opened, signed, wrong


@pytest.fixture
def ledger(engine: sa.Engine) -> Ledger:
    """Two knowledge bases, ``kb`` and ``other``, with ε = 2 each, and a group with ε = 3."""
    ledger = opened(engine, 2, 1e-4)
    with engine.begin() as connection:
        ledger.budgets.open(connection, "other", 2, 1e-4)
    ledger.groups.open("patients", 3, 1e-4, by="root")
    return ledger


def test_the_knowledge_bases_of_a_group_share_its_budget(ledger: Ledger, engine: sa.Engine) -> None:
    for name in ("kb", "other"):
        ledger.groups.join("patients", name, by="root")
    signed(ledger, epsilon=2)
    with pytest.raises(BudgetExceededError, match="patients"):
        signed(ledger, "other", epsilon=2)
    signed(ledger, "other", epsilon=1)
    (status,) = ledger.groups.statuses()
    assert status == ledger.groups.status("patients")
    assert status.knowledge_bases == ("kb", "other")
    assert (status.promised_epsilon, status.free_epsilon) == (3, 0)
    assert (status.promised_delta, status.free_delta) == (Decimal("2e-5"), Decimal("8e-5"))
    assert wrong(engine) == []


def test_a_name_is_taken_once(ledger: Ledger, engine: sa.Engine) -> None:
    before = AuditTrail(engine).end()
    with pytest.raises(GroupError, match="'patients' already"):
        ledger.groups.open("patients", 100, 0, by="root")
    assert ledger.groups.status("patients").epsilon == 3
    assert AuditTrail(engine).end() == before


def test_a_misspelt_name_is_corrected(ledger: Ledger) -> None:
    for attempt in (lambda: ledger.groups.status("patient"), lambda: ledger.groups.join("patient", "kb", by="root")):
        with pytest.raises(UnknownGroupError, match="'patients'"):
            attempt()
    with pytest.raises(UnknownBudgetError):
        ledger.groups.join("patients", "nowhere", by="root")


def test_a_knowledge_base_stays_in_its_group(ledger: Ledger) -> None:
    ledger.groups.open("customers", 10, 1e-4, by="root")
    ledger.groups.join("patients", "kb", by="root")
    for name in ("patients", "customers"):
        with pytest.raises(GroupError, match="'patients' permanently"):
            ledger.groups.join(name, "kb", by="root")
    assert ledger.groups.status("customers").knowledge_bases == ()


@pytest.mark.parametrize(("epsilon", "delta"), [(2, 0), (0.5, 9.5e-5)], ids=["too little ε", "too little δ"])
def test_a_group_refuses_plans_that_exceed_what_it_has_left(ledger: Ledger, epsilon: float, delta: float) -> None:
    ledger.groups.join("patients", "kb", by="root")
    signed(ledger, epsilon=2)
    signed(ledger, "other", epsilon=epsilon, delta=delta)
    with pytest.raises(GroupError, match="left"):
        ledger.groups.join("patients", "other", by="root")
    assert ledger.groups.status("patients").knowledge_bases == ("kb",)
