"""What measuring a task takes, by its kind: :mod:`.labels`, :mod:`.once` and :mod:`.texts` have evaluators."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.plans.plan import Budget, Plan, TaskNoise, calibrate_plan
from accounting.plans.tasks import ClassifyTask, GenerateTask
from exemplar_store import ExemplarStore
from exemplar_store.knowledge_base import Progress
from research.evaluation.dataset import Asked, Dataset
from research.evaluation.tables import Grid, ReportTable
from service.engines.embedding.embedder import TextEmbedder
from service.engines.protocol import Engine

Rows = Sequence[Any]
"""Of the table: dataclasses, all of one class."""


@dataclass(frozen=True)
class Pass:
    """What one pass over the data gave.

    Attributes:
        asked: the test rows.
        store: holds the training rows (:meth:`research.evaluation.dataset.Dataset.filled`).
        engine: that was asked.
        embedder: that the engine used.
        run: what the engine is asked by, on the one event loop of its life.
    """

    asked: Sequence[Asked]
    store: ExemplarStore
    engine: Engine
    embedder: TextEmbedder
    run: Callable[[Coroutine[Any, Any, Any]], Any]


class Evaluator(ABC):
    """Measures the tasks of one kind.

    Args:
        data: with the task; its plan's δ and accountant are used.

    Attributes:
        answers: numbers of answers to evaluate, unless others are asked for.
        fitted: what a fit found, as a plan writes it below the task's ``mechanism``; empty unless one was asked for.
    """

    answers: Sequence[int] = (1,)

    def __init__(self, data: Dataset):
        self.data = data
        self.fitted: Mapping[str, Any] = {}

    def noise(self, task: ClassifyTask | GenerateTask, epsilon: float) -> TaskNoise:
        """See :func:`noise_of`; of the data's task, perhaps changed."""
        return noise_of(self.data.plan, self.data.task_name, task, self.data.public_size, epsilon)

    @abstractmethod
    def evaluate(self, given: Pass, grid: Grid, progress: Progress) -> Rows:
        """The table.

        Args:
            given: what the engine said.
            grid: what to evaluate.
            progress: told how many rows of the table there are, and how many it will have.

        Raises:
            accounting.plans.plan.PlanError: a budget that cannot be kept.
        """

    @abstractmethod
    def plot(self, rows: Rows, title: str) -> Any:
        """It as a figure of matplotlib."""

    @abstractmethod
    def table(self, rows: Rows, title: str) -> ReportTable:
        """Its important columns, so that a terminal holds them; files and JSON have them all."""


def draw_line(axes: Any, rows: Rows, measure: str, error: str, **style: Any) -> None:
    """Draw a measure with its standard error against ε, both by their names in the rows."""
    rows = sorted(rows, key=lambda row: row.epsilon)
    values, errors = ([getattr(row, name) for row in rows] for name in (measure, error))
    axes.errorbar([row.epsilon for row in rows], values, yerr=errors, capsize=2, **style)


def mark_epsilons(axes: Any, rows: Rows) -> None:
    """Let the horizontal axis be that of ε, and say which ones there are."""
    axes.set(xscale="log", xlabel="ε of the whole plan")
    ticks = sorted({row.epsilon for row in rows})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes.minorticks_off()


def noise_of(
    plan: Plan, task_name: str, task: ClassifyTask | GenerateTask, public_size: int, epsilon: float
) -> TaskNoise:
    """The noise of a task that has a whole budget to itself, and names no other.

    Raises:
        accounting.plans.plan.PlanError: the budget cannot be kept.
    """
    task = task.alone()
    budget = Budget(epsilon=epsilon, delta=plan.budget.delta)
    alone = Plan(knowledge_base=plan.knowledge_base, budget=budget, accountant=plan.accountant, tasks={task_name: task})
    return calibrate_plan(alone, public_size).noise[task_name]
