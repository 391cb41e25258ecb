"""One knowledge base: its budget, plans, spending, releases, and what was done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from starlette.responses import Response

from accounting.ledger.budgets import SignedPlan
from accounting.ledger.charges import Release
from accounting.ledger.errors import KnowledgeBaseArchivedError
from accounting.ledger.events import (
    CohortClosed,
    CohortOpened,
    ExemplarsIngested,
    ExemplarsRenewed,
    KnowledgeBaseArchived,
    RemoteEngineChanged,
    UnitForgotten,
)
from accounting.ledger.history import Day, History
from accounting.plan import PlanError
from exemplar_store import KnowledgeBase
from service.dashboard import burn_down
from service.dashboard.audit_words import EventInWords, in_words
from service.dashboard.charts import STYLES, Chart, bar_chart, counting
from service.dashboard.overview import Summary, summarise
from service.dashboard.pages import Pages, Visit
from service.dashboard.wording import number
from service.plans.preview import PlanPreview, preview
from service.plans.steady import MONTHS, steady_state
from service.records.records import Records
from service.records.signed import read_signed

pages = Pages()

_RELEASES = 20
_DAYS = 30
_CHANGES = 20
_CHANGED = (
    ExemplarsIngested,
    UnitForgotten,
    CohortOpened,
    CohortClosed,
    KnowledgeBaseArchived,
    ExemplarsRenewed,
    RemoteEngineChanged,
)
_KINDS = [kind.kind for kind in _CHANGED]


@pages.get("/knowledge-bases/{name}")
async def knowledge_base(visit: Visit) -> Response:
    """The page; what is refused by a form on it is shown by the form."""
    return await show(visit)


@pages.post("/knowledge-bases/{name}/remote-engine")
async def change_remote_engine(visit: Visit) -> Response:
    """Allow or forbid an engine outside the deployment."""
    name = visit.request.path_params["name"]
    allowed = visit.field("allowed") == "yes"
    records = visit.services.records
    await asyncio.to_thread(records.allow_remote_engine, name, allowed, by=visit.session.key_id)
    done = (
        "From the next query on, exemplars may be shown to"
        if allowed
        else "From the next query on, no exemplar goes to"
    )
    return visit.redirect(f"/knowledge-bases/{name}", done=f"{done} an engine outside this deployment.")


@pages.post("/knowledge-bases/{name}/archive")
async def archive(visit: Visit) -> Response:
    """Take nothing new any more, for whoever writes its name."""
    name = visit.request.path_params["name"]
    if visit.field("name") != name:
        return await show(
            visit, 422, archive_problem=f"Nothing was done. To archive it, write its name, {name}, exactly."
        )
    try:
        await asyncio.to_thread(visit.services.records.ledger.cohorts.archive, name, by=visit.session.key_id)
    except KnowledgeBaseArchivedError as error:
        return await show(visit, 409, archive_problem=f"{error}.")
    return visit.redirect(f"/knowledge-bases/{name}", done=f"“{name}” is archived. Its ledger and audit trail stay.")


async def show(
    visit: Visit, status: int = 200, upload_problem: str | None = None, archive_problem: str | None = None
) -> Response:
    """Render the page.

    Args:
        visit: whose path names the knowledge base.
        status: of the answer.
        upload_problem: why an upload was refused.
        archive_problem: why it was not archived.
    """
    view = await asyncio.to_thread(
        _view, visit.services.records, visit.request.path_params["name"], visit.request.query_params.get("after")
    )
    problems = {"upload_problem": upload_problem, "archive_problem": archive_problem}
    return visit.page("knowledge_base.html", status, here="overview", view=view, **problems)


@dataclass(frozen=True)
class PlanView:
    """A signed plan and what it gives."""

    signed: SignedPlan
    preview: PlanPreview
    document: str


@dataclass(frozen=True)
class View:
    """What the page shows. All of it public."""

    described: KnowledgeBase
    summary: Summary
    plans: list[PlanView]
    spending: Chart | None
    refusals: list[Any]
    releases: list[Release]
    older: str | None
    first_page: bool
    changes: list[EventInWords]
    key_names: Mapping[str, str]
    steady: str | None
    rule: str = burn_down.RULE


def _view(records: Records, name: str, after: str | None) -> View:
    described = records.store.get(name)
    now = datetime.now(UTC)
    (summary,) = summarise(records, now, only=name)
    history = History(records.database)
    releases = history.releases(knowledge_base=name, after=after, limit=_RELEASES + 1)
    names = {key.id: key.name for key in records.keys.list()}
    return View(
        described=described,
        summary=summary,
        plans=[_plan(signed) for signed in reversed(records.ledger.budgets.plans(name))],
        spending=_spending(name, history, now.date()),
        refusals=records.ledger.refusals(name),
        releases=releases[:_RELEASES],
        older=releases[_RELEASES - 1].id if len(releases) > _RELEASES else None,
        first_page=after is None,
        changes=[
            in_words(event, names)
            for event in records.audit.events(kinds=_KINDS, knowledge_base=name, limit=_CHANGES, newest_first=True)
        ],
        key_names=names,
        steady=_steady(records, name),
    )


def _steady(records: Records, name: str) -> str | None:
    """What the newest plan would give if it was signed for ever on cohorts like the newest; None if it cannot be."""
    signed = [read_signed(one.document) for one in records.ledger.budgets.plans(name)]
    answering = [one for one in signed if {task.mechanism.type for task in one.plan.tasks.values()} != {"rehearsal"}]
    if not answering:
        return None
    newest = records.ledger.budgets.status(name).cohorts[-1]
    plan, retain = answering[-1].plan, len(answering[-1].cohorts)
    try:
        state = steady_state(plan, retain, MONTHS, newest.epsilon, newest.delta)
    except PlanError:
        return None
    return state.in_words


def _plan(signed: SignedPlan) -> PlanView:
    calibrated = read_signed(signed.document)
    return PlanView(signed, preview(calibrated), calibrated.plan.model_dump_json(indent=2, exclude_defaults=True))


def _spending(name: str, history: History, today: date) -> Chart | None:
    """Answers charged on each of the last days, by task."""
    first = today - timedelta(days=_DAYS - 1)
    since = datetime(first.year, first.month, first.day, tzinfo=UTC)
    spent = history.charges_per_day(knowledge_base=name, since=since)
    if not spent:
        return None
    days = [first + timedelta(days=i) for i in range(_DAYS)]
    series = _by_task(spent, days)
    highest = max(sum(heights[i] for _, heights in series) for i in range(_DAYS))
    total = sum(day.answers for day in spent)
    return bar_chart(
        f"Answers charged in the last {_DAYS} days",
        f"{total:,} answers were charged in the last {_DAYS} days, at most {highest:,} on a day.",
        "day (UTC)",
        [f"{day.day} {day:%b}" for day in days],
        [(task.removeprefix(f"{name}."), heights) for task, heights in series],
        counting("answers", max(highest, 4), words=number),
    )


def _by_task(spent: list[Day], days: list[date]) -> list[tuple[str, list[int]]]:
    """Counts by task, the busiest first; those beyond what can be told apart are added up."""
    counts: dict[str, list[int]] = {}
    for day in spent:
        counts.setdefault(day.task, [0] * len(days))[days.index(day.day)] += day.answers
    ordered = sorted(counts.items(), key=lambda pair: -sum(pair[1]))
    if len(ordered) <= STYLES:
        return ordered
    rest = [sum(column) for column in zip(*(heights for _, heights in ordered[STYLES - 1 :]), strict=True)]
    return [*ordered[: STYLES - 1], ("all others", rest)]
