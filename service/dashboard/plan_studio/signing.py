"""Signing a plan: what it does for ever, in words, and the form that does it, once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from starlette.responses import Response

from accounting.ledger.errors import BudgetExceededError, CohortError, PlansChangedError
from accounting.plan import CalibratedPlan, PlanError
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
from service.plans.proposals import SamePersonError, UnknownProposalError, approve, propose
from service.plans.signing import WorseThanFreeError, check_finished, check_worth, sign
from service.private_threads import privately
from service.services import Services

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
async def sign_(visit: Visit) -> Response:
    """Sign what was shown, once: it must come out the same, and follow the same plan, as on the page before."""
    desk = await open_desk(visit)
    draft = await read_draft(visit, desk)
    if draft.outcome is None:
        return await studio(visit, desk, draft, 200 if draft.computing else 422)
    name, calibrated = desk.described.name, draft.outcome.calibrated
    after = visit.field("after")
    if visit.field("digest") != calibrated.digest or not (after.isascii() and after.isdigit() and len(after) < 10):
        problem = "Nothing was signed: the plan is not the one that was shown. This is it now."
        return await _confirmation(visit, desk, draft, draft.outcome, 409, problem)
    if visit.field("name") != name:
        problem = f"Nothing was signed. To sign, write the knowledge base’s name, {name}, exactly."
        return await _confirmation(visit, desk, draft, draft.outcome, 422, problem)
    try:
        check_worth(draft.outcome.preview, accepted=visit.field("accept_worse_than_free") == "yes")
    except WorseThanFreeError:
        problem = "Nothing was signed. To sign a plan that is hardly worth its price, tick that you do so all the same."
        return await _confirmation(visit, desk, draft, draft.outcome, 422, problem)
    if visit.services.records.settings.two_person_signing:
        try:
            await asyncio.to_thread(
                propose, visit.services.records, calibrated, visit.session.by, after_version=int(after)
            )
        except (PlansChangedError, BudgetExceededError, CohortError, PlanError) as error:
            problem = f"Nothing was proposed: {error}."
            return await _confirmation(visit, await open_desk(visit), draft, draft.outcome, 409, problem)
        done = "The plan is proposed. Its budget is taken when somebody else approves it, on this page."
        return visit.redirect(f"/knowledge-bases/{name}/plans", done=done)
    try:
        version = await privately(partial(_sign_once, visit.services, calibrated, visit.session.by, int(after)))
    except NotMadeError as error:
        return await _confirmation(visit, await open_desk(visit), draft, draft.outcome, 409, f"{error}.")
    except (PlansChangedError, BudgetExceededError, CohortError, PlanError) as error:
        problem = f"Nothing was signed: {error}."
        return await _confirmation(visit, await open_desk(visit), draft, draft.outcome, 409, problem)
    tasks = ", ".join(f"{name}.{task}" for task in calibrated.plan.tasks)
    return visit.redirect(
        f"/knowledge-bases/{name}/plans", done=f"Plan {version} is signed. From now on it answers at {tasks}."
    )


@pages.post("/knowledge-bases/{name}/proposals/{proposal}/approve")
async def approve_(visit: Visit) -> Response:
    """Sign what somebody else proposed."""
    name, proposal = visit.request.path_params["name"], visit.request.path_params["proposal"]
    plans = f"/knowledge-bases/{name}/plans"
    services, me = visit.services, visit.session
    work = partial(approve, services.records, name, proposal, me.by, make=services.make)
    try:
        version = (await privately(work)).version
    except (
        UnknownProposalError,
        SamePersonError,
        NotMadeError,
        BudgetExceededError,
        CohortError,
        PlanError,
    ) as error:
        return visit.redirect(plans, refused=f"{str(error)[:1].upper()}{str(error)[1:]}.")
    return visit.redirect(plans, done=f"Plan {version} is approved and signed.")


def _sign_once(services: Services, calibrated: CalibratedPlan, signed_by: str, after: int) -> int:
    """The version under which the plan is signed, by this form or by the same one sent before."""
    try:
        return sign(services.records, calibrated, signed_by, after_version=after, make=services.make).version
    except PlansChangedError:
        name = calibrated.plan.knowledge_base
        plans = {plan.version: plan for plan in services.records.ledger.budgets.plans(name)}
        if (twin := plans.get(after + 1)) is not None and twin.digest == calibrated.digest:
            return twin.version
        raise


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
