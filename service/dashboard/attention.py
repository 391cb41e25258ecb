"""What an admin should look at, the most pressing first: what is spent, what ends soon, what was never asked.

Red is for what only an admin can mend: questions that are refused, or would be. Each matter names the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from accounting.ledger.budgets import SignedPlan
from accounting.tasks import REFUSE, ClassifyTask
from service.plans.budget_report import KnowledgeBaseBudget, TaskBudget
from service.plans.forecast import Forecast
from service.records.signed import read_signed
from service.settings import Settings

_NEW = timedelta(days=1)
_ORDER = ("bad", "warn", "")

Urgency = Literal["bad", "warn", ""]
"""An admin must act, should act, or should know; also the class of its badge."""


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
        return _ORDER.index(self.urgency)


def matters(
    budget: KnowledgeBaseBudget,
    forecasts: Mapping[str, Forecast],
    plans: Sequence[SignedPlan],
    proposed: int,
    settings: Settings,
    now: datetime,
) -> list[Matter]:
    """Of a knowledge base, by the newest plan of each task; nothing of one that is archived.

    Args:
        budget: its own.
        forecasts: of its tasks whose answers are counted, by address.
        plans: as they were signed.
        proposed: how many plans wait for a second person's approval.
        settings: which share of answers spent, and how few days left, need attention.
        now: the present, in UTC.
    """
    if budget.archived_at is not None:
        return []
    home = f"/knowledge-bases/{budget.knowledge_base}"
    listed = []
    if proposed:
        what = "A plan waits" if proposed == 1 else f"{proposed} plans wait"
        sentence = f"{what} for somebody else’s approval."
        listed.append(Matter("warn", "proposed", budget.knowledge_base, sentence, "Read it", f"{home}/plans"))
    elif not plans:
        sentence = "No plan is signed yet, so nothing can be asked of it."
        return [Matter("", "no plan", budget.knowledge_base, sentence, "Write a plan", f"{home}/plan")]
    signed = {plan.version: plan for plan in plans}
    for version, task in newest(budget).values():
        if (matter := _matter(budget, signed[version], task, forecasts.get(task.task), settings, now)) is not None:
            listed.append(matter)
    return sorted(listed, key=lambda matter: matter.rank)


def newest(budget: KnowledgeBaseBudget) -> dict[str, tuple[int, TaskBudget]]:
    """Of each task that answers, by its name: the version it answers with, and its budget; the newest plan first."""
    latest: dict[str, tuple[int, TaskBudget]] = {}
    for plan in reversed(budget.plans):
        for task in plan.tasks:
            if task.asked:
                latest.setdefault(task.task.partition("@")[0], (plan.version, task))
    return latest


def _matter(
    budget: KnowledgeBaseBudget,
    plan: SignedPlan,
    task: TaskBudget,
    forecast: Forecast | None,
    settings: Settings,
    now: datetime,
) -> Matter | None:
    home = f"/knowledge-bases/{budget.knowledge_base}"
    if budget.free.epsilon > 0:
        step, path = "Write the next plan", f"{home}/plan?from={plan.version}"
    else:
        step, path = "Open a cohort", f"{home}/cohorts"
    if forecast is None:
        if task.one_release in ("made", "being made"):
            return None
        sentence = "Its one release is not there, so questions are refused."
        return Matter("bad", task.one_release or "", task.task, sentence, "See why", f"{home}/plans/{plan.version}")
    if not forecast.left:
        sentence = "All its answers are spent, so new questions are refused."
        return None if _goes_on(plan, task) else Matter("bad", "spent", task.task, sentence, step, path)
    if not task.spent:
        if now - plan.signed_at < _NEW:
            return None
        sentence = f"Signed {(now - plan.signed_at).days} days ago, and all its {forecast.left:,} answers are left."
        return Matter("", "never asked", task.task, sentence, "Hand out a key", "/keys")
    ends = forecast.runs_out is not None and forecast.runs_out - now < timedelta(days=settings.attention_days)
    few = 100 * (forecast.answers - forecast.left) >= settings.attention_percent * forecast.answers
    if (ends or few) and not _goes_on(plan, task):
        return Matter("warn", "ending soon", task.task, forecast.sentence, step, path)
    return None


def _goes_on(plan: SignedPlan, task: TaskBudget) -> bool:
    """Whether another release answers once the task's own answers are spent."""
    name = task.task.partition("@")[0].rpartition(".")[2]
    written = read_signed(plan.document).plan.tasks[name]
    return isinstance(written, ClassifyTask) and written.when_spent != REFUSE
