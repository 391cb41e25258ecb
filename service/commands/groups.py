"""Groups: knowledge bases that may hold the same people share one budget; made, listed and joined."""

from __future__ import annotations

import builtins
import re

from pydantic import BaseModel

from accounting.ledger.errors import UnknownBudgetError
from service.commands.command import command
from service.commands.fields import NAME, Name, inputs
from service.commands.promises import Delta, Epsilon
from service.plans.budget_report import GroupBudget
from service.records.records import Records
from service.records.roles import Actor, Right


class NewGroup(BaseModel):
    """A group to make."""

    model_config = inputs(name="care", epsilon=10, delta=1e-4)
    name: Name
    epsilon: Epsilon
    delta: Delta


@command(Right.DECIDE)
def make(actor: Actor, records: Records, wanted: NewGroup) -> GroupBudget:
    """Make a group with a budget that can never be changed.

    Raises:
        accounting.ledger.errors.GroupError: there is one of this name.
    """
    records.ledger.groups.open(wanted.name, wanted.epsilon, wanted.delta, by=actor.id)
    return GroupBudget.of(records.ledger.groups.status(wanted.name))


@command(Right.SEE)
def list_(_actor: Actor, records: Records) -> builtins.list[GroupBudget]:
    """Each with its knowledge bases, its budget, and what is left of it."""
    return [GroupBudget.of(status) for status in records.ledger.groups.statuses()]


@command(Right.DECIDE)
def join(actor: Actor, records: Records, group: str, name: str) -> GroupBudget:
    """Put a knowledge base into a group, for ever, with every plan that it has signed.

    Raises:
        accounting.ledger.errors.GroupError: it is in one already, or the group has too little left for its plans.
        accounting.ledger.errors.UnknownGroupError: no group has this name.
        accounting.ledger.errors.UnknownBudgetError: no knowledge base has this name.
    """
    if not re.fullmatch(NAME, name):  # PostgreSQL cannot look up a NUL character
        raise UnknownBudgetError(f"there is no knowledge base {name!r}")
    records.ledger.groups.join(group, name, by=actor.id)
    return GroupBudget.of(records.ledger.groups.status(group))
