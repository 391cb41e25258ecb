"""``softmax_regression``: one-time noisy weights of each label; a question has the label whose weights it fits best."""

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special
from typing_extensions import override

from accounting.plans.mechanisms import SoftmaxRegressionMechanism
from accounting.plans.tasks import ClassifyTask
from accounting.privacy.profiles import Gaussian
from aggregation.accuracy import Accuracy, RightAnswers
from aggregation.softmax_regression import STEPS, SoftmaxRegression
from exemplar_store import Exemplar
from service.answering.mechanisms.adapter import Answer, OnceLabelAdapter, Reader, Show, Write, scored
from service.answering.mechanisms.outlook import Outlook, OutlookOfUnits
from service.engines.embedded.nearest_exemplar import directions_of, sentences_of_labels
from service.engines.embedding.embedder import TextEmbedder
from service.engines.task import TaskSpec

ZERO_SHOT_TEMPERATURE = 0.055
"""Temperature at which cosines with the labels' sentences are zero-shot's probabilities: the weights' public start."""


@dataclass(frozen=True)
class Regression(Reader):
    """The label whose weights fit a question best."""

    weights: np.ndarray
    task: ClassifyTask
    embedder: TextEmbedder
    field: str
    temperature: float

    @override
    async def answer(self, query: Mapping[str, str], asker: str) -> Answer:
        question = (await asyncio.to_thread(self.embedder.embed, [query[self.field]]))[0]
        return scored(self.task, special.softmax(self.weights @ question.astype(np.float64) / self.temperature))


class SoftmaxRegressionAdapter(OnceLabelAdapter[SoftmaxRegressionMechanism, Gaussian]):
    """The adapter of ``softmax_regression``."""

    schema = SoftmaxRegressionMechanism
    profile = Gaussian
    example = SoftmaxRegressionMechanism(type="softmax_regression")
    about = "Softmax regression, a one-time release: it answers any number of questions."
    plainly = (
        "Numbers that weigh words and meanings for each label are fitted to the rows, once and with random "
        "noise in each step. They label every question, and no row is read again."
    )

    @override
    def public_texts(self, field: str) -> Sequence[str]:
        return sentences_of_labels(self.task)

    @override
    def make(self, units: Iterable[Sequence[Exemplar]], public: np.ndarray, write: Write, public_size: int) -> Answer:
        regression = self.regression(public.shape[1], public_size)
        weights = regression.release((self.labelled(unit) for unit in units), start(public))
        written = base64.b64encode(weights.astype("<f8").tobytes()).decode()
        return {"made_once": self.written.type, "dimension": regression.dimension, "weights": written}

    @override
    def measure(self, made: Mapping[str, Any], units: Iterable[Sequence[Exemplar]]) -> Accuracy:
        weights, labelled = self.weights(made), (self.labelled(unit) for unit in units)
        right = self.regression(weights.shape[1], public_size=1).right(labelled, weights)
        return RightAnswers(self.noise.noise_multiplier).release(right)

    @override
    def open(self, made: Mapping[str, Any], spec: TaskSpec, embedder: TextEmbedder, show: Show) -> Regression:
        return Regression(self.weights(made), self.task, embedder, spec.input_field, self.written.temperature)

    def weights(self, made: Mapping[str, Any]) -> np.ndarray:
        """The weights of a release, shape (labels, d)."""
        return np.frombuffer(base64.b64decode(made["weights"]), "<f8").reshape(len(self.task.labels), -1)

    def regression(self, dimension: int, public_size: int) -> SoftmaxRegression:
        """The signed mechanism for embeddings of such a dimension, and a public number of exemplars."""
        units = self.made_of(public_size)
        return SoftmaxRegression(self.noise.noise_multiplier, len(self.task.labels), dimension, units)

    @override
    def outlook(self) -> Outlook:
        z = self.noise.noise_multiplier
        head = f"gradient descent in {STEPS} steps with Gaussian noise, of noise multiplier {z:.1f} together"
        return OutlookOfUnits.of(z, head=head, noise_words=f"z {z:.1f}")


def start(sentences: np.ndarray) -> np.ndarray:
    """Public weights that answer as zero-shot does, shape (labels, d), from embeddings of the labels' sentences."""
    return directions_of(sentences) / ZERO_SHOT_TEMPERATURE
