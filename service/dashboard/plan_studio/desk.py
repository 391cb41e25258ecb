"""The desk a plan is written at: the knowledge base, its budget, and what the plan as written would give.

What a plan gives is computed by the functions behind ``dpicl plan preview``, beside the event loop, and kept by the
plan's content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from starlette.responses import Response

from accounting.ledger.amounts import exact
from accounting.ledger.budgets import BudgetStatus
from accounting.ledger.cohorts import CohortStatus
from accounting.ledger.errors import KnowledgeBaseArchivedError
from accounting.plan import CalibratedPlan, Plan, PlanError, PlanProblem
from accounting.privacy.accountants import AccountantsDisagreeError
from exemplar_store import KnowledgeBase
from service.commands import plans
from service.dashboard.charts import Chart
from service.dashboard.computing import Computations
from service.dashboard.pages import Visit
from service.dashboard.plan_studio.charts import agreement, over_answers, over_epsilon
from service.dashboard.plan_studio.drafts import KINDS, chosen
from service.dashboard.plan_studio.problems import located, places
from service.plans.alternatives import Alternatives, alternatives
from service.plans.calibrating import calibrate
from service.plans.preview import PlanPreview, preview
from service.plans.signing import settled
from service.records.engine_record import last_engine
from service.records.records import Records

HOME = "/knowledge-bases/{name}/plan"
_WAIT_S, _POLL_S = 20.0, 1.0
_computations = Computations("calibration")


@dataclass(frozen=True)
class PlanOutcome:
    """What a plan would give."""

    calibrated: CalibratedPlan
    preview: PlanPreview
    charts: dict[str, Chart]


@dataclass(frozen=True)
class Desk:
    """The knowledge base a plan is written for.

    Attributes:
        described: its description.
        status: its budget.
        versions: of the plans signed for it, the newest first.
    """

    described: KnowledgeBase
    status: BudgetStatus
    versions: list[int]

    @property
    def newest(self) -> int:
        """Version of the newest plan; 0 while there is none."""
        return max(self.versions, default=0)


@dataclass(frozen=True)
class DraftPlan:
    """A plan as written, and what it would give.

    Attributes:
        text: the YAML.
        problems: what is wrong with it.
        plan: as read; None if it cannot be.
        outcome: what it would give; None while that is computed, or if there are problems.
    """

    text: str
    problems: list[PlanProblem] = field(default_factory=list)
    plan: Plan | None = None
    outcome: PlanOutcome | None = None

    @property
    def computing(self) -> bool:
        """Whether to ask again in a moment."""
        return self.plan is not None and self.outcome is None and not self.problems

    @cached_property
    def lines(self) -> dict[str, int]:
        """See :func:`service.dashboard.plan_studio.problems.places`."""
        return places(self.text)

    @property
    def tasks(self) -> list[str]:
        """Names of its tasks as far as they can be read."""
        return [key.removeprefix("tasks.") for key in self.lines if key.startswith("tasks.")]


@dataclass(frozen=True)
class Price:
    """What a plan takes of the lifetime budget of each cohort that it draws on."""

    epsilon: Decimal
    delta: Decimal
    cohorts: list[CohortStatus]

    @property
    def fits(self) -> bool:
        """Whether each may be drawn on, and has that much free."""
        return all(
            cohort.closed_at is None and self.epsilon <= cohort.free_epsilon and self.delta <= cohort.free_delta
            for cohort in self.cohorts
        )

    @property
    def status(self) -> CohortStatus:
        """The one that stands in the way, or else the one with the least ε free."""
        return min(
            self.cohorts,
            key=lambda cohort: (cohort.closed_at is None, self.delta <= cohort.free_delta, cohort.free_epsilon),
        )

    @property
    def left(self) -> tuple[Decimal, Decimal]:
        """(ε, δ) free afterwards."""
        return self.status.free_epsilon - self.epsilon, self.status.free_delta - self.delta


async def open_desk(visit: Visit) -> Desk:
    """The knowledge base that the address names."""
    return await asyncio.to_thread(_open, visit.services.records, visit.request.path_params["name"])


def _open(records: Records, name: str) -> Desk:
    described = records.store.get(name)
    status = records.ledger.budgets.status(name)
    return Desk(described, status, [plan.version for plan in reversed(records.ledger.budgets.plans(name))])


async def read_draft(visit: Visit, desk: Desk, *, patiently: bool = False) -> DraftPlan:
    """Read the plan in the form, and have it computed; waits for that, but a page that asks again not for long."""
    written = visit.form.get("text", "")
    text = written.replace("\r\n", "\n") if isinstance(written, str) else ""
    try:
        plan, public_size = await asyncio.to_thread(_read, visit.services.records, text, desk.described)
        computed = await _computed(visit, dict([_job(plan, public_size)]), patiently=patiently)
        return DraftPlan(text, plan=plan, outcome=computed[0].result() if computed else None)
    except PlanError as error:
        return DraftPlan(text, located(error.problems, text))
    except (AccountantsDisagreeError, KnowledgeBaseArchivedError) as error:
        return DraftPlan(text, [PlanProblem("", str(error))])


async def _computed(
    visit: Visit, wanted: Mapping[Any, Callable[[], Any]], *, patiently: bool = False
) -> list[Future[Any]] | None:
    polls = visit.is_htmx and not patiently
    return await _computations.results(visit.session.by, wanted, _POLL_S if polls else _WAIT_S, insist=not polls)


def _read(records: Records, text: str, described: KnowledgeBase) -> tuple[Plan, int]:
    """The plan, with its cohorts named, and their public size."""
    return settled(records, plans.read(text, described.name))


def _job(plan: Plan, public_size: int) -> tuple[str, Callable[[], PlanOutcome]]:
    return f"{public_size} {plan.model_dump_json()}", lambda: _outcome(plan, public_size)


def _outcome(plan: Plan, public_size: int) -> PlanOutcome:
    calibrated = calibrate(plan, public_size)
    charts = {name: agreement(task, calibrated.noise[name], public_size) for name, task in plan.tasks.items()}
    return PlanOutcome(calibrated, preview(calibrated), charts)


@dataclass(frozen=True)
class Otherwise:
    """The same plan with more or less of something.

    Attributes:
        alternatives: by task.
        curves: over the plan's ε and the number of answers.
    """

    alternatives: Alternatives
    curves: list[Chart]


async def vary(visit: Visit, outcome: PlanOutcome) -> Otherwise | None:
    """What the plan would give otherwise, or None while that is being computed."""
    calibrated = outcome.calibrated
    computed = await _computed(visit, {("otherwise", calibrated.digest): lambda: _otherwise(calibrated)})
    return computed[0].result() if computed else None


def _otherwise(calibrated: CalibratedPlan) -> Otherwise:
    curves = [chart for chart in (over_epsilon(calibrated), over_answers(calibrated)) if chart]
    return Otherwise(alternatives(calibrated.plan, calibrated.public_size), curves)


def price_of(desk: Desk, outcome: PlanOutcome) -> Price:
    """What the plan takes."""
    budget = outcome.calibrated.plan.budget
    return Price(exact(budget.epsilon), exact(budget.delta), desk.status.of(outcome.calibrated.cohorts))


async def shown(visit: Visit, desk: Desk, draft: DraftPlan) -> dict[str, Any]:
    """What the part of the page that looks at the plan is rendered from."""
    records, result = visit.services.records, None
    if draft.outcome:
        result = await plans.preview.aside(visit.actor, records, draft.outcome.calibrated, grains=visit.services.grains)
    return {
        "latency": result.latency or {} if result else {},
        "desk": desk,
        "draft": draft,
        "price": price_of(desk, draft.outcome) if draft.outcome else None,
        "engine": await asyncio.to_thread(last_engine, records.database),
    }


async def studio(visit: Visit, desk: Desk, draft: DraftPlan, status: int = 200, **extra: Any) -> Response:
    """The whole page."""
    context = {"otherwise": None, "tried": None, "lasting": None, "choices": chosen({}), "kinds": KINDS} | extra
    return visit.page("plan_studio.html", status, here="plans", **await shown(visit, desk, draft), **context)
