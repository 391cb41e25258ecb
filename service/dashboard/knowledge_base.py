"""A knowledge base's pages: its budget, plans, usage, releases, exemplars and settings."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from accounting.ledger.budgets import SignedPlan
from accounting.ledger.errors import KnowledgeBaseArchivedError
from accounting.ledger.events import (
    CohortClosed,
    CohortOpened,
    ExemplarsIngested,
    KnowledgeBaseArchived,
    RemoteEngineChanged,
    UnitForgotten,
)
from accounting.ledger.history import History
from accounting.plan import PlanError
from exemplar_store import UnknownUnitError
from service.commands import exemplars as exemplar_commands
from service.commands import knowledge_bases
from service.commands.command import Confirmation, UnconfirmedError
from service.commands.knowledge_bases import KnowledgeBaseChange
from service.dashboard.audit_words import in_words, told_apart
from service.dashboard.overview import summarise
from service.dashboard.pages import Pages, Visit
from service.dashboard.usage import charged_by_day, first_day, totals
from service.plans.budget_report import GroupBudget
from service.plans.forecast import RULE
from service.plans.preview import PlanPreview, preview
from service.plans.proposals import Proposal, may_approve, open_proposals
from service.plans.steady import MONTHS, steady_state
from service.records.api_keys import called
from service.records.records import Records
from service.records.roles import Right
from service.records.signed import read_signed

pages = Pages()

HOME = "/knowledge-bases/{name}"

_RELEASES = 12
_CHANGES = 12
_CHANGED = (
    ExemplarsIngested,
    UnitForgotten,
    CohortOpened,
    CohortClosed,
    KnowledgeBaseArchived,
    RemoteEngineChanged,
)
_KINDS = [kind.kind for kind in _CHANGED]


@pages.get(HOME, needs=Right.BROWSE)
async def budget(visit: Visit) -> Response:
    """What is promised, used and free, and how long the answers last."""
    records = visit.services.records
    described = await asyncio.to_thread(records.store.get, name_of(visit))
    (summary,) = await asyncio.to_thread(summarise, records, datetime.now(UTC), described.name)
    steady = await asyncio.to_thread(_steady, records, described.name)
    group = summary.budget.group
    shared = None if group is None else GroupBudget.of(await asyncio.to_thread(records.ledger.groups.status, group))
    return await tab(visit, "budget", summary=summary, group=shared, steady=steady, rule=RULE)


@pages.get(HOME + "/plans", needs=Right.BROWSE)
@pages.get(HOME + "/plans/{version:number}", needs=Right.BROWSE)
async def plans(visit: Visit) -> Response:
    """A signed plan and what it gives; the newest unless the address names one."""
    records, name = visit.services.records, name_of(visit)
    await asyncio.to_thread(records.store.get, name)
    signed = await asyncio.to_thread(records.ledger.budgets.plans, name)
    version = visit.request.path_params.get("version", signed[-1].version if signed else None)
    plan = None if version is None else await asyncio.to_thread(records.ledger.budgets.plan, name, version)
    (summary,) = await asyncio.to_thread(summarise, records, datetime.now(UTC), name)
    return await tab(
        visit,
        "plans",
        summary=summary,
        plan=plan and _plan(plan),
        signed_by=plan and called(plan.signed_by, await asyncio.to_thread(_key_names, visit)),
        versions=[listed.version for listed in reversed(signed)],
        latencies={latency.task: latency for latency in visit.services.grains.report or () if not latency.problem},
        proposals=await asyncio.to_thread(_proposals, visit) if visit.decides else [],
    )


@pages.get(HOME + "/usage", needs=Right.BROWSE)
async def usage(visit: Visit) -> Response:
    """Answers charged over time by task or by key, fallbacks, and questions refused without a charge."""
    records, name = visit.services.records, name_of(visit)
    today, history = datetime.now(UTC).date(), History(records.database)
    spent = await asyncio.to_thread(history.usage, knowledge_base=name, since=first_day(today))
    names = told_apart(await asyncio.to_thread(_key_names, visit))
    by = "key" if visit.request.query_params.get("by") == "key" else "task"
    named = (lambda use: names.get(use.key_id, use.key_id)) if by == "key" else (lambda use: use.task.split(".")[-1])
    return await tab(
        visit,
        "usage",
        by=by,
        charged=charged_by_day(spent, named, today),
        totals=totals(spent, names),
        fallbacks=await asyncio.to_thread(history.fallbacks, knowledge_base=name),
        refusals=await asyncio.to_thread(records.ledger.refusals, name),
        key_names=names,
    )


@pages.get(HOME + "/releases", needs=Right.AUDIT)
async def releases(visit: Visit) -> Response:
    """Answers that left, newest first."""
    records, name = visit.services.records, name_of(visit)
    after = visit.request.query_params.get("after")
    history = History(records.database)
    listed = await asyncio.to_thread(history.releases, knowledge_base=name, after=after, limit=_RELEASES + 1)
    older = listed[_RELEASES - 1].id if len(listed) > _RELEASES else None
    return await tab(visit, "releases", releases=listed[:_RELEASES], older=older, first_page=after is None)


@pages.get(HOME + "/exemplars", needs=Right.AUDIT)
async def exemplars(visit: Visit) -> Response:
    """Files are uploaded here; what is stored is never shown, only what was done."""
    return await show_exemplars(visit)


@pages.post(HOME + "/forget")
async def forget(visit: Visit) -> Response:
    """Delete a unit, once the admin has confirmed; neither the answer nor the audit trail says which."""
    name, unit = name_of(visit), visit.field("unit")
    if not unit or visit.field("sure") != "yes":
        problem = "Enter the unit’s id, and tick the box. Nothing was deleted."
        return await show_exemplars(visit, 422, forget_problem=problem)
    try:
        await exemplar_commands.forget.aside(visit.actor, visit.services.records, name, unit)
    except UnknownUnitError as error:
        return await show_exemplars(visit, 404, forget_problem=str(error))
    done = "The unit’s exemplars are deleted. Answers that were released stay: the guarantee covers them."
    return visit.redirect(f"{HOME.format(name=name)}/exemplars", done=done)


async def show_exemplars(
    visit: Visit, status: int = 200, upload_problem: str | None = None, forget_problem: str | None = None
) -> Response:
    """Render that page.

    Args:
        visit: whose path names the knowledge base.
        status: of the answer.
        upload_problem: why an upload was refused.
        forget_problem: why no unit was deleted.
    """
    records, name = visit.services.records, name_of(visit)
    events = await asyncio.to_thread(
        lambda: records.audit.events(kinds=_KINDS, knowledge_base=name, limit=_CHANGES, newest_first=True)
    )
    names = await asyncio.to_thread(_key_names, visit)
    changes = [in_words(event, names) for event in events]
    return await tab(
        visit, "exemplars", status, changes=changes, upload_problem=upload_problem, forget_problem=forget_problem
    )


@pages.get(HOME + "/settings", needs=Right.BROWSE)
async def settings(visit: Visit) -> Response:
    """How it was created, and its end."""
    return await tab(visit, "settings", archive_problem=None)


@pages.post(HOME + "/remote-engine")
async def change_remote_engine(visit: Visit) -> Response:
    """Allow or forbid an engine outside the deployment."""
    name = name_of(visit)
    wanted = KnowledgeBaseChange(remote_engine=visit.field("remote_engine") == "yes")
    await knowledge_bases.change.aside(visit.actor, visit.services.records, name, wanted)
    done = (
        "From the next query on, exemplars may be shown to"
        if wanted.remote_engine
        else "From the next query on, no exemplar goes to"
    )
    return visit.redirect(f"{HOME.format(name=name)}/settings", done=f"{done} an engine outside this deployment.")


@pages.post(HOME + "/archive")
async def archive(visit: Visit) -> Response:
    """Take nothing new any more, once its name is typed."""
    name = name_of(visit)
    confirmed = {Confirmation.FOR_EVER} if visit.field("name") == name else ()
    try:
        await knowledge_bases.archive.aside(visit.actor, visit.services.records, name, confirmed)
    except UnconfirmedError:
        problem = f"Nothing was done. To archive it, write its name, {name}, exactly."
        return await tab(visit, "settings", 422, archive_problem=problem)
    except KnowledgeBaseArchivedError as error:
        return await tab(visit, "settings", 409, archive_problem=f"{error}.")
    return visit.redirect(HOME.format(name=name), done=f"“{name}” is archived. Its ledger and audit trail stay.")


async def tab(visit: Visit, name: str, status: int = 200, **context: Any) -> Response:
    """One of the pages, with what all of them show.

    Args:
        visit: whose path names the knowledge base.
        name: of its template.
        status: of the answer.
        context: what this page shows.
    """
    described = await knowledge_bases.describe.aside(visit.actor, visit.services.records, name_of(visit))
    return visit.page(f"knowledge_base/{name}.html", status, here="overview", tab=name, kb=described, **context)


def name_of(visit: Visit) -> str:
    """The knowledge base that the address names."""
    name: str = visit.request.path_params["name"]
    return name


def _key_names(visit: Visit) -> dict[str, str]:
    """Names of keys by id. Who does not audit sees ids, as in the metrics: a key's name is often a person's."""
    return visit.services.records.keys.names() if visit.audits else {}


@dataclass(frozen=True)
class PlanView:
    """A signed plan and what it gives."""

    signed: SignedPlan
    preview: PlanPreview
    document: str


def _proposals(visit: Visit) -> list[tuple[Proposal, str, PlanPreview, bool]]:
    """Plans to approve, each with its proposer's name, what it gives, and whether the visitor may."""
    records, names = visit.services.records, _key_names(visit)
    return [
        (
            proposal,
            called(proposal.proposed_by, names),
            preview(proposal.calibrated),
            may_approve(records, proposal, visit.session.by),
        )
        for proposal in open_proposals(records, name_of(visit))
    ]


def _steady(records: Records, name: str) -> str | None:
    """What the newest plan would give if it was signed for ever on cohorts like the newest; None if it cannot be."""
    signed = [read_signed(row.document) for row in records.ledger.budgets.plans(name)]
    answering = [
        calibrated for calibrated in signed if any(task.mechanism.asked for task in calibrated.plan.tasks.values())
    ]
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
