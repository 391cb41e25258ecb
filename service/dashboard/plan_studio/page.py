"""The plan studio: write a plan, see what it would give, try it on public examples. Nothing here spends anything."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from accounting.plan import load_plan
from service.commands import plans, trials
from service.commands.fields import FieldError
from service.commands.plans import Arriving
from service.commands.trials import Trying
from service.dashboard.computing import Computations
from service.dashboard.pages import Pages, Visit, whole
from service.dashboard.plan_studio.charts import over_answers, over_epsilon
from service.dashboard.plan_studio.desk import HOME, Desk, compute, open_desk, studio
from service.dashboard.plan_studio.drafts import chosen, signed_text, starting_text
from service.plans.alternatives import alternatives
from service.plans.steady import SteadyPreview
from service.sources.typed import read_fields, read_lines
from service.trials.trials import Trial

pages = Pages()

_WAIT_S = 20.0
_steady = Computations("steady state", kept=20)


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
        desk.text = starting_text(desk.described, desk.status.tightest, chosen(visit.request.query_params))
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
        calibrated = desk.outcome.calibrated

        def vary() -> dict[str, Any]:
            drawn = [chart for chart in (over_epsilon(calibrated), over_answers(calibrated)) if chart]
            return {"alternatives": alternatives(calibrated.plan, calibrated.public_size), "curves": drawn}

        varied = await compute(visit, ("otherwise", calibrated.digest), vary)
    return await _part(visit, "plan_curves.html", desk, otherwise=varied)


@pages.post(HOME + "/steady")
async def keep_arriving(visit: Visit) -> Response:
    """What the plan would give for ever, if people keep arriving."""
    desk, steady = await open_desk(visit), None
    with visit.refusals():
        steady = await _preview_steadily(visit, desk)
    return await _part(visit, "plan_steady.html", desk, steady=steady)


@pages.post(HOME + "/try")
async def try_it(visit: Visit) -> Response:
    """One query on public examples: nothing is charged, and nothing private is read."""
    desk, trial = await open_desk(visit, patiently=True), None
    with visit.refusals():
        trial = await _try(visit, desk)
    return await _part(visit, "plan_trial.html", desk, trial=trial)


async def _part(visit: Visit, template: str, desk: Desk, **context: Any) -> Response:
    """For htmx the part of the page that changed, else all of it."""
    if visit.is_htmx:
        return visit.page(template, desk=desk, **context)
    return await studio(visit, desk, **context)


async def _preview_steadily(visit: Visit, desk: Desk) -> SteadyPreview:
    """By the form: the plan, new people a month, and months from one cohort to the next."""
    plan, arriving = load_plan(desk.text), visit.read(Arriving)
    steady = await _steady.result(
        visit.session.by,
        f"{desk.status.cohorts[-1]} {arriving} {plan.model_dump_json()}",
        lambda: plans.steady(visit.actor, visit.services.records, plan, arriving),
        _WAIT_S,
        insist=True,
    )
    if steady is None:
        raise FieldError("plan", "this is still being computed. Ask again in a moment")
    return steady


async def _try(visit: Visit, desk: Desk) -> Trial:
    """The form's query on its examples: JSON Lines, or CSV with a header."""
    if desk.outcome is None:
        raise FieldError("plan", "it must be computed, without a problem, before it can be tried")
    calibrated, described = desk.outcome.calibrated, desk.described
    if not (rows := visit.field("trial_rows")):
        raise FieldError("examples", "paste one at least")
    try:
        table = not rows.startswith("{")
        exemplars = list(read_lines(rows.splitlines(keepends=True), "the examples", table=table))
    except ValueError as error:
        raise FieldError("examples", str(error)) from error
    trying = visit.read(Trying, query=read_fields(visit.field("trial_query")), exemplars=exemplars)
    task = visit.field("trial_task") or next(iter(calibrated.plan.tasks))
    if task not in calibrated.plan.tasks:
        raise FieldError("task", f"the plan has no task {task!r}")
    fields = described.embedded_field, described.response_field
    return await trials.try_(visit.actor, visit.services.trials, calibrated, task, trying, *fields)
