"""One-time releases: the share of right answers, before noise and after.

With softmax regression and prototypes questions are compared with noisy vectors, and the temperature can be fitted;
with synthetic exemplars the engine is asked again for each choice that noise makes.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
from scipy import special
from typing_extensions import override

from aggregation.noise import FixedPoint, from_fixed_point
from aggregation.softmax_regression import PackedUnits, SoftmaxRegression
from exemplar_store import Part, Slot
from exemplar_store.knowledge_base import Progress
from research.evaluation.dataset import NAME
from research.evaluation.evaluator import Pass
from research.evaluation.fitting import fit_temperature
from research.evaluation.labels import (
    LabelScores,
    OfLabels,
    free_rows,
    halves,
    public_probabilities,
    score,
    sureness,
    with_noise,
)
from research.evaluation.tables import Grid
from service.answering.mechanisms.adapter import OnceLabelAdapter, once_adapter_of
from service.answering.mechanisms.prototypes import PrototypesAdapter
from service.answering.mechanisms.softmax_regression import SoftmaxRegressionAdapter, start
from service.answering.mechanisms.synthetic_exemplars import SyntheticExemplarsAdapter
from service.engines.task import TaskSpec

A = TypeVar("A", bound=OnceLabelAdapter[Any, Any])


class OnceEvaluator(OfLabels, Generic[A]):
    """Measures tasks with a one-time release of labels; see :class:`research.evaluation.evaluator.Evaluator`."""

    needs_embeddings = True

    @abstractmethod
    def read(self, adapter: A, given: Pass) -> Any:
        """All that releases are made of: by default the release without noise, of a sensitivity of 1 and any shape."""

    def release(self, adapter: A, read: Any, given: Pass, sigma: float) -> np.ndarray:
        """One release of what was read, with the noise multiplier sigma; 0: without noise."""
        return with_noise(read, sigma) if sigma else from_fixed_point(read)

    @abstractmethod
    def probabilities(self, adapter: A, released: np.ndarray, sigma: float, given: Pass) -> np.ndarray:
        """The labels' probabilities that a release gives for all questions, shape (questions, labels).

        Args:
            adapter: adapter of the mechanism.
            released: result of :meth:`release`.
            sigma: noise multiplier.
            given: questions, and the engine that was asked.
        """

    def evaluate(self, given: Pass, grid: Grid, progress: Progress) -> list[LabelScores]:
        """The table (:meth:`.evaluator.Evaluator.evaluate`), with one release for each ε and each draw of noise."""
        truth = np.array([self._task.labels.index(question.answer) for question in given.asked])
        method = self._task.mechanism.type
        adapters = {epsilon: self._adapter(epsilon) for epsilon in grid.epsilons}
        adapter = next(iter(adapters.values()))
        read = self.read(adapter, given)
        noiseless = [self.release(adapter, read, given, 0.0)]
        rows = [
            *free_rows(public_probabilities(given.asked), truth),
            self._scored(f"{method}, no noise", adapter, noiseless, truth, given, sigma=0.0),
        ]
        free = len(rows)
        for epsilon, adapter in adapters.items():
            sigma = adapter.noise.noise_multiplier
            noisy = [self.release(adapter, read, given, sigma) for _ in range(grid.draws)]
            rows.append(replace(self._scored(method, adapter, noisy, truth, given, sigma=sigma), epsilon=epsilon))
            if grid.fit:
                rows.append(replace(self.fit(adapter, noisy, truth, given), epsilon=epsilon))
            progress(len(rows), free + (1 + grid.fit) * len(adapters))
        if grid.fit:
            adapter = self._adapter(self.data.plan.budget.epsilon)
            sigma = adapter.noise.noise_multiplier
            noisy = [self.release(adapter, read, given, sigma) for _ in range(grid.draws)]
            self.fit(adapter, noisy, truth, given)
        return rows

    @override
    def released(self, rows: Sequence[LabelScores]) -> LabelScores:
        return next(row for row in rows if (row.method, row.decide) == (self._task.mechanism.type, ""))

    def _adapter(self, epsilon: float) -> Any:
        return once_adapter_of(self._task, self.noise(self._task, epsilon))

    def fit(self, adapter: A, released: Sequence[np.ndarray], truth: np.ndarray, given: Pass) -> LabelScores:
        """Fit the mechanism's parameters to all rows, for :attr:`fitted`, and to each half, for the other half.

        Returns:
            One row, without what is private of it, of answers by the fit to the other half.

        Raises:
            TypeError: the mechanism has no parameters to fit.
        """
        raise TypeError(f"{self._task.mechanism.type} has nothing to fit")

    def _scored(
        self, method: str, adapter: A, released: Sequence[np.ndarray], truth: np.ndarray, given: Pass, *, sigma: float
    ) -> LabelScores:
        """One row: all questions answered from each release."""
        believed = np.array([self.probabilities(adapter, release, sigma, given) for release in released])
        return scored(method, believed, truth, sigma)


def scored(method: str, believed: np.ndarray, truth: np.ndarray, sigma: float, decide: str = "") -> LabelScores:
    """One row of the table, from scores with shape (releases, questions, labels)."""
    right = believed.argmax(axis=2) == truth
    row = score(method, right.mean(axis=0), sigma=sigma, decide=decide)
    values: dict[str, Any] = sureness(right.astype(np.float64), believed.max(axis=2))
    return replace(row, **values)


Linear = TypeVar("Linear", PrototypesAdapter, SoftmaxRegressionAdapter)


class LinearEvaluator(OnceEvaluator[Linear], Generic[Linear]):
    """Measures releases of a vector for each label, with which questions are compared at a temperature."""

    _questions: np.ndarray
    """Embeddings of the questions, float64 (questions, d)."""

    @abstractmethod
    def logits(self, adapter: Linear, released: np.ndarray, sigma: float, given: Pass) -> np.ndarray:
        """Scores of all questions before the temperature, shape (questions, labels); arguments as of
        :meth:`probabilities`."""

    def embed_questions(self, given: Pass) -> int:
        """Embed the questions; return their dimension."""
        field = self.data.specification.input_field
        self._questions = given.embedder.embed([one.query[field] for one in given.asked]).astype(np.float64)
        return self._questions.shape[1]

    @override
    def probabilities(self, adapter: Linear, released: np.ndarray, sigma: float, given: Pass) -> np.ndarray:
        logits = self.logits(adapter, released, sigma, given)
        probabilities: np.ndarray = special.softmax(logits / adapter.written.temperature, axis=-1)
        return probabilities

    def fit(self, adapter: Linear, released: Sequence[np.ndarray], truth: np.ndarray, given: Pass) -> LabelScores:
        """Fit the temperature (:meth:`OnceEvaluator.fit`)."""
        sigma, default = adapter.noise.noise_multiplier, adapter.written.temperature
        logits = np.array([self.logits(adapter, release, sigma, given) for release in released])
        temperature = np.empty((len(truth), 1))
        for seen, unseen in halves(len(truth)):
            temperature[unseen] = fit_temperature(truth[seen], logits[:, seen], default)
        self.fitted = {"temperature": round(fit_temperature(truth, logits, default), 4), **self.enough}
        believed = special.softmax(logits / temperature, axis=-1)
        return scored(adapter.written.type, believed, truth, sigma, decide="fitted")


class PrototypesEvaluator(LinearEvaluator[PrototypesAdapter]):
    """Measures tasks with ``mechanism: {type: prototypes}``."""

    @override
    def read(self, adapter: PrototypesAdapter, given: Pass) -> FixedPoint:
        dimension = self.embed_questions(given)
        return adapter.sums(dimension).sum(map(adapter.labelled, given.store.every_unit(NAME)))

    @override
    def logits(self, adapter: PrototypesAdapter, released: np.ndarray, sigma: float, given: Pass) -> np.ndarray:
        prototypes = adapter.reader(released, sigma, self.data.specification, given.embedder).prototypes
        cosines: np.ndarray = self._questions @ prototypes.directions.T
        return cosines


class SoftmaxRegressionEvaluator(LinearEvaluator[SoftmaxRegressionAdapter]):
    """Measures tasks with ``mechanism: {type: softmax_regression}``."""

    @override
    def read(self, adapter: SoftmaxRegressionAdapter, given: Pass) -> PackedUnits:
        regression = self._regression(adapter, given, self.embed_questions(given))
        share = adapter.written.left_out
        part = Part(NAME, share, left_out=False) if share else None
        return regression.pack(map(adapter.labelled, given.store.every_unit(NAME, part=part)))

    @override
    def release(self, adapter: SoftmaxRegressionAdapter, read: PackedUnits, given: Pass, sigma: float) -> np.ndarray:
        sentences = given.embedder.embed(adapter.public_texts(self.data.field))
        regression = self._regression(adapter, given, self._questions.shape[1])
        return regression.descend(read, start(sentences), regression.sigma if sigma else None)

    @override
    def logits(self, adapter: SoftmaxRegressionAdapter, released: np.ndarray, sigma: float, given: Pass) -> np.ndarray:
        scores: np.ndarray = self._questions @ released.T
        return scores

    def _regression(self, adapter: SoftmaxRegressionAdapter, given: Pass, dimension: int) -> SoftmaxRegression:
        return adapter.regression(dimension, given.store.get(NAME).public_size)


class SyntheticExemplarsEvaluator(OnceEvaluator[SyntheticExemplarsAdapter]):
    """Measures tasks with ``mechanism: {type: synthetic_exemplars, ...}``."""

    @override
    def read(self, adapter: SyntheticExemplarsAdapter, given: Pass) -> FixedPoint:
        public = given.embedder.embed(adapter.public_texts(self.data.field))
        return adapter.votes(public).votes(map(adapter.labelled, given.store.every_unit(NAME)))

    @override
    def probabilities(
        self, adapter: SyntheticExemplarsAdapter, released: np.ndarray, sigma: float, given: Pass
    ) -> np.ndarray:
        shown = adapter.shown(released, self.data.specification, given.embedder)
        answers: np.ndarray = given.run(_answers(self.data.specification, shown, given))
        return answers


async def _answers(task: TaskSpec, shown: Slot, given: Pass) -> np.ndarray:
    """The engine's answers to all questions; zero-shot's where it has none."""
    answers = []
    for question in given.asked:
        (output,) = await given.engine.contributions(task, question.query, [shown], question.zero_shot)
        answers.append(question.zero_shot.probabilities if output is None else output)
    return np.array(answers)
