"""Signing a plan: what it does for ever, in words, and the form that does it, once."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from accounting.plan import PlanError
from service.commands import plans
from service.commands.command import UnconfirmedError
from service.dashboard.pages import Pages, Visit
from service.dashboard.plan_studio.desk import (
    HOME,
    Desk,
    DraftPlan,
    PlanOutcome,
    open_desk,
    price_of,
    read_draft,
    studio,
)
from service.dashboard.plan_studio.problems import located
from service.pipeline.making import NotMadeError
from service.plans.signing import check_finished
from service.refusals import REFUSALS

pages = Pages()


@pages.post(HOME + "/confirm")
async def confirm(visit: Visit) -> Response:
    """What signing would do for ever, and the form that does it."""
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk)
    if draft.outcome is None or not price_of(desk, draft.outcome).fits:
        return await studio(visit, desk, draft, 200 if draft.computing else 422)
    try:
        check_finished(draft.outcome.calibrated.plan)
    except PlanError as error:
        return await studio(visit, desk, replace(draft, problems=located(error.problems, draft.text)), 422)
    return await _confirmation(visit, desk, draft, draft.outcome)


@pages.post(HOME + "/sign")
async def sign(visit: Visit) -> Response:
    """Sign what was shown: it must come out the same, and follow the same plan, as on the page before."""
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk)
    if draft.outcome is None:
        return await studio(visit, desk, draft, 200 if draft.computing else 422)
    name, outcome, services, after = desk.described.name, draft.outcome, visit.services, visit.field("after")

    async def again(problem: str, status: int = 409) -> Response:
        return await _confirmation(visit, await open_desk(visit), draft, outcome, status, problem)

    if visit.field("digest") != outcome.calibrated.digest or not (
        after.isascii() and after.isdigit() and len(after) < 10
    ):
        return await again("Nothing was signed: the plan is not the one that was shown. This is it now.")
    if visit.field("name") != name:
        return await again(f"Nothing was signed. To sign, write the knowledge base’s name, {name}, exactly.", 422)
    signing = plans.sign.aside(
        visit.actor, services.records, outcome.calibrated, visit.confirmed, after_version=int(after), make=services.make
    )
    try:
        result = await signing
    except UnconfirmedError:
        doubt = "To sign a plan that is hardly worth its price, tick that you do so all the same."
        return await again(f"Nothing was signed. {doubt}", 422)
    except NotMadeError as error:  # which says whether it is signed
        return await again(f"{error}.")
    except REFUSALS as error:
        return await again(f"Nothing was signed: {error}.")
    if result.signed:
        done = f"Plan {result.signed.version} is signed. From now on it answers at {', '.join(result.signed.tasks)}."
    else:
        done = "The plan is proposed. Its budget is taken when somebody else approves it, on this page."
    return visit.redirect(f"/knowledge-bases/{name}/plans", done=done)


@pages.post("/knowledge-bases/{name}/proposals/{proposal}/approve")
async def approve(visit: Visit) -> Response:
    """Sign what somebody else proposed."""
    name, proposal = visit.request.path_params["name"], visit.request.path_params["proposal"]
    home, services = f"/knowledge-bases/{name}/plans", visit.services
    try:
        signed = await plans.approve.aside(visit.actor, services.records, name, proposal, make=services.make)
    except REFUSALS as error:
        return visit.redirect(home, refused=f"{str(error)[:1].upper()}{str(error)[1:]}.")
    return visit.redirect(home, done=f"Plan {signed.version} is approved and signed.")


async def _confirmation(
    visit: Visit, desk: Desk, draft: DraftPlan, outcome: PlanOutcome, status: int = 200, problem: str | None = None
) -> Response:
    return visit.page(
        "plan_sign.html",
        status,
        here="plans",
        desk=desk,
        draft=draft,
        outcome=outcome,
        price=price_of(desk, outcome),
        problem=problem,
    )
