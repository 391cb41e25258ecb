"""What an admin should look at, the most pressing first: what is spent, what ends soon, what was never asked.

Red is for what only an admin can mend: questions that are refused, or would be. Each matter names the next step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from accounting.ledger.budgets import SignedPlan
from accounting.ledger.entries import parts
from accounting.plans.tasks import REFUSE, ClassifyTask
from service.operations.budget_report import KnowledgeBaseBudget, TaskBudget
from service.operations.forecast import Forecast
from service.records.signed import read_signed
from service.settings import Settings

_NEW = timedelta(days=1)

Urgency = Literal["bad", "warn", ""]
"""An admin must act, should act, or should know, in this order; also the class of its badge."""


@dataclass(frozen=True)
class Matter:
    """Something to look at.

    Attributes:
        urgency: how pressing it is.
        state: in two words.
        about: address of the task, or name of the knowledge base.
        sentence: what is the matter.
        step: what to do next.
        path: where.
    """

    urgency: Urgency
    state: str
    about: str
    sentence: str
    step: str
    path: str

    @property
    def rank(self) -> int:
        """The more pressing, the lower."""
        return get_args(Urgency).index(self.urgency)


def matters(
    budget: KnowledgeBaseBudget,
    forecasts: Mapping[str, Forecast],
    plans: Sequence[SignedPlan],
    settings: Settings,
    now: datetime,
) -> list[Matter]:
    """Of a knowledge base, by the newest plan of each task; nothing of one that is archived.

    Args:
        budget: its own.
        forecasts: of its tasks whose answers are counted, by address.
        plans: as they were signed.
        settings: which share of answers spent, and how few days left, need attention.
        now: the present, in UTC.
    """
    if budget.archived_at is not None:
        return []
    name, home = budget.knowledge_base, f"/knowledge-bases/{budget.knowledge_base}"
    if not plans:
        sentence = "No plan is signed yet, so nothing can be asked of it."
        return [Matter("", "no plan", name, sentence, "Write a plan", f"{home}/plan")]
    listed = []
    signed = {plan.version: plan for plan in plans}
    for version, task in newest(budget).values():
        plan, forecast = signed[version], forecasts.get(task.task)
        further = "Open a cohort", f"{home}/cohorts"
        if budget.free.epsilon > 0:
            further = "Write the next plan", f"{home}/plan?from={version}"
        age = now - plan.signed_at
        if forecast is None:
            if task.one_release not in ("made", "being made"):
                sentence, path = "Its one release is not there, so questions are refused.", f"{home}/plans/{version}"
                listed.append(Matter("bad", task.one_release or "", task.task, sentence, "See why", path))
        elif forecast.left and not task.spent:
            if age >= _NEW and task.topic is None:
                sentence = f"Signed {age.days} days ago, and all its {forecast.left:,} answers are left."
                listed.append(Matter("", "never asked", task.task, sentence, "Hand out a key", "/keys"))
        elif _goes_on(plan, task):
            continue
        elif not forecast.left and task.topic is not None:
            sentence = "All answers on this topic are spent, so new questions on it are refused; other topics go on."
            listed.append(Matter("warn", "topic spent", task.task, sentence, *further))
        elif not forecast.left:
            sentence = "All its answers are spent, so new questions are refused."
            listed.append(Matter("bad", "spent", task.task, sentence, *further))
        elif _ends_soon(forecast, settings, now):
            listed.append(Matter("warn", "ending soon", task.task, forecast.sentence, *further))
    return sorted(listed, key=lambda matter: matter.rank)


def newest(budget: KnowledgeBaseBudget) -> dict[str, tuple[int, TaskBudget]]:
    """Of each task that answers, or each of its topics: the version it answers with, and its budget.

    By name, the newest plan first.
    """
    latest: dict[str, tuple[int, TaskBudget]] = {}
    versions: dict[str, int] = {}
    for plan in reversed(budget.plans):
        for task in plan.tasks:
            named = task.task.partition("@")[0]
            if versions.setdefault(parts(named)[0], plan.version) == plan.version:
                latest[named] = plan.version, task
    return latest


def _ends_soon(forecast: Forecast, settings: Settings, now: datetime) -> bool:
    ends = forecast.runs_out is not None and forecast.runs_out - now < timedelta(days=settings.attention_days)
    return ends or 100 * (forecast.answers - forecast.left) >= settings.attention_percent * forecast.answers


def _goes_on(plan: SignedPlan, task: TaskBudget) -> bool:
    """Whether another release answers once the task's own answers are spent."""
    name = parts(task.task.partition("@")[0])[0].rpartition(".")[2]
    written = read_signed(plan.document).plan.tasks[name]
    return isinstance(written, ClassifyTask) and written.when_spent != REFUSE
