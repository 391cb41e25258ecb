"""The desk a plan is written at: the knowledge base, its budget, and what the plan as written would give.

What a plan gives is computed by the functions behind ``dpicl plan preview``, beside the event loop, and kept by the
plan's content.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeVar

from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from starlette.responses import Response

from accounting.ledger.amounts import exact
from accounting.ledger.budgets import BudgetStatus
from accounting.ledger.cohorts import CohortStatus
from accounting.ledger.errors import KnowledgeBaseArchivedError
from accounting.plans import plain_yaml
from accounting.plans.plan import CalibratedPlan, Plan, PlanError, PlanProblem
from accounting.privacy.accountants import AccountantsDisagreeError
from exemplar_store import KnowledgeBase
from service.answering.plans.calibrating import calibrate
from service.answering.plans.signing import check_engine, settled
from service.gateway.dashboard.charts import Chart
from service.gateway.dashboard.computing import Computations
from service.gateway.dashboard.pages import Visit
from service.gateway.dashboard.plan_studio.charts import agreement
from service.gateway.dashboard.plan_studio.drafts import KINDS, chosen
from service.operations import plans
from service.operations.plans import PlanResult
from service.records.engine_record import last_engine
from service.records.records import Records

T = TypeVar("T")

HOME = "/knowledge-bases/{name}/plan"
_WAIT_S, _POLL_S = 20.0, 1.0
_computations = Computations("calibration")


@dataclass(frozen=True)
class Outcome:
    """What a plan would give, and what it takes of the lifetime budget of each cohort that it draws on.

    Attributes:
        calibrated: the plan with its noise.
        charts: of each task.
        offer: what it gives, and why it cannot be signed, if it cannot.
        cohorts: that it draws on.
        twin: version of the newest signed plan that is equal to it, if there is one.
    """

    calibrated: CalibratedPlan
    charts: dict[str, Chart]
    offer: PlanResult
    cohorts: list[CohortStatus]
    twin: int | None

    @property
    def epsilon(self) -> Decimal:
        """What it takes."""
        return exact(self.calibrated.plan.budget.epsilon)

    @property
    def delta(self) -> Decimal:
        """What it takes."""
        return exact(self.calibrated.plan.budget.delta)

    @property
    def cohort(self) -> CohortStatus:
        """The one that stands in the way, or else the one with the least ε free."""
        return min(
            self.cohorts,
            key=lambda cohort: (cohort.closed_at is None, self.delta <= cohort.free_delta, cohort.free_epsilon),
        )


@dataclass
class Desk:
    """The knowledge base a plan is written for, and the plan.

    Attributes:
        described: the knowledge base.
        status: its budget.
        versions: of the plans signed for it, the newest first.
        text: the plan as written, YAML.
        problems: what is wrong with it.
        plan: as read; None if it cannot be.
        outcome: what it would give; None while that is computed, or if there are problems.
    """

    described: KnowledgeBase
    status: BudgetStatus
    versions: list[int]
    text: str = ""
    problems: list[PlanProblem] = field(default_factory=list)
    plan: Plan | None = None
    outcome: Outcome | None = None

    @property
    def newest(self) -> int:
        """Version of the newest plan; 0 while there is none."""
        return max(self.versions, default=0)

    @property
    def computing(self) -> bool:
        """Whether to ask again in a moment."""
        return self.plan is not None and self.outcome is None and not self.problems

    @cached_property
    def lines(self) -> dict[str, int]:
        """See :func:`places`."""
        return places(self.text)

    @property
    def tasks(self) -> list[str]:
        """Names of the plan's tasks as far as they can be read."""
        return [key.removeprefix("tasks.") for key in self.lines if key.startswith("tasks.")]


async def open_desk(visit: Visit, *, patiently: bool = False) -> Desk:
    """The knowledge base that the address names, and the plan in the form, which is computed.

    Waits for that, unless ``patiently``, not for long where the page asks again by itself.
    """
    records, name = visit.services.records, visit.path("name")
    desk = await asyncio.to_thread(_open, records, name)
    written = visit.form.get("text", "")
    desk.text = written.replace("\r\n", "\n") if isinstance(written, str) else ""
    if visit.request.method == "GET":
        return desk
    try:
        plan, public_size = await asyncio.to_thread(_read, records, desk.text, name)
        desk.plan, key = plan, f"{public_size} {plan.model_dump_json()}"
        computed = await compute(visit, key, lambda: _compute(plan, public_size), patiently=patiently)
        if computed is not None:
            calibrated, charts = computed
            offer = await visit.do(plans.preview, calibrated, grains=visit.services.grains)
            document = calibrated.model_dump_json()
            twin = await asyncio.to_thread(records.ledger.budgets.newest_equal, name, document)
            desk.outcome = Outcome(calibrated, charts, offer, desk.status.of(calibrated.cohorts), twin)
    except PlanError as error:
        desk.problems = located(error.problems, desk.text)
    except (AccountantsDisagreeError, KnowledgeBaseArchivedError) as error:
        desk.problems = [PlanProblem("", str(error))]
    return desk


def _read(records: Records, text: str, name: str) -> tuple[Plan, int]:
    plan = plans.read(text, name)
    check_engine(records, plan)
    return settled(records, plan)


def _open(records: Records, name: str) -> Desk:
    described, budgets = records.store.get(name), records.ledger.budgets
    return Desk(described, budgets.status(name), [plan.version for plan in reversed(budgets.plans(name))])


def _compute(plan: Plan, public_size: int) -> tuple[CalibratedPlan, dict[str, Chart]]:
    calibrated = calibrate(plan, public_size)
    return calibrated, {name: agreement(task, calibrated.noise[name], public_size) for name, task in plan.tasks.items()}


async def compute(visit: Visit, key: Hashable, job: Callable[[], T], *, patiently: bool = False) -> T | None:
    """What takes seconds, or None while it is being computed; arguments as of :func:`open_desk`."""
    polls = visit.is_htmx and not patiently
    return await _computations.result(visit.actor.id, key, job, _POLL_S if polls else _WAIT_S, insist=not polls)


async def studio(visit: Visit, desk: Desk, **context: Any) -> Response:
    """The whole page."""
    if desk.problems:
        visit.status = 422
    engine = await asyncio.to_thread(last_engine, visit.services.records.database)
    context |= {"engine": engine, "choices": chosen(visit.request.query_params), "kinds": KINDS}
    return visit.page("plan_studio.html", here="plans", desk=desk, **context)


def located(problems: Sequence[PlanProblem], text: str) -> list[PlanProblem]:
    """The problems of a plan as written, each with its line, or that of the nearest key that is there."""
    root = plain_yaml.compose(text)
    return [problem._replace(line=problem.line or _line(problem.key.split("."), root)) for problem in problems]


def places(text: str) -> dict[str, int]:
    """The lines, counted from 1, of a plan's budget and of each of its tasks, by key: ``budget``, ``tasks.NAME``."""
    root = plain_yaml.compose(text)
    tasks = next((value for key, value in _pairs(root) if key.value == "tasks"), None)
    keys = [["budget"], *(["tasks", key.value] for key, _ in _pairs(tasks) if isinstance(key.value, str))]
    return {".".join(key): line for key in keys if (line := _line(key, root)) is not None}


def _pairs(node: Node | None) -> list[tuple[Node, Node]]:
    return node.value if isinstance(node, MappingNode) else []


def _line(path: Sequence[str], node: Node | None) -> int | None:
    """The line of a key, or of the nearest one above it."""
    line = None
    for part in path:
        if isinstance(node, MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        else:
            break
    return line
