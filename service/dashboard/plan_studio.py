"""The plan studio: write a plan, see what it would give, try it on public examples, and sign it.

What a plan gives is computed by the functions behind ``dpicl plan preview``, beside the event loop, and kept by the
plan's content. Nothing is spent before the last form, which takes the knowledge base's name, written out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from accounting.accountants import AccountantsDisagreeError
from accounting.budgets import BudgetStatus, exact
from accounting.ledger import BudgetExceededError, PlansChangedError
from accounting.plan import CalibratedPlan, Plan, PlanError, calibrate_plan, load_plan
from exemplar_store import KnowledgeBase
from service.dashboard.charts import Chart
from service.dashboard.computing import Computations, ready
from service.dashboard.pages import Pages, Visit
from service.dashboard.plan_studio_charts import agreement, over_answers, over_epsilon, variants
from service.dashboard.plan_studio_drafts import KINDS, again, chosen, draft
from service.dashboard.plan_studio_problems import Problem, located
from service.dashboard.plan_studio_trials import Attempt, attempt
from service.engine_record import last_engine
from service.planning import check_fits, sign
from service.preview import PlanPreview, preview
from service.services import Records

pages = Pages()

HOME = "/knowledge-bases/{name}/plan"
_WAIT_S, _POLL_S = 20.0, 1.0
_computations = Computations("calibration")


@dataclass(frozen=True)
class Seen:
    """What a plan would give."""

    calibrated: CalibratedPlan
    preview: PlanPreview
    charts: dict[str, Chart]


@dataclass(frozen=True)
class Desk:
    """The knowledge base a plan is written for.

    Attributes:
        described: its description.
        status: its budget.
        versions: of the plans signed for it, the newest first.
    """

    described: KnowledgeBase
    status: BudgetStatus
    versions: list[int]

    @property
    def newest(self) -> int:
        """Version of the newest plan; 0 while there is none."""
        return max(self.versions, default=0)


@dataclass(frozen=True)
class Look:
    """A plan as written, and what became of looking at it.

    Attributes:
        text: the YAML.
        problems: what is wrong with it.
        plan: as read; None if it cannot be.
        seen: what it would give; None while that is computed, or if there are problems.
    """

    text: str
    problems: list[Problem] = field(default_factory=list)
    plan: Plan | None = None
    seen: Seen | None = None

    @property
    def computing(self) -> bool:
        """Whether to look again in a moment."""
        return self.plan is not None and self.seen is None and not self.problems


@dataclass(frozen=True)
class Price:
    """What a plan takes of the lifetime budget."""

    epsilon: Decimal
    delta: Decimal
    status: BudgetStatus

    @property
    def fits(self) -> bool:
        """Whether that much is free."""
        return self.epsilon <= self.status.free_epsilon and self.delta <= self.status.free_delta

    @property
    def left(self) -> tuple[Decimal, Decimal]:
        """(ε, δ) free afterwards."""
        return self.status.free_epsilon - self.epsilon, self.status.free_delta - self.delta


@pages.get("/plans")
async def choose(visit: Visit) -> Response:
    """Which knowledge base the plan is for."""
    if name := visit.request.query_params.get("knowledge_base"):
        return visit.redirect(HOME.format(name=quote(name, safe="")))
    budgets = await asyncio.to_thread(visit.services.records.ledger.budgets)
    return visit.page("plan_choose.html", here="plans", budgets=budgets)


@pages.get(HOME)
async def write(visit: Visit) -> Response:
    """A plan to start from: made for the knowledge base, or one signed before."""
    desk = await _desk(visit)
    query = visit.request.query_params
    choices = chosen(query)
    version = query.get("from", "")
    if version.isascii() and version.isdigit():
        signed = await asyncio.to_thread(visit.services.records.ledger.plan, desk.described.name, int(version[:9]))
        text = await asyncio.to_thread(again, signed.document)
    else:
        text = draft(desk.described, desk.status, choices)
    return await _studio(visit, desk, Look(text), choices=choices)


@pages.post(HOME)
async def see(visit: Visit) -> Response:
    """What the plan as written would give; htmx gets the part of the page that says so, and asks again by itself."""
    desk = await _desk(visit)
    look = await _look(visit, desk)
    if visit.is_htmx:
        return visit.page("plan_preview.html", **await _shown(visit, desk, look))
    return await _studio(visit, desk, look)


@pages.post(HOME + "/curves")
async def curves(visit: Visit) -> Response:
    """What more or less ε, and more or fewer answers, would give."""
    desk = await _desk(visit)
    look = await _look(visit, desk)
    drawn = await _draw(visit, look.seen) if look.seen else None
    if visit.is_htmx:
        return visit.page("plan_curves.html", desk=desk, look=look, curves=drawn)
    return await _studio(visit, desk, look, curves=drawn)


@pages.post(HOME + "/try")
async def try_it(visit: Visit) -> Response:
    """One query on public examples: nothing is charged, and nothing private is read."""
    desk = await _desk(visit)
    look = await _look(visit, desk)
    if look.seen is None:
        tried: Attempt | None = Attempt(problem="The plan must be computed, without a problem, before it can be tried.")
    else:
        tried = await attempt(
            visit.services.trials,
            look.seen.calibrated,
            desk.described.embedded_field,
            task=visit.field("trial_task"),
            rows=visit.field("trial_rows"),
            query=visit.field("trial_query"),
        )
    if visit.is_htmx:
        return visit.page("plan_trial.html", tried=tried)
    return await _studio(visit, desk, look, tried=tried)


@pages.post(HOME + "/confirm")
async def confirm(visit: Visit) -> Response:
    """What signing would do for ever, and the form that does it."""
    desk = await _desk(visit)
    look = await _look(visit, desk)
    if look.seen is None or not _price(desk, look.seen).fits:
        return await _studio(visit, desk, look, 200 if look.computing else 422)
    return await _confirmation(visit, desk, look, look.seen)


@pages.post(HOME + "/sign")
async def sign_(visit: Visit) -> Response:
    """Sign what was shown, once: it must come out the same, and follow the same plan, as on the page before."""
    desk = await _desk(visit)
    look = await _look(visit, desk)
    if look.seen is None:
        return await _studio(visit, desk, look, 200 if look.computing else 422)
    name, calibrated = desk.described.name, look.seen.calibrated
    after = visit.field("after")
    if visit.field("digest") != calibrated.digest or not (after.isascii() and after.isdigit() and len(after) < 10):
        problem = "Nothing was signed: the plan is not the one that was shown. This is it now."
        return await _confirmation(visit, desk, look, look.seen, 409, problem)
    if visit.field("name") != name:
        problem = f"Nothing was signed. To sign, write the knowledge base’s name, {name}, exactly."
        return await _confirmation(visit, desk, look, look.seen, 422, problem)
    try:
        version = await asyncio.to_thread(
            _sign_once, visit.services.records, calibrated, visit.session.key_name, int(after)
        )
    except (PlansChangedError, BudgetExceededError) as error:
        problem = f"Nothing was signed: {error}."
        return await _confirmation(visit, await _desk(visit), look, look.seen, 409, problem)
    tasks = ", ".join(f"{name}.{task}" for task in calibrated.plan.tasks)
    return visit.redirect(
        f"/knowledge-bases/{name}#plans", done=f"Plan {version} is signed. From now on it answers at {tasks}."
    )


def _sign_once(records: Records, calibrated: CalibratedPlan, signed_by: str, after: int) -> int:
    """The version under which the plan is signed, by this form or by the same one sent before."""
    try:
        return sign(records, calibrated, signed_by, after_version=after).version
    except PlansChangedError:
        name = calibrated.plan.knowledge_base
        plans = {plan.version: plan for plan in records.ledger.plans(name)}
        if (twin := plans.get(after + 1)) is not None and twin.digest == calibrated.digest:
            return twin.version
        raise


async def _desk(visit: Visit) -> Desk:
    return await asyncio.to_thread(_open, visit.services.records, visit.request.path_params["name"])


def _open(records: Records, name: str) -> Desk:
    described = records.store.get(name)
    (status,) = (status for status in records.ledger.budgets() if status.knowledge_base == name)
    return Desk(described, status, [plan.version for plan in reversed(records.ledger.plans(name))])


async def _look(visit: Visit, desk: Desk) -> Look:
    """Read the plan in the form, and have it computed; waits for that, but not for long."""
    written = visit.form.get("text", "")
    text = written.replace("\r\n", "\n") if isinstance(written, str) else ""
    try:
        plan = await asyncio.to_thread(_read, text, desk.described)
        (future,) = _computations.ask(visit.session.key_id, dict([_job(plan, desk.described.public_size)]))
        if not await ready([future], _POLL_S if visit.is_htmx else _WAIT_S) or future.cancelled():
            return Look(text, plan=plan)
        return Look(text, plan=plan, seen=future.result())
    except PlanError as error:
        return Look(text, located(error.problems, text))
    except AccountantsDisagreeError as error:
        return Look(text, [Problem("", str(error), None)])


def _read(text: str, described: KnowledgeBase) -> Plan:
    plan = load_plan(text)
    if plan.knowledge_base != described.name:
        raise PlanError([f"knowledge_base: the plan is for {plan.knowledge_base}, this page for {described.name}"])
    check_fits(plan, described)
    return plan


def _job(plan: Plan, public_size: int) -> tuple[str, Callable[[], Seen]]:
    return f"{public_size} {plan.model_dump_json()}", lambda: _see(plan, public_size)


def _see(plan: Plan, public_size: int) -> Seen:
    calibrated = calibrate_plan(plan, public_size)
    charts = {name: agreement(task, calibrated.noise[name]) for name, task in plan.tasks.items()}
    return Seen(calibrated, preview(calibrated), charts)


async def _draw(visit: Visit, seen: Seen) -> list[Chart] | None:
    """The curves, or None while one of their points is being computed."""
    groups = variants(seen.calibrated.plan)
    jobs = [{factor: _job(plan, seen.calibrated.public_size) for factor, plan in group.items()} for group in groups]
    futures = _computations.ask(visit.session.key_id, dict(job for group in jobs for job in group.values()))
    if not await ready(futures, _POLL_S if visit.is_htmx else _WAIT_S) or any(one.cancelled() for one in futures):
        return None
    by_key = dict(zip(dict(job for group in jobs for job in group.values()), futures, strict=True))
    by_epsilon, by_answers = (
        {factor: _calibrated(by_key[key]) for factor, (key, _) in group.items()} for group in jobs
    )
    return [chart for chart in (over_epsilon(by_epsilon), over_answers(by_answers)) if chart]


def _calibrated(future: Future[Seen]) -> CalibratedPlan | None:
    """A variant of the plan; None for one whose promise cannot be kept."""
    try:
        return future.result().calibrated
    except (PlanError, AccountantsDisagreeError):
        return None


def _price(desk: Desk, seen: Seen) -> Price:
    budget = seen.calibrated.plan.budget
    return Price(exact(budget.epsilon), exact(budget.delta), desk.status)


async def _shown(visit: Visit, desk: Desk, look: Look) -> dict[str, Any]:
    return {
        "desk": desk,
        "look": look,
        "price": _price(desk, look.seen) if look.seen else None,
        "engine": await asyncio.to_thread(last_engine, visit.services.records.database),
    }


async def _studio(visit: Visit, desk: Desk, look: Look, status: int = 200, **extra: Any) -> Response:
    context = {"curves": None, "tried": None, "choices": chosen({}), "kinds": KINDS} | extra
    return visit.page("plan_studio.html", status, here="plans", **await _shown(visit, desk, look), **context)


async def _confirmation(
    visit: Visit, desk: Desk, look: Look, seen: Seen, status: int = 200, problem: str | None = None
) -> Response:
    return visit.page(
        "plan_sign.html",
        status,
        here="plans",
        desk=desk,
        look=look,
        seen=seen,
        price=_price(desk, seen),
        problem=problem,
    )
