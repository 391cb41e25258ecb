"""Cohorts: people by when they arrived, each cohort with its own lifetime budget; opened, listed and closed."""

from __future__ import annotations

import builtins
from collections.abc import Collection

from pydantic import BaseModel, Field

from service.commands.command import Confirmation, command
from service.commands.fields import inputs
from service.commands.promises import Delta, Epsilon, PublicSize, check_promise
from service.plans.budget_report import CohortBudget
from service.records.records import Records
from service.records.roles import Actor, Right


class NewCohort(BaseModel):
    """A cohort to open."""

    model_config = inputs(epsilon=8, delta=1e-4, public_size=600)
    epsilon: Epsilon
    delta: Delta
    public_size: PublicSize


class CohortView(CohortBudget):
    """What is public of a cohort."""

    public_size: int = Field(description="Exemplars that were declared when it was opened.")
    plans: list[int] = Field(description="Versions of the signed plans that draw on it.")


@command(Right.DECIDE)
def open_(
    actor: Actor, records: Records, name: str, wanted: NewCohort, confirmed: Collection[Confirmation] = ()
) -> CohortView:
    """Open a cohort: people who arrive for the first time from now on belong to it, for ever.

    Raises:
        UnconfirmedError: its budget is a weak promise.
        exemplar_store.UnrecognisedUnitsError: somebody who was there once would not be recognised.
        accounting.ledger.errors.CohortError: the knowledge base is archived.
    """
    check_promise(wanted.epsilon, wanted.delta, wanted.public_size, confirmed)
    number = records.open_cohort(name, **wanted.model_dump(), by=actor.id)
    return _views(records, name)[number - 1]


@command(Right.SEE)
def list_(_actor: Actor, records: Records, name: str) -> builtins.list[CohortView]:
    """Each with its budget, and what is left of it; the last is the one that people arrive to."""
    return _views(records, name)


@command(Right.DECIDE)
def close(actor: Actor, records: Records, name: str, number: int) -> CohortView:
    """Let no further plan draw on a cohort, for ever. Plans that are signed go on.

    Raises:
        accounting.ledger.errors.CohortError: there is none of this number, or it is closed, or the newest.
    """
    records.store.get(name)
    records.ledger.cohorts.close(name, number, by=actor.id)
    return _views(records, name)[number - 1]


def _views(records: Records, name: str) -> builtins.list[CohortView]:
    sizes = records.store.get(name).public_sizes
    budgets = records.ledger.budgets
    signed = budgets.plans(name)
    return [
        CohortView(
            **CohortBudget.of(status).model_dump(),
            public_size=size,
            plans=[plan.version for plan in signed if status.number in plan.cohorts],
        )
        for status, size in zip(budgets.status(name).cohorts, sizes, strict=False)  # one may be opened just now
    ]
