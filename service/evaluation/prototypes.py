"""Prototypes, measured: questions are compared with noisy sums."""

from __future__ import annotations

import numpy as np

from aggregation.noise import FixedPoint
from service.evaluation.dataset import NAME
from service.evaluation.evaluator import Pass
from service.evaluation.once import OnceEvaluator
from service.pipeline.mechanisms.prototypes import PrototypesAdapter


class PrototypesEvaluator(OnceEvaluator[PrototypesAdapter]):
    """Of tasks with ``mechanism: {type: prototypes}``."""

    _questions: np.ndarray
    """Their embeddings, (questions, d)."""

    def exact(self, adapter: PrototypesAdapter, given: Pass) -> FixedPoint:
        """See :class:`.once.OnceEvaluator`."""
        self._questions = given.embedder.embed([question.query[given.spec.input_field] for question in given.asked])
        units = map(adapter.labelled, given.store.every_unit(NAME))
        return adapter.sums(self._questions.shape[1]).sum(units)

    def probabilities(self, adapter: PrototypesAdapter, released: np.ndarray, sigma: float, given: Pass) -> np.ndarray:
        """See :class:`.once.OnceEvaluator`."""
        prototypes = adapter.reader(released, sigma, given.spec, given.embedder).prototypes
        return np.array([prototypes.probabilities(question) for question in self._questions])
