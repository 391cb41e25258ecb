"""``prototypes``: a noisy sum of embeddings for each label, made once; a question has the label it points along."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from accounting.mechanisms import PrototypesMechanism
from accounting.privacy.profiles import Gaussian
from accounting.tasks import ClassifyTask
from aggregation.prototypes import Prototypes, PrototypeSums, shrunk
from aggregation.rnm_gaussian import probability_correct, required_margin
from exemplar_store import Exemplar
from service.embedding.embedder import TextEmbedder
from service.engines.embedded.nearest_exemplar import label_directions
from service.engines.protocol import TaskSpec
from service.pipeline.mechanisms.adapter import Answer, OnceAdapter
from service.pipeline.mechanisms.labels import believed
from service.pipeline.mechanisms.outlook import RELIABLE, Outlook

_TYPICAL_LEAD = 0.05
"""A public guess, for planning only: by how much a question is more similar to its label's mean than to another's."""

_FEW = 10.0
"""So many times too few units still beat zero-shot: close questions are lost, clear ones are not."""


@dataclass(frozen=True)
class NearestPrototype:
    """The label whose prototype a question points along."""

    prototypes: Prototypes
    labels: Sequence[str]

    def answer(self, question: np.ndarray) -> Answer:
        """See :class:`.adapter.Reader`."""
        return believed(self.labels, self.prototypes.probabilities(question))


class PrototypesAdapter(OnceAdapter[PrototypesMechanism, Gaussian]):
    """See :class:`.adapter.Adapter`."""

    schema = PrototypesMechanism
    profile = Gaussian
    example = PrototypesMechanism(type="prototypes")
    about = "A prototype of each label, made once: it answers any number of questions."
    task: ClassifyTask

    def make(self, units: Iterable[Sequence[Exemplar]], dimension: int) -> Answer:
        """See :class:`.adapter.OnceAdapter`."""
        sums = self.sums(dimension).release(self.labelled(unit) for unit in units)
        written = base64.b64encode(sums.astype("<f8").tobytes()).decode()
        return {"made_once": self.written.type, "dimension": dimension, "sums": written}

    def open(self, made: Mapping[str, Any], spec: TaskSpec, embedder: TextEmbedder) -> NearestPrototype:
        """See :class:`.adapter.OnceAdapter`."""
        sums = np.frombuffer(base64.b64decode(made["sums"]), "<f8").reshape(len(self.task.labels), made["dimension"])
        return self.reader(sums, self.sums(made["dimension"]).sigma, spec, embedder)

    def sums(self, dimension: int) -> PrototypeSums:
        """The signed mechanism for embeddings of such a dimension."""
        return PrototypeSums(self.noise.noise_multiplier, len(self.task.labels), dimension)

    def labelled(self, unit: Sequence[Exemplar]) -> list[tuple[int, np.ndarray]]:
        """A unit's exemplars as the mechanism takes them; one of no such label is left out."""
        index, field = self._index, self.task.label_field
        return [
            (index[label], exemplar.embedding)
            for exemplar in unit
            if (label := exemplar.fields.get(field, "")) in index and exemplar.embedding is not None
        ]

    def reader(self, sums: np.ndarray, sigma: float, spec: TaskSpec, embedder: TextEmbedder) -> NearestPrototype:
        """What answers from sums with noise of that deviation."""
        directions = shrunk(sums, label_directions(spec, embedder.embed), sigma)
        return NearestPrototype(Prototypes(directions, self.written.temperature), self.task.labels)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.task.labels)}

    def voices(self, public_size: int) -> int:
        """See :class:`.adapter.Adapter`: the units of a label, if there are as many as exemplars, evenly spread."""
        return max(1, public_size // len(self.task.labels))

    def outlook(self) -> Outlook:
        """See :class:`.adapter.Adapter`: with n units a label the noise moves a similarity by σ/n."""
        sigma, labels = self.noise.noise_multiplier, len(self.task.labels)
        return Outlook(
            noise={"noise_multiplier": sigma},
            noise_words=f"σ {sigma:.1f}",
            head=f"Gaussian noise of {sigma:.1f} on each coordinate of each of {labels} labels' sums",
            needed=required_margin(sigma, labels, RELIABLE) / _TYPICAL_LEAD,
            slots_mean="units of each label",
            outcome="noise leaves even a close question its label",
            chance=lambda units: probability_correct(_TYPICAL_LEAD * units, sigma, labels),
            remedies="more ε, fewer labels, more exemplars before it is signed",
            notes=" Made when the plan is signed, of the exemplars there are then. Labels of few units stay near "
            "their sentence, as in zero-shot.",
            demanding=_FEW,
            instead="The labels' sentences mostly decide: most answers are expected to be those of zero-shot, which "
            "are free.",
        )
