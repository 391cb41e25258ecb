"""Signing a plan, or rehearsing it before: what that takes for ever, in words, and the forms that do it, once."""

from __future__ import annotations

from starlette.responses import Response

from accounting.plan import PlanError
from service.commands import plans, rehearsals
from service.commands.fields import FieldError
from service.commands.rehearsals import NewRehearsal
from service.dashboard.pages import Pages, Visit, sentence, whole
from service.dashboard.plan_studio.desk import HOME, Desk, Outcome, open_desk, studio
from service.dashboard.plan_studio.problems import located
from service.pipeline.making import NotMadeError
from service.plans.rehearsing import EPSILON
from service.plans.signing import check_finished

pages = Pages()

_PLANS = "/knowledge-bases/{name}/plans"


@pages.post(HOME + "/confirm")
async def confirm(visit: Visit) -> Response:
    """What signing would do for ever, and the form that does it."""
    desk = await open_desk(visit)
    if desk.outcome is not None:
        try:
            check_finished(desk.outcome.calibrated.plan)
        except PlanError as error:
            desk.problems = located(error.problems, desk.text)
        if desk.outcome.offer.exceeds:
            visit.status = 422
        elif not desk.problems:
            return visit.page("plan_sign.html", here="plans", desk=desk)
    return await studio(visit, desk)


@pages.post(HOME + "/sign")
async def sign(visit: Visit) -> Response:
    """Sign what was shown: it must come out the same, and follow the same plan, as on the page before."""
    desk = await open_desk(visit)
    if desk.outcome is None:
        return await studio(visit, desk)
    with visit.refusals():
        done = await _sign(visit, desk, desk.outcome)
        return visit.redirect(_PLANS.format(name=desk.described.name), done=done)
    desk = await open_desk(visit, patiently=True)
    return await studio(visit, desk) if desk.outcome is None else visit.page("plan_sign.html", here="plans", desk=desk)


async def _sign(visit: Visit, desk: Desk, outcome: Outcome) -> str:
    name, services, after = desk.described.name, visit.services, whole(visit.field("after"))
    if visit.field("digest") != outcome.calibrated.digest or after is None:
        raise FieldError("digest", "the plan is not the one that was shown. This is it now")
    if visit.field("name") != name:
        raise FieldError("name", f"to sign, write the knowledge base’s name, {name}, exactly")
    try:
        result = await visit.do(
            plans.sign, outcome.calibrated, visit.confirmed, after_version=after, make=services.make
        )
    except NotMadeError as error:
        raise FieldError("made", str(error)) from error  # which says whether it is signed
    if result.signed is None:
        return "The plan is proposed. Its budget is taken when somebody else approves it, on this page."
    return f"Plan {result.signed.version} is signed. From now on it answers at {', '.join(result.signed.tasks)}."


@pages.post("/knowledge-bases/{name}/proposals/{proposal}/approve")
async def approve(visit: Visit) -> Response:
    """Sign what somebody else proposed."""
    name, services = visit.path("name"), visit.services
    home = _PLANS.format(name=name)
    with visit.refusals():
        signed = await visit.do(plans.approve, name, visit.path("proposal"), make=services.make)
        return visit.redirect(home, done=f"Plan {signed.version} is approved and signed.")
    return visit.redirect(home, refused=sentence(visit.refused))


@pages.post(HOME + "/rehearse")
@pages.post(HOME + "/rehearse/start")
async def rehearse(visit: Visit) -> Response:
    """What rehearsing a task would take and say, and the form that starts it."""
    desk, offer = await open_desk(visit), None
    if desk.outcome is None:
        return await studio(visit, desk)
    with visit.refusals():
        offer = await rehearsals.offer.aside(visit.actor, desk.outcome.calibrated, visit.read(NewRehearsal))
        if visit.request.url.path.endswith("/start"):
            if visit.field("digest") != offer.calibrated.digest:
                raise FieldError("digest", "this is not the rehearsal that was shown. It is this now")
            if visit.field("sure") != "yes":
                raise FieldError("sure", "tick that the price is taken for good")
            address = await rehearsals.start(visit.actor, visit.services.rehearsals, offer)
            done = f"{address} is charged, and running. What it finds is shown on this page when it ends."
            return visit.redirect(_PLANS.format(name=desk.described.name), done=done)
    return visit.page("plan_rehearse.html", here="plans", desk=desk, offer=offer, usual=EPSILON)
