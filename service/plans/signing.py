"""From a plan as written to a plan that is signed, the same for REST and the command line."""

from __future__ import annotations

from accounting.ledger.budgets import SignedPlan
from accounting.plan import CalibratedPlan, Plan, PlanError, calibrate_plan
from exemplar_store import KnowledgeBase
from service.plans.preview import PlanPreview
from service.records.records import Records


class WorseThanFreeError(ValueError):
    """The plan's answers are not expected to be worth their price, and nobody said that this is accepted."""


def check_worth(described: PlanPreview, *, accepted: bool) -> None:
    """Whether a plan may be signed without another question.

    Args:
        described: from :func:`service.plans.preview.preview`.
        accepted: whether the signer was told and signs all the same.

    Raises:
        WorseThanFreeError: says why, of each task.
    """
    if described.warnings and not accepted:
        raise WorseThanFreeError(" ".join(described.warnings))


def prepare(records: Records, plan: Plan) -> CalibratedPlan:
    """Check a plan against its knowledge base and calibrate it. Takes seconds; spends nothing.

    Raises:
        PlanError: the plan does not fit the knowledge base, or its promise cannot be kept.
        exemplar_store.UnknownKnowledgeBaseError: no such knowledge base.
        accounting.privacy.accountants.AccountantsDisagreeError: the accountants contradict each other.
    """
    check_fits(plan, records.store.get(plan.knowledge_base))
    return calibrate_plan(plan, records.store.get(plan.knowledge_base).public_size)


def sign(
    records: Records, calibrated: CalibratedPlan, signed_by: str, *, after_version: int | None = None
) -> SignedPlan:
    """Promise the plan's (ε, δ) for ever.

    Args:
        records: where it is written.
        calibrated: from :func:`prepare`.
        signed_by: name of whoever signs.
        after_version: as of :meth:`accounting.ledger.charges.Ledger.sign`.

    Raises:
        accounting.ledger.budgets.PlansChangedError: it is not.
        accounting.ledger.budgets.BudgetExceededError: the lifetime budget has not enough left.
    """
    plan = calibrated.plan
    return records.ledger.budgets.sign(
        plan.knowledge_base,
        epsilon=plan.budget.epsilon,
        delta=plan.budget.delta,
        accountant=plan.accountant,
        document=calibrated.model_dump_json(),
        tasks=[(name, task.answers) for name, task in plan.tasks.items()],
        signed_by=signed_by,
        after_version=after_version,
    )


def check_fits(plan: Plan, knowledge_base: KnowledgeBase) -> None:
    """Whether the knowledge base has the fields the plan's prompts show.

    Raises:
        PlanError: each problem names its key.
    """
    problems = []
    for name, task in plan.tasks.items():
        if missing := [field for field in task.exemplar_fields if field not in knowledge_base.fields]:
            problems.append(
                f"tasks.{name}.prompt.exemplar: the knowledge base has no field {', '.join(missing)}; "
                f"it has {', '.join(knowledge_base.fields)}"
            )
        if knowledge_base.embedded_field not in task.query_fields:
            problems.append(
                f"tasks.{name}.prompt.query: must ask for {knowledge_base.embedded_field}, the field exemplars are "
                "compared by"
            )
    if problems:
        raise PlanError(problems)
