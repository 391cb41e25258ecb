"""Matters that need an admin's attention, the most pressing first: spent, ending, unused or useless tasks.

A matter is bad if questions are refused until an admin acts. Each matter names the next step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Literal, get_args

from accounting.ledger.budgets import SignedPlan
from accounting.ledger.entries import parts
from accounting.ledger.history import Fallbacks
from accounting.plans.releases import REFUSE
from accounting.plans.tasks import ClassifyTask
from service.operations.budget_report import KnowledgeBaseBudget, TaskBudget
from service.operations.forecast import Forecast
from service.records.signed import read_signed
from service.settings import Settings

_NEW = timedelta(days=1)
MOSTLY, ENOUGH = 0.9, 5
"""Share of fallbacks among a task's answers that needs attention, and number of answers that show it; as the alert."""

Urgency = Literal["bad", "warn", ""]
"""An admin must act, should act, or should know, in this order; also the class of its badge."""


class Step(Enum):
    """An admin's next step.

    Attributes:
        FIRST_PLAN: write the knowledge base's first plan.
        NEXT_PLAN: write a plan that begins as the matter's.
        NEW_COHORT: open a cohort, which has a budget of its own.
        SEE_PLAN: look at the matter's plan.
        NEW_KEY: make an analyst's key.
    """

    FIRST_PLAN = auto()
    NEXT_PLAN = auto()
    NEW_COHORT = auto()
    SEE_PLAN = auto()
    NEW_KEY = auto()


@dataclass(frozen=True)
class Matter:
    """Something to look at.

    Attributes:
        urgency: urgency, also the class of a badge.
        state: state of the task or knowledge base, two words.
        about: address of the task, or name of the knowledge base.
        sentence: description of the matter.
        step: next step.
        knowledge_base: name of the knowledge base.
        version: version of the task's plan; None: no plan is signed yet.
    """

    urgency: Urgency
    state: str
    about: str
    sentence: str
    step: Step
    knowledge_base: str
    version: int | None = None

    @property
    def rank(self) -> int:
        """Number by which matters are ordered; the most pressing have 0."""
        return get_args(Urgency).index(self.urgency)


def matters(
    budget: KnowledgeBaseBudget,
    forecasts: Mapping[str, Forecast],
    plans: Sequence[SignedPlan],
    fallbacks: Sequence[Fallbacks],
    settings: Settings,
    now: datetime,
) -> list[Matter]:
    """Matters of a knowledge base, by the newest plan of each task; none if it is archived.

    Args:
        budget: budget of the knowledge base.
        forecasts: forecasts of its tasks whose answers are counted, by address.
        plans: signed plans of the knowledge base.
        fallbacks: numbers of fallbacks, for tasks that may fall back.
        settings: settings with the share of answers spent and the number of days left that need attention.
        now: the present, in UTC.
    """
    if budget.archived_at is not None:
        return []
    name = budget.knowledge_base
    if not plans:
        sentence = "No plan is signed yet, so nothing can be asked of it."
        return [Matter("", "no plan", name, sentence, Step.FIRST_PLAN, name)]
    listed = []
    signed = {plan.version: plan for plan in plans}
    fell_back = {one.task: one for one in fallbacks if _is_mostly_fallback(one)}
    for version, task in newest(budget).values():
        if (useless := fell_back.get(task.task)) is not None:
            sentence = (
                f"{useless.fallbacks:,} of its {useless.releases:,} answers used no exemplars, since nothing stood "
                "out from the noise; each cost as much as any other."
            )
            listed.append(Matter("warn", "falls back", task.task, sentence, Step.NEXT_PLAN, name, version))
        plan, forecast = signed[version], forecasts.get(task.task)
        further = Step.NEXT_PLAN if budget.free.epsilon > 0 else Step.NEW_COHORT
        age = now - plan.signed_at
        if forecast is None:
            if task.one_release not in ("made", "being made"):
                sentence = "Its one release is not there, so questions are refused."
                state = task.one_release or ""
                listed.append(Matter("bad", state, task.task, sentence, Step.SEE_PLAN, name, version))
        elif forecast.left and not task.spent:
            if age >= _NEW and task.topic is None:
                sentence = f"Signed {age.days} days ago, and all its {forecast.left:,} answers are left."
                listed.append(Matter("", "never asked", task.task, sentence, Step.NEW_KEY, name, version))
        elif _goes_on(plan, task):
            continue
        elif not forecast.left and task.topic is not None:
            sentence = "All answers on this topic are spent, so new questions on it are refused; other topics go on."
            listed.append(Matter("warn", "topic spent", task.task, sentence, further, name, version))
        elif not forecast.left:
            sentence = "All its answers are spent, so new questions are refused."
            listed.append(Matter("bad", "spent", task.task, sentence, further, name, version))
        elif _ends_soon(forecast, settings, now):
            listed.append(Matter("warn", "ending soon", task.task, forecast.sentence, further, name, version))
    return sorted(listed, key=lambda matter: matter.rank)


def newest(budget: KnowledgeBaseBudget) -> dict[str, tuple[int, TaskBudget]]:
    """The newest plan of each task, or of each of its topics, that is not retired.

    Returns:
        Pairs (version of the plan, budget of the task) by address without version, those of the newest plan first.
    """
    latest: dict[str, tuple[int, TaskBudget]] = {}
    versions: dict[str, int] = {}
    for plan in reversed([plan for plan in budget.plans if plan.retired_at is None]):
        for task in plan.tasks:
            named = task.task.partition("@")[0]
            if versions.setdefault(parts(named)[0], plan.version) == plan.version:
                latest[named] = plan.version, task
    return latest


def _is_mostly_fallback(counted: Fallbacks) -> bool:
    return counted.releases >= ENOUGH and counted.fallbacks >= MOSTLY * counted.releases


def _ends_soon(forecast: Forecast, settings: Settings, now: datetime) -> bool:
    ends = forecast.runs_out is not None and forecast.runs_out - now < timedelta(days=settings.attention_days)
    return ends or 100 * (forecast.answers - forecast.left) >= settings.attention_percent * forecast.answers


def _goes_on(plan: SignedPlan, task: TaskBudget) -> bool:
    """Whether another release answers once the task's own answers are spent."""
    name = parts(task.task.partition("@")[0])[0].rpartition(".")[2]
    written = read_signed(plan.document).plan.tasks[name]
    return isinstance(written, ClassifyTask) and written.when_spent != REFUSE
