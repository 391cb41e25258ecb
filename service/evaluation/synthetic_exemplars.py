"""Synthetic exemplars, measured: the engine is asked again for each choice that noise makes."""

from __future__ import annotations

import numpy as np

from aggregation.noise import FixedPoint
from exemplar_store import Slot
from service.evaluation.dataset import NAME
from service.evaluation.evaluator import Pass
from service.evaluation.once import OnceEvaluator
from service.pipeline.mechanisms.synthetic_exemplars import SyntheticExemplarsAdapter


class SyntheticExemplarsEvaluator(OnceEvaluator[SyntheticExemplarsAdapter]):
    """Of tasks with ``mechanism: {type: synthetic_exemplars, ...}``."""

    def exact(self, adapter: SyntheticExemplarsAdapter, given: Pass) -> FixedPoint:
        """See :class:`.once.OnceEvaluator`."""
        public = given.embedder.embed(adapter.public_texts(given.spec.input_field))
        return adapter.votes(public).votes(map(adapter.labelled, given.store.every_unit(NAME)))

    def probabilities(
        self, adapter: SyntheticExemplarsAdapter, released: np.ndarray, sigma: float, given: Pass
    ) -> np.ndarray:
        """See :class:`.once.OnceEvaluator`."""
        answers: np.ndarray = given.run(_answers(adapter.shown(released, given.spec, given.embedder), given))
        return answers


async def _answers(shown: Slot, given: Pass) -> np.ndarray:
    """What the engine says of all questions; zero-shot's, where it says nothing."""
    answers = []
    for question in given.asked:
        (output,) = await given.engine.contributions(given.spec, question.query, [shown], question.zero_shot)
        answers.append(question.zero_shot.probabilities if output is None else output)
    return np.array(answers)
