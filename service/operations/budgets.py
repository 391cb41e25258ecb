"""Lifetime budgets: their numbers, what is left of them, and the cohorts and groups that share one.

A cohort is the people who arrived in one period, with a budget of its own. Knowledge bases in a group may hold the same
people.
"""

import re
from collections.abc import Collection
from typing import Annotated

from pydantic import BaseModel, Field

from accounting.ledger.amounts import checked, in_words
from accounting.ledger.errors import UnknownBudgetError
from accounting.plans.plan import SMALLEST_DELTA
from service.operations.budget_report import CohortBudget, GroupBudget, KnowledgeBaseBudget, budget_report
from service.operations.command import Confirmation, check_confirmed, command
from service.operations.fields import NAME, Name, inputs
from service.operations.roles import Actor, Right
from service.records.engine_record import EngineView, last_engine
from service.records.records import Records

LARGEST_EPSILON = 10.0
SMALLEST_SIZE = 100

Epsilon = Annotated[float, Field(gt=0, le=1000, description="Lifetime ε: all plans together promise at most this.")]
Delta = Annotated[
    float, Field(ge=SMALLEST_DELTA, lt=1, description="Lifetime δ, well below one over the number of units.")
]
PublicSize = Annotated[
    int,
    Field(
        ge=1,
        le=1_000_000_000,
        description="Approximate number of exemplars that it will hold, a figure you are willing to publish. Sampling "
        "probabilities rest on it; it is never computed from the exemplars.",
    ),
]


def weaknesses(epsilon: float, delta: float, public_size: int) -> list[str]:
    """Weaknesses of a lifetime budget, which can never be changed, a sentence each."""
    weak = []
    if epsilon > LARGEST_EPSILON:
        weak.append(
            f"ε = {epsilon:g} is weak: one person's data may change the odds of anything visible by a factor of "
            f"e^{epsilon:g}. 1 is strong, 8 is common."
        )
    if delta * public_size > 1:
        weak.append(
            f"δ = {delta:g} is weak: publishing a random person's data outright would keep it. Choose far less than "
            f"1/{public_size}."
        )
    if public_size < SMALLEST_SIZE:
        weak.append(
            f"A public size of {public_size} is small: noise that hides one of so few exemplars hides the answers, too."
        )
    return weak


class BudgetsView(BaseModel):
    """Every knowledge base's budget, and the engine that answers."""

    engine: EngineView | None
    knowledge_bases: list[KnowledgeBaseBudget]


@command(Right.SEE)
def read(actor: Actor, records: Records) -> BudgetsView:
    """The budgets of the knowledge bases in the actor's scope, by name, with the tasks in it."""
    budgets = [_within(actor, budget) for budget in budget_report(records) if actor.sees(budget.knowledge_base)]
    return BudgetsView(engine=last_engine(records.database), knowledge_bases=budgets)


def _within(actor: Actor, budget: KnowledgeBaseBudget) -> KnowledgeBaseBudget:
    """A budget with the tasks in the actor's scope, and the plans that have one."""
    tasks = {plan.version: [task for task in plan.tasks if actor.sees_task(task.task)] for plan in budget.plans}
    plans = [plan.model_copy(update={"tasks": tasks[plan.version]}) for plan in budget.plans if tasks[plan.version]]
    return budget.model_copy(update={"plans": plans})


class NewCohort(BaseModel):
    """A cohort to open."""

    model_config = inputs(epsilon=8, delta=1e-4, public_size=600)
    epsilon: Epsilon
    delta: Delta
    public_size: PublicSize


class CohortView(CohortBudget):
    """The public facts of a cohort."""

    public_size: int = Field(description="Number of exemplars declared when it was opened.")
    plans: list[int] = Field(description="Versions of the signed plans that draw on it.")


@command(Right.DECIDE)
def open_cohort(
    actor: Actor, records: Records, name: str, wanted: NewCohort, confirmed: Collection[str] = ()
) -> CohortView:
    """Open a cohort: people who arrive for the first time from now on belong to it, permanently.

    Raises:
        UnconfirmedError: the cohort's budget is a weak promise, or the newest has the same figures, or the actor did
            not confirm them.
        exemplar_store.UnrecognisedUnitsError: a unit that was there before would not be recognised.
        accounting.ledger.errors.CohortError: the knowledge base is archived, or another cohort was opened meanwhile.
    """
    weak = weaknesses(wanted.epsilon, wanted.delta, wanted.public_size)
    check_confirmed(Confirmation.WEAK_PROMISE, weak, confirmed)
    newest = records.ledger.budgets.status(name).cohorts[-1]
    last, budget = newest.number, checked(wanted.epsilon, wanted.delta)
    if ((newest.epsilon, newest.delta), records.store.get(name).public_size_of([last])) == (budget, wanted.public_size):
        twice = (
            f"Cohort {last} of {name}, the newest, was opened on {newest.opened_at:%Y-%m-%d} with this very budget and "
            "public size."
        )
        check_confirmed(Confirmation.AGAIN, [twice], confirmed)
    doubt = (
        f"Cohort {last + 1} of {name} gets the lifetime budget {in_words(budget)} and the public size "
        f"{wanted.public_size}. People who arrive for the first time from now on belong to it, and no longer to cohort "
        f"{last}. None of this can be changed later."
    )
    check_confirmed(Confirmation.PERMANENT, [doubt], confirmed)
    number = records.open_cohort(name, **wanted.model_dump(), by=actor.id, after=last)
    return list_cohorts(actor, records, name)[number - 1]


