"""Helpers that open lifetime budgets, sign plans, and check that the books balance."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.budgets import SignedPlan
from accounting.ledger.charges import Ledger
from accounting.replay.books import violations

_NOISES = itertools.count(1)


def opened(database: sa.Engine, epsilon: float, delta: float, **options: Any) -> Ledger:
    """A ledger with a budget for the knowledge base ``kb``."""
    tables.metadata.create_all(database)
    ledger = Ledger(database, **options)
    with database.begin() as connection:
        ledger.budgets.open(connection, "kb", epsilon, delta)
    return ledger


def signed(
    ledger: Ledger,
    knowledge_base: str = "kb",
    *,
    epsilon: float | str = 1,
    delta: float | str = 1e-5,
    document: str | None = None,
    tasks: Sequence[tuple[str, int]] = (("topic", 4),),
    by: str = "root",
    **options: Any,
) -> SignedPlan:
    """Sign a plan; unless a document is given, it has a unique one."""
    document = json.dumps({"noise": next(_NOISES)}) if document is None else document
    granted = {"epsilon": epsilon, "delta": delta, "accountant": "pld", "tasks": tasks}
    return ledger.budgets.sign(knowledge_base, **granted, document=document, signed_by=by, **options)


def wrong(database: sa.Engine) -> list[str]:
    """List what does not add up in the tables."""
    with database.connect() as connection:
        return violations(connection)
