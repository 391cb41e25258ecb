"""Rehearsing a plan before it is signed: what that takes for good, and the form that starts it."""

from __future__ import annotations

from pydantic import ValidationError
from starlette.responses import Response

from service.commands import rehearsals
from service.commands.fields import problems
from service.commands.rehearsals import NewRehearsal, Offer
from service.dashboard.pages import Pages, Visit
from service.dashboard.plan_studio.desk import HOME, Desk, DraftPlan, open_desk, read_draft, studio
from service.plans.rehearsing import EPSILON
from service.refusals import REFUSALS

pages = Pages()


@pages.post(HOME + "/rehearse")
async def rehearse(visit: Visit) -> Response:
    """What rehearsing a task would take and say, and the form that starts it."""
    return await _rehearse(visit, start=False)


@pages.post(HOME + "/rehearse/start")
async def start(visit: Visit) -> Response:
    """Charge the rehearsal that was shown and start it; what it finds is shown among the plans."""
    return await _rehearse(visit, start=True)


async def _rehearse(visit: Visit, *, start: bool) -> Response:
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk)
    if draft.outcome is None:
        return await studio(visit, desk, draft, 200 if draft.computing else 422)
    offer = None
    try:
        offer = await rehearsals.offer.aside(visit.actor, draft.outcome.calibrated, visit.read(NewRehearsal))
        if not start:
            return _form(visit, desk, draft, offer)
        if visit.field("digest") != offer.calibrated.digest:
            problem = "Nothing was taken: this is not the rehearsal that was shown. It is this now."
            return _form(visit, desk, draft, offer, problem, 409)
        if visit.field("sure") != "yes":
            return _form(visit, desk, draft, offer, "Nothing was taken. Tick that the price is taken for good.")
        address = await rehearsals.start(visit.actor, visit.services.rehearsals, offer)
    except ValidationError as error:
        return _form(visit, desk, draft, None, " ".join(problems(error, NewRehearsal).values()))
    except REFUSALS as error:
        return _form(visit, desk, draft, offer, f"Nothing was taken: {error}.")
    done = f"{address} is charged, and running. What it finds is shown on this page when it ends."
    return visit.redirect(f"/knowledge-bases/{desk.described.name}/plans", done=done)


def _form(
    visit: Visit, desk: Desk, draft: DraftPlan, offer: Offer | None, problem: str | None = None, status: int = 422
) -> Response:
    return visit.page(
        "plan_rehearse.html",
        status if problem else 200,
        here="plans",
        desk=desk,
        draft=draft,
        task=visit.field("task"),
        epsilon=visit.field("epsilon") or f"{EPSILON:g}",
        offer=offer,
        problem=problem,
    )
