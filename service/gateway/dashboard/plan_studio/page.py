"""The plan studio: write a plan, preview it, try it and sign it."""

from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from service.gateway.dashboard.files import named_columns, sent_file
from service.gateway.dashboard.pages import Pages, Visit, whole
from service.gateway.dashboard.plan_studio.approval import file_hash, plan_file, signature_in
from service.gateway.dashboard.plan_studio.charts import answers_chart, epsilon_chart
from service.gateway.dashboard.plan_studio.desk import HOME, compute, measured_rows, open_desk, part, studio
from service.gateway.dashboard.plan_studio.drafts import starting_text
from service.operations import budgets, plan_drafts, signed_plans, starting_plans
from service.operations.fields import FieldError
from service.operations.plan_drafts import Draft, Outcome
from service.operations.uploads import SentRows

pages = Pages()

_PLANS = "/knowledge-bases/{name}/plans"


@pages.get("/plans")
async def choose(visit: Visit) -> Response:
    """Choice of the plan's knowledge base."""
    if name := visit.asked("knowledge_base"):
        return visit.redirect(HOME.format(name=quote(name, safe="")))
    listed = await visit.do(budgets.read)
    return visit.page("plan_choose.html", here="plans", budgets=listed.knowledge_bases)


@pages.get(HOME)
async def write(visit: Visit) -> Response:
    """A few questions; then a plan to start from: made of their answers, or one signed before."""
    desk, name, asked = await open_desk(visit), visit.path("name"), visit.request.query_params
    if (version := whole(visit.asked("from"))) is not None:
        desk.text = await visit.do(signed_plans.text, name, version)
    elif starting_plans.has_choices(asked):
        with visit.refusals():
            desk.text = starting_text(await visit.do(starting_plans.begin, name, asked))
    return await studio(visit, desk)


@pages.post(HOME)
async def see(visit: Visit) -> Response:
    """Preview of the plan as written; htmx gets this part of the page, and asks again by itself."""
    return await _part(visit, "plan_preview.html", await open_desk(visit))


@pages.post(HOME + "/curves")
async def curves(visit: Visit) -> Response:
    """Other uses of the same budget, and curves over ε and over the number of answers."""
    desk, varied = await open_desk(visit), None
    if desk.outcome is not None:
        varied = await compute(visit, ("otherwise", desk.outcome.calibrated.digest), desk.vary)
    curves = []
    if varied is not None:
        curves += [epsilon_chart(varied.over_epsilon)] if varied.over_epsilon else []
        curves += [answers_chart(varied.over_answers)] if varied.over_answers else []
    return await _part(visit, "plan_curves.html", desk, otherwise=varied, curves=curves)


@pages.post(HOME + "/try")
async def try_it(visit: Visit) -> Response:
    """Try a task with one query on public exemplars: nothing is charged, and nothing private is read."""
    desk, trial = await open_desk(visit, patiently=True), None
    with visit.refusals():
        trial = await plan_drafts.try_(
            visit.actor,
            visit.services.trials,
            desk,
            task=visit.field("trial_task"),
            query=visit.field("trial_query"),
            rows=visit.field("trial_rows"),
        )
    return await _part(visit, "plan_trial.html", desk, trial=trial)


@pages.post(HOME + "/measure", uploads=True)
async def measure(visit: Visit) -> Response:
    """Measure the plan, and what is better at the same budget, on labelled rows, which are not kept."""
    desk, varied, measured, computing = await open_desk(visit, patiently=True), None, None, False
    with visit.refusals():
        file = await sent_file(visit, "choose one with labelled rows")
        if desk.outcome is None:
            raise FieldError("plan", "it must be computed, without a problem, before it can be measured")
        varied = await compute(visit, ("otherwise", desk.outcome.calibrated.digest), desk.vary)
        if varied is not None:
            measured = await measured_rows(
                visit,
                desk,
                varied,
                file,
                unit_id=visit.field("unit_id"),
                columns=named_columns(visit, desk.described.fields),
                reading=visit.read(SentRows),
            )
        computing = measured is None
    proposals = varied.proposals if varied else ()
    return await _part(visit, "plan_measured.html", desk, measured=measured, proposals=proposals, measuring=computing)


@pages.post(HOME + "/confirm")
async def confirm(visit: Visit) -> Response:
    """The irrevocable effects of signing, and the form that signs."""
    desk = await open_desk(visit)
    if desk.outcome is not None:
        desk.problems = desk.unfinished
        if desk.outcome.offer.exceeds:
            visit.status = 422
        elif not desk.problems:
            return _to_sign(visit, desk)
    return await studio(visit, desk)


@pages.post(HOME + "/file")
async def file(visit: Visit) -> Response:
    """The plan as written, as the file whose bytes a second person signs to approve it."""
    desk = await open_desk(visit)
    named = {"Content-Disposition": f'attachment; filename="{plan_file(desk)}"'}
    return Response(desk.text.encode(), media_type="application/yaml", headers=named)


@pages.post(HOME + "/sign")
async def sign(visit: Visit) -> Response:
    """Sign the plan that was shown: it must be the same, and follow the same newest plan, as on the page before."""
    desk = await open_desk(visit)
    if desk.outcome is None:
        return await studio(visit, desk)
    with visit.refusals():
        done = await _sign(visit, desk.outcome, desk.text)
        return visit.redirect(_PLANS.format(name=desk.described.name), done=done)
    desk = await open_desk(visit, patiently=True)
    return await studio(visit, desk) if desk.outcome is None else _to_sign(visit, desk)


def _to_sign(visit: Visit, desk: Draft) -> Response:
    return part(visit, "plan_sign.html", desk, file=plan_file(desk), hash=file_hash(desk))


async def _sign(visit: Visit, outcome: Outcome, text: str) -> str:
    signed = await visit.do(
        plan_drafts.sign,
        outcome,
        visit.confirmed,
        digest=visit.field("digest"),
        name=visit.field("name"),
        after_version=whole(visit.field("after")),
        again=whole(visit.field("again")),
        approved=(text, await signature_in(visit)),
        make=visit.services.make,
    )
    return f"Plan {signed.version} is signed. From now on it answers at {', '.join(signed.tasks)}."


async def _part(visit: Visit, template: str, desk: Draft, **context: Any) -> Response:
    """The part of the page that changed for htmx, else the whole page."""
    if visit.is_htmx:
        return part(visit, template, desk, **context)
    return await studio(visit, desk, **context)