@command(Right.SEE)
def list_cohorts(actor: Actor, records: Records, name: str) -> list[CohortView]:
    """Cohorts with their budgets, and what is left of them; people who arrive belong to the last one.

    Raises:
        service.operations.roles.OutOfScopeError: the knowledge base is not in the actor's scope.
    """
    actor.require_knowledge_base(name)
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


@command(Right.DECIDE)
def close_cohort(actor: Actor, records: Records, name: str, number: int, confirmed: Collection[str] = ()) -> CohortView:
    """Let no further plan draw on a cohort, permanently. Plans that are signed go on.

    Raises:
        UnconfirmedError: the actor did not confirm it.
        accounting.ledger.errors.CohortError: no cohort has this number, or it is closed, or it is the newest.
    """
    records.store.get(name)
    for cohort in records.ledger.budgets.status(name).of([number]):
        unused = in_words((cohort.free_epsilon, cohort.free_delta))
        doubt = (
            f"No further plan of {name} will draw on cohort {number}, permanently: {unused} of its budget stays "
            "unused. Plans that are signed go on."
        )
        check_confirmed(Confirmation.PERMANENT, [doubt], confirmed)
    records.ledger.cohorts.close(name, number, by=actor.id)
    return list_cohorts(actor, records, name)[number - 1]


class NewGroup(BaseModel):
    """A group to make."""

    model_config = inputs(name="care", epsilon=10, delta=1e-4)
    name: Name
    epsilon: Epsilon
    delta: Delta


@command(Right.DECIDE)
def make_group(actor: Actor, records: Records, wanted: NewGroup, confirmed: Collection[str] = ()) -> GroupBudget:
    """Make a group with a budget that can never be changed.

    Raises:
        UnconfirmedError: the actor did not confirm the figures.
        accounting.ledger.errors.GroupError: a group with this name exists.
    """
    budget = in_words(checked(wanted.epsilon, wanted.delta))
    doubt = f"Group {wanted.name} gets the lifetime budget {budget}, which can never be changed."
    check_confirmed(Confirmation.PERMANENT, [doubt], confirmed)
    records.ledger.groups.open(wanted.name, wanted.epsilon, wanted.delta, by=actor.id)
    return GroupBudget.of(records.ledger.groups.status(wanted.name))


@command(Right.SEE)
def list_groups(actor: Actor, records: Records) -> list[GroupBudget]:
    """Groups with their knowledge bases, their budgets, and what is left of them.

    An actor with a scope is shown the knowledge bases in it, and the groups that have one.
    """
    groups = [GroupBudget.of(status) for status in records.ledger.groups.statuses()]
    if not actor.scope:
        return groups
    seen = [[name for name in group.knowledge_bases if actor.sees(name)] for group in groups]
    shown = zip(groups, seen, strict=True)
    return [group.model_copy(update={"knowledge_bases": names}) for group, names in shown if names]


@command(Right.DECIDE)
def join_group(actor: Actor, records: Records, group: str, name: str, confirmed: Collection[str] = ()) -> GroupBudget:
    """Put a knowledge base into a group, permanently, with every plan signed for it.

    Raises:
        UnconfirmedError: the actor did not confirm it.
        accounting.ledger.errors.GroupError: it is in a group already, or the group has too little left for its plans.
        accounting.ledger.errors.UnknownGroupError: no group has this name.
        accounting.ledger.errors.UnknownBudgetError: no knowledge base has this name.
    """
    if not re.fullmatch(NAME, name):  # PostgreSQL cannot look up a NUL character
        raise UnknownBudgetError(f"there is no knowledge base {name!r}")
    records.ledger.budgets.status(name)
    status = records.ledger.groups.status(group)
    free = in_words((status.free_epsilon, status.free_delta))
    doubt = (
        f"{name} joins group {group}, permanently, with every plan that it has signed. Before these plans, the group "
        f"has {free} left of {in_words((status.epsilon, status.delta))}."
    )
    check_confirmed(Confirmation.PERMANENT, [doubt], confirmed)
    records.ledger.groups.join(group, name, by=actor.id)
    return GroupBudget.of(records.ledger.groups.status(group))
