"""Measuring a task, by its kind: :mod:`.labels`, :mod:`.once` and :mod:`.texts` have evaluators."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.plans.plan import Budget, Plan, TaskNoise, calibrate_plan
from accounting.plans.tasks import ClassifyTask, GenerateTask
from exemplar_store import ExemplarStore
from exemplar_store.knowledge_base import Progress
from research.evaluation.dataset import Asked, Dataset
from research.evaluation.sweeps import Curves
from research.evaluation.tables import Grid, ReportTable
from service.engines.embedding.embedder import TextEmbedder
from service.engines.protocol import Engine

Rows = Sequence[Any]
"""Rows of the table: dataclasses, all of one class."""


@dataclass(frozen=True)
class Pass:
    """The result of one pass over the data.

    Attributes:
        asked: test rows.
        store: store with the training rows (:meth:`research.evaluation.dataset.Dataset.filled`).
        engine: engine that was asked.
        embedder: embedder that the engine used.
        run: function that runs the engine's coroutines on the one event loop of its life.
    """

    asked: Sequence[Asked]
    store: ExemplarStore
    engine: Engine
    embedder: TextEmbedder
    run: Callable[[Coroutine[Any, Any, Any]], Any]


class Evaluator(ABC):
    """Measures the tasks of one kind.

    Args:
        data: data with the task; its plan's δ and accountant are used.

    Attributes:
        answers: numbers of answers to evaluate, unless others are asked for.
        fitted: fitted values, as a plan writes them below the task's ``mechanism``; empty unless a fit was asked for.
    """

    answers: Sequence[int] = (1,)

    def __init__(self, data: Dataset):
        self.data = data
        self.fitted: Mapping[str, Any] = {}

    def noise(self, task: ClassifyTask | GenerateTask, epsilon: float) -> TaskNoise:
        """The noise at an ε of the data's task, perhaps changed (:func:`noise_of`); or of the signed task."""
        if self.data.signed is not None:
            return self.data.signed
        return noise_of(self.data.plan, self.data.task_name, task, self.data.public_size, epsilon)

    @property
    def needs_embeddings(self) -> bool:
        """Whether the exemplars must be stored with their embeddings, whatever the engine reads."""
        return self.data.task.compares

    @abstractmethod
    def evaluate(self, given: Pass, grid: Grid, progress: Progress) -> Rows:
        """The table.

        Args:
            given: replies of the engine.
            grid: settings to evaluate.
            progress: called with the number of rows of the table so far, and in all.

        Raises:
            accounting.plans.plan.PlanError: a budget that cannot be kept.
        """

    @abstractmethod
    def plot(self, rows: Rows, title: str) -> Any:
        """The table as a figure of matplotlib."""

    @abstractmethod
    def curves(self, rows: Rows) -> Curves:
        """The rows that become lines of a sweep's figure (:func:`.sweeps.plot`)."""

    @abstractmethod
    def table(self, rows: Rows, title: str) -> ReportTable:
        """The table's important columns, so that a terminal holds them; files and JSON have them all."""


def draw_line(axes: Any, rows: Rows, measure: str, error: str, **style: Any) -> None:
    """Draw a measure with its standard error against ε, both by their names in the rows."""
    rows = sorted(rows, key=lambda row: row.epsilon)
    values, errors = ([getattr(row, name) for row in rows] for name in (measure, error))
    axes.errorbar([row.epsilon for row in rows], values, yerr=errors, capsize=2, **style)


def mark_epsilons(axes: Any, rows: Rows) -> None:
    """Make the horizontal axis that of ε, with a tick at each value."""
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
