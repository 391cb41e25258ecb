"""Every knowledge base and its budget, at a glance; the part that changes refreshes itself."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter

from starlette.responses import Response

from accounting.ledger.entries import SEPARATOR
from accounting.ledger.events import AnswerReleased, ExemplarsIngested, Particulars
from accounting.ledger.history import Day, History
from service.gateway.dashboard.attention import Matter, matters, newest
from service.gateway.dashboard.charts import Chart
from service.gateway.dashboard.pages import Pages, Visit, whole
from service.gateway.dashboard.usage import burn_down
from service.operations.budget_report import KnowledgeBaseBudget, TaskBudget, budget_report
from service.operations.forecast import HISTORY, RULE, Forecast, forecast
from service.operations.roles import Right
from service.records.engine_record import last_engine
from service.records.records import Records

pages = Pages()

_PER_PAGE = 4


@pages.get("/", needs=Right.BROWSE)
async def overview(visit: Visit) -> Response:
    """The page one starts from, what needs attention first; for htmx the part of it that changes."""
    records = visit.services.records
    now = datetime.now(UTC)
    summaries = sorted(await asyncio.to_thread(summarise, records, now), key=_pressing)
    pages = max(1, -(-len(summaries) // _PER_PAGE))
    page = min(max(1, whole(visit.asked("page")) or 1), pages)
    return visit.page(
        "overview_live.html" if visit.is_htmx else "overview.html",
        here="overview",
        pressing=sorted((matter for summary in summaries for matter in summary.matters), key=attrgetter("rank")),
        summaries=summaries[(page - 1) * _PER_PAGE : page * _PER_PAGE],
        page=page,
        pages=pages,
        steps=await asyncio.to_thread(first_steps, records, summaries) if visit.decides else [],
        engine=await asyncio.to_thread(last_engine, records.database),
        trouble=records.witness.trouble if records.witness else None,
        rule=RULE,
        now=now,
    )


@dataclass(frozen=True)
class Summary:
    """A knowledge base's budget and how long it lasts.

    Attributes:
        budget: lifetime, promised, free, and by plan.
        used_epsilon: ε of the charges so far, over all plans of the cohort that the budget is of; for information.
        tasks: by address, the newest plan's first, each with how long its answers last if those are counted.
        matters: what an admin should look at, the most pressing first.
        chart: burn-down; None while no plan is signed.
    """

    budget: KnowledgeBaseBudget
    used_epsilon: float
    tasks: dict[str, tuple[TaskBudget, Forecast | None]]
    matters: list[Matter]
    chart: Chart | None

    @property
    def name(self) -> str:
        """The knowledge base's."""
        return self.budget.knowledge_base

    def of(self, task: str) -> list[tuple[TaskBudget, Forecast | None]]:
        """A task by its address with version; of one with topics each topic, the busiest first."""
        named, _, version = task.partition("@")
        within = f"{named}{SEPARATOR}"
        return [
            one
            for where, one in self.tasks.items()
            if where == task or (where.startswith(within) and where.endswith(f"@{version}"))
        ]

    @property
    def listed(self) -> list[tuple[TaskBudget, Forecast | None, bool]]:
        """Tasks with their forecasts: those that an address without a version leads to, and what older plans left.

        The last of each is whether a newer plan replaced it: its answers are paid for, and given to who names its
        version.
        """
        current = [task.task for _, task in newest(self.budget).values()]
        unused = [
            address
            for address, (task, expected) in self.tasks.items()
            if expected is not None and expected.left and address not in current
        ]
        return [(*self.tasks[address], address in unused) for address in [*current, *unused]]


def _pressing(summary: Summary) -> tuple[bool, int, str]:
    """Orders by what needs attention, what is archived last."""
    urgent = min((matter.rank for matter in summary.matters), default=9)
    return summary.budget.archived_at is not None, urgent, summary.name


def summarise(records: Records, now: datetime, only: str | None = None) -> list[Summary]:
    """Every knowledge base, or only one.

    Args:
        records: where they are.
        now: the present, in UTC.
        only: name of the one.
    """
    days = History(records.database).charges_per_day(knowledge_base=only, since=now - HISTORY)
    return [
        _summary(records, budget, days, now)
        for budget in budget_report(records)
        if only is None or budget.knowledge_base == only
    ]


def _summary(records: Records, budget: KnowledgeBaseBudget, days: list[Day], now: datetime) -> Summary:
    plans = records.ledger.budgets.plans(budget.knowledge_base)
    signed = {plan.version: plan.signed_at for plan in plans}
    tasks: dict[str, tuple[TaskBudget, Forecast | None]] = {}
    forecasts: list[tuple[Forecast, datetime]] = []
    for plan in reversed(budget.plans):
        for task in plan.tasks:
            expected = None
            if task.answers is not None and task.left is not None:
                expected = forecast(task.task, task.answers, task.left, days, now)
                forecasts.append((expected, signed[plan.version]))
            tasks[task.task] = task, expected
    return Summary(
        budget,
        sum(plan.epsilon_spent for plan in budget.plans if budget.cohort in plan.cohorts),
        tasks,
        matters(budget, {expected.task: expected for expected, _ in forecasts}, plans, records.settings, now),
        burn_down(budget.knowledge_base, forecasts, days, now),
    )


def first_steps(records: Records, summaries: list[Summary]) -> list[tuple[bool, str, str]]:
    """From nothing to a first answer: whether each step is done, by the audit trail, and where. Empty once all are."""

    def happened(particulars: type[Particulars]) -> bool:
        return bool(records.audit.events(kinds=[particulars.kind], limit=1))

    new, home, plan = "/new-knowledge-base", "/new-knowledge-base", "/plans"
    if summaries:
        home, plan = f"/knowledge-bases/{summaries[0].name}", f"/plans?knowledge_base={summaries[0].name}"
    steps = [
        (bool(summaries), "Create a knowledge base with its lifetime budget", new),
        (happened(ExemplarsIngested), "Upload exemplars", f"{home}/exemplars" if summaries else new),
        (any(summary.budget.plans for summary in summaries), "Sign a plan", plan),
        (any(key.role == "analyst" for key in records.keys.list()), "Hand out an analyst’s key", "/keys"),
        (happened(AnswerReleased), "See the first answer arrive", home),
    ]
    return [] if all(done for done, _, _ in steps) else steps
