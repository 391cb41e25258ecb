"""Prototypes: the share of right answers from a release that is made once, before noise and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accounting.mechanisms import Calibration
from accounting.plan import Plan
from accounting.tasks import ClassifyTask
from aggregation.noise import FixedPoint, add_gaussian_noise, from_fixed_point
from service.evaluation.dataset import NAME
from service.evaluation.evaluator import Pass, noise_of
from service.evaluation.labels import LabelScores, check_labels, plot, score, sureness, table
from service.evaluation.tables import Grid, Table
from service.pipeline.mechanisms.prototypes import PrototypesAdapter

PROTOTYPES = "prototypes"


class PrototypesEvaluator:
    """Of tasks with ``mechanism: {type: prototypes}``; see :class:`service.evaluation.evaluator.Evaluator`.

    Args:
        plan: its δ and accountant are used.
        task_name: such a task.
    """

    answers: Sequence[int] = (1,)
    calibration: Calibration | None = None
    plot = staticmethod(plot)

    def __init__(self, plan: Plan, task_name: str):
        task = plan.tasks[task_name]
        assert isinstance(task, ClassifyTask)  # noqa: S101  (of labels)  # nosec B101
        self._plan, self._name, self._task = plan, task_name, task

    def check(self, dataset: Path, limit: int | None) -> None:
        """See :class:`.evaluator.Evaluator`."""
        check_labels(self._task, dataset, limit)

    def rows(self, grid: Grid) -> int:
        """See :class:`.evaluator.Evaluator`."""
        return 2 + len(grid.epsilons)

    def evaluate(self, given: Pass, grid: Grid, progress: Callable[[int], None]) -> list[LabelScores]:
        """See :class:`.evaluator.Evaluator`. As many releases are made for each ε as noise is to be drawn."""
        truth = np.array([self._task.labels.index(one.answer) for one in given.asked])
        zero_shot = np.array([one.zero_shot.probabilities for one in given.asked])
        questions = given.embedder.embed([one.query[given.spec.input_field] for one in given.asked])
        adapters = {
            epsilon: PrototypesAdapter(
                self._task, noise_of(self._plan, self._name, self._task, given.public_size, epsilon)
            )
            for epsilon in grid.epsilons
        }
        adapter = next(iter(adapters.values()))
        sums = adapter.sums(questions.shape[1]).sum(map(adapter.labelled, given.store.every_unit(NAME)))
        rows = [
            score("zero-shot", zero_shot.argmax(axis=1) == truth),
            self._scored("prototypes, no noise", adapter, [from_fixed_point(sums)], questions, truth, given, sigma=0.0),
        ]
        for epsilon, adapter in adapters.items():
            sigma = adapter.sums(questions.shape[1]).sigma
            noisy = [_noisy(sums, sigma) for _ in range(grid.draws)]
            found = self._scored(PROTOTYPES, adapter, noisy, questions, truth, given, sigma=sigma)
            rows.append(replace(found, epsilon=epsilon))
            progress(len(rows))
        return rows

    def table(self, rows: Sequence[LabelScores], title: str) -> Table:
        """See :class:`.evaluator.Evaluator`."""
        return table(rows, title)

    def _scored(
        self,
        method: str,
        adapter: PrototypesAdapter,
        released: Sequence[np.ndarray],
        questions: np.ndarray,
        truth: np.ndarray,
        given: Pass,
        *,
        sigma: float,
    ) -> LabelScores:
        """One row: all questions answered from each release."""
        probabilities = []
        for sums in released:
            reader = adapter.reader(sums, sigma, given.spec, given.embedder).prototypes
            probabilities.append([reader.probabilities(question) for question in questions])
        found = np.array(probabilities)
        right = found.argmax(axis=2) == truth
        row = score(method, right.mean(axis=0), sigma=sigma)
        values: dict[str, Any] = sureness(right.astype(np.float64), found.max(axis=2))
        return replace(row, **values)


def _noisy(sums: FixedPoint, sigma: float) -> np.ndarray:
    return from_fixed_point(add_gaussian_noise(sums.ravel(), sigma)).reshape(sums.shape)
