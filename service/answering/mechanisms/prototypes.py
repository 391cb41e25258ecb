"""``prototypes``: a one-time noisy sum of embeddings for each label; a question has the label it points along."""

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from accounting.plans.mechanisms import PrototypesMechanism
from accounting.plans.tasks import ClassifyTask
from accounting.privacy.profiles import Gaussian
from aggregation.prototypes import Prototypes, PrototypeSums, shrunk
from exemplar_store import Exemplar
from service.answering.mechanisms.adapter import Answer, OnceLabelAdapter, Reader, Show, Write, scored
from service.answering.mechanisms.outlook import Outlook, OutlookOfUnits
from service.engines.embedded.nearest_exemplar import label_directions
from service.engines.embedding.embedder import TextEmbedder
from service.engines.task import TaskSpec


@dataclass(frozen=True)
class NearestPrototype(Reader):
    """The label whose prototype a question points along."""

    prototypes: Prototypes
    task: ClassifyTask
    embedder: TextEmbedder
    field: str

    @override
    async def answer(self, query: Mapping[str, str], asker: str) -> Answer:
        question = (await asyncio.to_thread(self.embedder.embed, [query[self.field]]))[0]
        return scored(self.task, self.prototypes.probabilities(question))


class PrototypesAdapter(OnceLabelAdapter[PrototypesMechanism, Gaussian]):
    """The adapter of ``prototypes``."""

    schema = PrototypesMechanism
    profile = Gaussian
    example = PrototypesMechanism(type="prototypes")
    about = "A prototype of each label, a one-time release: it answers any number of questions."
    plainly = (
        "For each label, what its rows mean is added up, once and with random noise. A question gets the "
        "label whose noisy sum it resembles most, and no row is read again."
    )

    @override
    def make(self, units: Iterable[Sequence[Exemplar]], public: np.ndarray, write: Write, public_size: int) -> Answer:
        dimension = public.shape[1]
        sums = self.sums(dimension).release(self.labelled(unit) for unit in units)
        written = base64.b64encode(sums.astype("<f8").tobytes()).decode()
        return {"made_once": self.written.type, "dimension": dimension, "sums": written}

    @override
    def open(self, made: Mapping[str, Any], spec: TaskSpec, embedder: TextEmbedder, show: Show) -> NearestPrototype:
        sums = np.frombuffer(base64.b64decode(made["sums"]), "<f8").reshape(len(self.task.labels), made["dimension"])
        return self.reader(sums, self.sums(made["dimension"]).sigma, spec, embedder)

    def sums(self, dimension: int) -> PrototypeSums:
        """The signed mechanism for embeddings of such a dimension."""
        return PrototypeSums(self.noise.noise_multiplier, len(self.task.labels), dimension)

    def reader(self, sums: np.ndarray, sigma: float, spec: TaskSpec, embedder: TextEmbedder) -> NearestPrototype:
        """The reader of sums with noise of this standard deviation."""
        directions = shrunk(sums, label_directions(spec, embedder.embed), sigma)
        return NearestPrototype(Prototypes(directions, self.written.temperature), self.task, embedder, spec.input_field)

    @override
    def outlook(self) -> Outlook:
        sigma, labels = self.noise.noise_multiplier, len(self.task.labels)
        head = f"Gaussian noise of {sigma:.1f} on each coordinate of each of {labels} labels' sums"
        return OutlookOfUnits.of(sigma, head=head, noise_words=f"σ {sigma:.1f}")
