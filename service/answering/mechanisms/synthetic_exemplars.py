"""``synthetic_exemplars``: public candidates that units vote for, once; the engine is shown the chosen ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from accounting.plans.mechanisms import SyntheticExemplarsMechanism
from accounting.plans.tasks import ClassifyTask
from accounting.privacy.profiles import Gaussian
from aggregation.exemplar_votes import ExemplarVotes, chosen
from aggregation.rnm_gaussian import probability_correct, required_margin
from exemplar_store import Exemplar, Slot
from service.answering.mechanisms.adapter import Answer, OnceLabelAdapter, Reader, Show, Write, scored
from service.answering.mechanisms.outlook import RELIABLE, Outlook
from service.engines.embedding.embedder import TextEmbedder
from service.engines.task import TaskSpec

_TYPICAL_LEAD = 0.1
"""A public guess, for planning only: by which share of a label's votes a candidate leads another."""

_TYPICAL_CANDIDATES = 20
"""Candidates of each label, where the plan does not list them yet."""


@dataclass(frozen=True)
class FewShots(Reader):
    """The engine's own answer with the chosen exemplars in the prompt: no private data, for every caller."""

    spec: TaskSpec
    task: ClassifyTask
    exemplars: Slot
    show: Show

    @override
    async def answer(self, query: Mapping[str, str], asker: str) -> Answer:
        scores = np.asarray(await self.show(replace(self.spec, asker=asker), query, self.exemplars))
        return scored(self.task, scores)


class SyntheticExemplarsAdapter(OnceLabelAdapter[SyntheticExemplarsMechanism, Gaussian]):
    """The adapter of ``synthetic_exemplars``."""

    schema = SyntheticExemplarsMechanism
    profile = Gaussian
    example = SyntheticExemplarsMechanism(type="synthetic_exemplars", candidates=())
    about = "Public exemplars chosen by the units' votes, once: every question is asked with them."
    plainly = (
        "The rows vote, once and with random noise, for examples that an admin had listed as public. A model "
        "sees the examples with the most votes, and no row."
    )
    calls = 2  # without exemplars, as every engine is asked first, and with them

    def public_texts(self, field: str) -> Sequence[str]:
        """See :class:`.adapter.OnceAdapter`: the candidates'."""
        return [candidate[field] for candidate in self.written.candidates]

    @override
    def make(self, units: Iterable[Sequence[Exemplar]], public: np.ndarray, write: Write, public_size: int) -> Answer:
        noisy_votes = self.votes(public).release(self.labelled(unit) for unit in units)
        votes = {str(number): float(vote) for number, vote in enumerate(noisy_votes)}
        return {"made_once": self.written.type, "votes": votes}

    @override
    def open(self, made: Mapping[str, Any], spec: TaskSpec, embedder: TextEmbedder, show: Show) -> FewShots:
        slot = self.shown(self._noisy_votes(made), spec, embedder)
        # A cache of prompts must share nothing with private slots; and of what is public nothing is left out.
        unshared = f"public exemplars of {spec.knowledge_base}"
        return FewShots(replace(spec, knowledge_base=unshared, slot_tokens=0), self.task, slot, show)

    def votes(self, public: np.ndarray) -> ExemplarVotes:
        """The signed mechanism for candidates of such embeddings."""
        return ExemplarVotes(self.noise.noise_multiplier, public, self._labels)

    @override
    def chosen(self, made: Mapping[str, Any]) -> list[dict[str, str]]:
        return self._chosen(self._noisy_votes(made))

    def shown(self, noisy_votes: np.ndarray, spec: TaskSpec, embedder: TextEmbedder) -> Slot:
        """The exemplars that such votes choose, as the engine is shown them."""
        fields = self._chosen(noisy_votes)
        embeddings = embedder.embed([row[spec.input_field] for row in fields])
        return tuple(Exemplar(row, embedding) for row, embedding in zip(fields, embeddings, strict=True))

    def _noisy_votes(self, made: Mapping[str, Any]) -> np.ndarray:
        return np.array([made["votes"][str(number)] for number in range(len(self.written.candidates))])

    def _chosen(self, noisy_votes: np.ndarray) -> list[dict[str, str]]:
        numbers = chosen(noisy_votes, self._labels, self.written.per_label)
        return [self.written.candidates[number] for number in numbers]

    @property
    def _labels(self) -> list[int]:
        """The index of each candidate's label."""
        return [self.task.labels.index(candidate[self.task.label_field]) for candidate in self.written.candidates]

    @property
    def exemplars(self) -> int:
        """See :class:`.adapter.Adapter`: the chosen ones."""
        return self.written.per_label * len(self.task.labels)

    @override
    def outlook(self) -> Outlook:
        sigma, labels = self.noise.noise_multiplier, len(self.task.labels)
        candidates = max(2, len(self.written.candidates) // labels or _TYPICAL_CANDIDATES)
        return Outlook(
            noise={"noise_multiplier": sigma},
            noise_words=f"σ {sigma:.1f} votes",
            head=f"Gaussian noise of {sigma:.1f} votes on each of {candidates} candidates of each label",
            needed=required_margin(sigma, candidates, RELIABLE) / _TYPICAL_LEAD,
            slots_mean="units of each label",
            outcome=f"noise leaves a candidate its lead of {100 * _TYPICAL_LEAD:.0f} % of the votes",
            chance=lambda units: probability_correct(_TYPICAL_LEAD * units, sigma, candidates),
            rule="the best examples are chosen if each label has {needed} units; it has about {all}",
            remedies="more ε, fewer candidates, more exemplars before it is signed",
            notes=" Made when the plan is signed, from the exemplars stored then.",
            demanding=1.0,
            instead="Noise mostly chooses: answers are expected to be those of candidates taken at random, which are "
            "free.",
        )
