"""What measuring a task takes, by its kind: :mod:`.labels` and :mod:`.texts` each have an evaluator."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from accounting.mechanisms import Calibration
from accounting.plan import Budget, Plan, TaskNoise, calibrate_plan
from accounting.tasks import ClassifyTask, GenerateTask
from exemplar_store import ExemplarStore
from service.embedding.embedder import TextEmbedder
from service.engines.protocol import Engine, TaskSpec
from service.evaluation.dataset import Asked
from service.evaluation.tables import Grid, Table

Rows = Sequence[Any]
"""Of the table: dataclasses, all of one class."""


@dataclass(frozen=True)
class Pass:
    """What one pass over the data gave.

    Attributes:
        asked: the test rows.
        store: holds the training rows (:func:`service.evaluation.dataset.filled`).
        public_size: how many training rows there are.
        spec: the task as the engine knows it.
        engine: that was asked.
        embedder: that the engine used.
        run: what the engine is asked by, on the one event loop of its life.
    """

    asked: Sequence[Asked]
    store: ExemplarStore
    public_size: int
    spec: TaskSpec
    engine: Engine
    embedder: TextEmbedder
    run: Callable[[Coroutine[Any, Any, Any]], Any]


class Evaluator(Protocol):
    """Measures the tasks of one kind.

    Attributes:
        answers: numbers of answers to evaluate, unless others are asked for.
    """

    answers: Sequence[int]

    @property
    def calibration(self) -> Calibration | None:
        """Of a posterior, if one was to be fitted."""

    def check(self, dataset: Path, limit: int | None) -> None:
        """Check the data before much time is spent on them.

        Raises:
            ValueError: they do not fit the task.
        """

    def rows(self, grid: Grid) -> int:
        """How many rows the table will have."""

    def evaluate(self, given: Pass, grid: Grid, progress: Callable[[int], None]) -> Rows:
        """The table.

        Raises:
            accounting.plan.PlanError: a budget that cannot be kept.
        """

    def plot(self, rows: Rows, title: str) -> Any:
        """It as a figure of matplotlib."""

    def table(self, rows: Rows, title: str) -> Table:
        """Its important columns, so that a terminal holds them; files and JSON have them all."""


def noise_of(
    plan: Plan, task_name: str, task: ClassifyTask | GenerateTask, public_size: int, epsilon: float
) -> TaskNoise:
    """The noise of a task that has a whole budget to itself, and names no other.

    Raises:
        accounting.plan.PlanError: the budget cannot be kept.
    """
    task = task.alone()
    budget = Budget(epsilon=epsilon, delta=plan.budget.delta)
    alone = Plan(knowledge_base=plan.knowledge_base, budget=budget, accountant=plan.accountant, tasks={task_name: task})
    return calibrate_plan(alone, public_size).noise[task_name]
