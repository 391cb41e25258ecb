"""Rehearsing a plan before it is signed: what that takes for good, and the form that starts it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.responses import Response

from accounting.ledger.errors import BudgetExceededError, CohortError
from accounting.plan import CalibratedPlan, PlanError, calibrate_plan
from service.dashboard.pages import Pages, Visit
from service.dashboard.plan_studio.desk import HOME, Desk, DraftPlan, open_desk, read_draft, studio
from service.engines.protocol import EngineUnavailableError
from service.pipeline.answering import BusyError, RemoteEngineForbiddenError
from service.pipeline.making import NotMadeError
from service.plans.preview import PlanPreview, preview
from service.plans.rehearsing import EPSILON, QUESTIONS, written
from service.plans.signing import TwoPersonsError

pages = Pages()


@pages.post(HOME + "/rehearse")
async def rehearse(visit: Visit) -> Response:
    """What rehearsing a task would take and say, and the form that starts it."""
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk)
    if draft.outcome is None:
        return await studio(visit, desk, draft, 200 if draft.computing else 422)
    try:
        offer = await asyncio.to_thread(_offer, visit, draft.outcome.calibrated)
    except PlanError as error:
        return _form(visit, desk, draft, None, f"{error}.")
    return _form(visit, desk, draft, offer)


@pages.post(HOME + "/rehearse/start")
async def start(visit: Visit) -> Response:
    """Charge the rehearsal that was shown and start it; what it finds is shown among the plans."""
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk)
    if draft.outcome is None:
        return await studio(visit, desk, draft, 200 if draft.computing else 422)
    offer = None
    try:
        offer = await asyncio.to_thread(_offer, visit, draft.outcome.calibrated)
        if visit.field("digest") != offer.calibrated.digest:
            problem = "Nothing was taken: this is not the rehearsal that was shown. It is this now."
            return _form(visit, desk, draft, offer, problem, 409)
        if visit.field("sure") != "yes":
            return _form(visit, desk, draft, offer, "Nothing was taken. Tick that the price is taken for good.")
        address = await visit.services.rehearsals.start(offer.calibrated, visit.session.by)
    except (
        PlanError,
        BudgetExceededError,
        CohortError,
        NotMadeError,
        TwoPersonsError,
        EngineUnavailableError,
        RemoteEngineForbiddenError,
        BusyError,
    ) as error:
        return _form(visit, desk, draft, offer, f"Nothing was taken: {error}.")
    done = f"{address} is charged, and running. What it finds is shown on this page when it ends."
    return visit.redirect(f"/knowledge-bases/{desk.described.name}/plans", done=done)


@dataclass(frozen=True)
class _Offer:
    calibrated: CalibratedPlan
    preview: PlanPreview


def _offer(visit: Visit, rehearsed: CalibratedPlan) -> _Offer:
    price = visit.field("epsilon") or str(EPSILON)
    try:
        epsilon = float(price)
    except ValueError:
        raise PlanError([f"ε: a number, not {price!r}"]) from None
    plan = written(rehearsed, visit.field("task"), epsilon, None, QUESTIONS)
    calibrated = calibrate_plan(plan, rehearsed.public_size)
    return _Offer(calibrated, preview(calibrated))


def _form(
    visit: Visit,
    desk: Desk,
    draft: DraftPlan,
    offer: _Offer | None,
    problem: str | None = None,
    status: int = 422,
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
