"""The plan studio: write a plan, see what it would give, try it on public examples. Nothing here spends anything."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from starlette.responses import Response

from service.dashboard.pages import Pages, Visit
from service.dashboard.plan_studio.desk import HOME, DraftPlan, open_desk, read_draft, shown, studio, vary
from service.dashboard.plan_studio.drafts import chosen, signed_text, starting_text
from service.dashboard.plan_studio.steady import lasting
from service.dashboard.plan_studio.trials import Attempt, attempt

pages = Pages()


@pages.get("/plans")
async def choose(visit: Visit) -> Response:
    """Which knowledge base the plan is for."""
    if name := visit.request.query_params.get("knowledge_base"):
        return visit.redirect(HOME.format(name=quote(name, safe="")))
    budgets = await asyncio.to_thread(visit.services.records.ledger.budgets.statuses)
    return visit.page("plan_choose.html", here="plans", budgets=budgets)


@pages.get(HOME)
async def write(visit: Visit) -> Response:
    """A plan to start from: made for the knowledge base, or one signed before."""
    desk = await open_desk(visit)
    query = visit.request.query_params
    choices = chosen(query)
    version = query.get("from", "")
    if version.isascii() and version.isdigit():
        signed = await asyncio.to_thread(
            visit.services.records.ledger.budgets.plan, desk.described.name, int(version[:9])
        )
        text = await asyncio.to_thread(signed_text, signed.document)
    else:
        text = starting_text(desk.described, desk.status.tightest, choices)
    return await studio(visit, desk, DraftPlan(text), choices=choices)


@pages.post(HOME)
async def see(visit: Visit) -> Response:
    """What the plan as written would give; htmx gets the part of the page that says so, and asks again by itself."""
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk)
    if visit.is_htmx:
        return visit.page("plan_preview.html", **await shown(visit, desk, draft))
    return await studio(visit, desk, draft)


@pages.post(HOME + "/curves")
async def curves(visit: Visit) -> Response:
    """What the same budget would give otherwise, and what more or less ε, and more or fewer answers, would give."""
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk)
    varied = await vary(visit, draft.outcome) if draft.outcome else None
    if visit.is_htmx:
        return visit.page("plan_curves.html", desk=desk, draft=draft, otherwise=varied)
    return await studio(visit, desk, draft, otherwise=varied)


@pages.post(HOME + "/steady")
async def steady(visit: Visit) -> Response:
    """What the plan would give for ever, if people keep arriving."""
    desk = await open_desk(visit)
    state = await lasting(visit, desk)
    if visit.is_htmx:
        return visit.page("plan_steady.html", lasting=state)
    return await studio(visit, desk, await read_draft(visit, desk), lasting=state)


@pages.post(HOME + "/try")
async def try_it(visit: Visit) -> Response:
    """One query on public examples: nothing is charged, and nothing private is read."""
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk, patiently=True)
    if draft.outcome is None:
        tried = Attempt(problem="The plan must be computed, without a problem, before it can be tried.")
    else:
        tried = await attempt(visit, draft.outcome.calibrated, desk.described)
    if visit.is_htmx:
        return visit.page("plan_trial.html", tried=tried)
    return await studio(visit, desk, draft, tried=tried)
