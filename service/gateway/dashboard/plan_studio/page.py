"""The plan studio: write a plan, see what it would give, try it and sign it."""

import asyncio
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from accounting.plans.plan import PlanError
from service.answering.once.making import NotMadeError
from service.answering.plans.alternatives import alternatives
from service.answering.plans.proposals import proposals
from service.answering.plans.signing import check_finished
from service.answering.trials.trials import Trial
from service.gateway.dashboard.pages import Pages, Visit, whole
from service.gateway.dashboard.plan_studio.charts import over_answers, over_epsilon
from service.gateway.dashboard.plan_studio.desk import HOME, Desk, Outcome, compute, located, open_desk, studio
from service.gateway.dashboard.plan_studio.drafts import chosen, signed_text, starting_text
from service.operations import plans, trials
from service.operations.fields import FieldError
from service.operations.trials import Trying
from service.records.engine_record import last_engine
from service.sources.typed import read_fields, read_rows

pages = Pages()

_PLANS = "/knowledge-bases/{name}/plans"


@pages.get("/plans")
async def choose(visit: Visit) -> Response:
    """Which knowledge base the plan is for."""
    if name := visit.asked("knowledge_base"):
        return visit.redirect(HOME.format(name=quote(name, safe="")))
    budgets = await asyncio.to_thread(visit.services.records.ledger.budgets.statuses)
    return visit.page("plan_choose.html", here="plans", budgets=budgets)


@pages.get(HOME)
async def write(visit: Visit) -> Response:
    """A plan to start from: made for the knowledge base, or one signed before."""
    desk, budgets = await open_desk(visit), visit.services.records.ledger.budgets
    if (version := whole(visit.asked("from"))) is not None:
        signed = await asyncio.to_thread(budgets.plan, desk.described.name, version)
        desk.text = await asyncio.to_thread(signed_text, signed.document)
    else:
        engine = await asyncio.to_thread(last_engine, visit.services.records.database)
        desk.text = starting_text(desk.described, desk.status.tightest, chosen(visit.request.query_params), engine)
    return await studio(visit, desk)


@pages.post(HOME)
async def see(visit: Visit) -> Response:
    """What the plan as written would give; htmx gets the part of the page that says so, and asks again by itself."""
    return await _part(visit, "plan_preview.html", await open_desk(visit))


@pages.post(HOME + "/curves")
async def curves(visit: Visit) -> Response:
    """What the same budget would give otherwise, and what more or less ε, and more or fewer answers, would give."""
    desk, varied = await open_desk(visit), None
    if desk.outcome is not None:
        calibrated, engine = desk.outcome.calibrated, desk.outcome.offer.engine
        embeds, language_model = desk.described.embedding_dimension != 0, engine.is_llm if engine else None

        def vary() -> dict[str, Any]:
            drawn = [chart for chart in (over_epsilon(calibrated), over_answers(calibrated)) if chart]
            return {
                "proposals": proposals(calibrated, embeds=embeds, language_model=language_model),
                "alternatives": alternatives(calibrated.plan, calibrated.public_size),
                "curves": drawn,
            }

        varied = await compute(visit, ("otherwise", calibrated.digest), vary)
    return await _part(visit, "plan_curves.html", desk, otherwise=varied)


@pages.post(HOME + "/try")
async def try_it(visit: Visit) -> Response:
    """One query on public examples: nothing is charged, and nothing private is read."""
    desk, trial = await open_desk(visit, patiently=True), None
    with visit.refusals():
        trial = await _try(visit, desk)
    return await _part(visit, "plan_trial.html", desk, trial=trial)


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
            plans.sign,
            outcome.calibrated,
            visit.confirmed,
            after_version=after,
            again=whole(visit.field("again")),
            make=services.make,
        )
    except NotMadeError as error:
        raise FieldError("made", str(error)) from error  # which says whether it is signed
    assert result.signed is not None  # noqa: S101  (not a dry run)
    return f"Plan {result.signed.version} is signed. From now on it answers at {', '.join(result.signed.tasks)}."


async def _part(visit: Visit, template: str, desk: Desk, **context: Any) -> Response:
    """For htmx the part of the page that changed, else all of it."""
    if visit.is_htmx:
        return visit.page(template, desk=desk, **context)
    return await studio(visit, desk, **context)


async def _try(visit: Visit, desk: Desk) -> Trial:
    """The form's query on its examples: JSON Lines, or CSV with a header."""
    if desk.outcome is None:
        raise FieldError("plan", "it must be computed, without a problem, before it can be tried")
    calibrated, described = desk.outcome.calibrated, desk.described
    if not (rows := visit.field("trial_rows")):
        raise FieldError("examples", "paste one at least")
    try:
        exemplars = read_rows(rows)
    except ValueError as error:
        raise FieldError("examples", str(error)) from error
    trying = visit.read(Trying, query=read_fields(visit.field("trial_query")), exemplars=exemplars)
    task = visit.field("trial_task") or next(iter(calibrated.plan.tasks))
    if task not in calibrated.plan.tasks:
        raise FieldError("task", f"the plan has no task {task!r}")
    fields = described.embedded_field, described.response_field
    return await trials.try_(visit.actor, visit.services.trials, calibrated, task, trying, *fields)
