"""``rehearsal``: noisy counts of how often a task's answers would be right, made once; they answer no question."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from scipy import special

from accounting.mechanisms import RehearsalMechanism, RnmGaussianMechanism
from accounting.plan import TaskNoise
from accounting.privacy.profiles import Gaussian
from accounting.tasks import ClassifyTask
from aggregation.rehearsal import Counts, Rehearsal
from exemplar_store import Exemplar
from service.embedding.embedder import TextEmbedder
from service.engines.protocol import TaskSpec
from service.pipeline.mechanisms.adapter import Answer, OnceAdapter, Show, Write
from service.pipeline.mechanisms.outlook import RELIABLE, Outlook
from service.pipeline.queries import InvalidQueryError

_TYPICAL = 0.8
"""A public guess of the share of right answers, for planning only."""


class RehearsalAdapter(OnceAdapter[RehearsalMechanism, Gaussian]):
    """See :class:`.adapter.Adapter`. What makes it asks an engine: :mod:`service.plans.rehearsing`."""

    schema = RehearsalMechanism
    profile = Gaussian
    example = RehearsalMechanism(
        type="rehearsal",
        questions=500,
        asking=0.1,
        participation=0.01,
        shots=4,
        ensemble=100,
        slot_cap=8,
        noise_multiplier=1.0,
        rehearsed=RnmGaussianMechanism(type="rnm_gaussian"),
    )
    about = "How often another task's answers would be right."
    task: ClassifyTask

    @property
    def mechanism(self) -> Rehearsal:
        """The signed one."""
        written = self.written
        change = float(self.rehearsed_noise.mechanism.delta(0.0))
        return Rehearsal(self.noise.noise_multiplier, written.questions, written.participation, change)

    @property
    def rehearsed_noise(self) -> TaskNoise:
        """Of one answer. Who takes part in it is drawn otherwise here than in the plan."""
        return TaskNoise(sampling_probability=1.0, mechanism=Gaussian(self.written.noise_multiplier))

    @property
    def rehearsed(self) -> ClassifyTask:
        """The task that is rehearsed."""
        written = self.written
        return self.task.model_copy(
            update={
                "release": "each",
                "shots": written.shots,
                "ensemble": written.ensemble,
                "max_exemplars": written.slot_cap,
                "mechanism": written.rehearsed,
            }
        )

    def released(self, counts: Counts) -> Answer:
        """Counts as they are stored."""
        noisy = {"right": counts.right, "answered": counts.answered, "without_exemplars": counts.zero_shot}
        return {"made_once": self.written.type, **noisy}

    def counts(self, made: Mapping[str, Any]) -> Counts:
        """The inverse of :meth:`released`."""
        return self.mechanism.seen([made["right"], made["answered"], made["without_exemplars"]])

    def make(self, units: Iterable[Sequence[Exemplar]], public: np.ndarray, write: Write) -> NoReturn:
        """Not without an engine."""
        raise TypeError("a rehearsal asks an engine: dpicl plan rehearse")

    def open(self, made: Mapping[str, Any], spec: TaskSpec, embedder: TextEmbedder, show: Show) -> NoReturn:
        """Nothing can be asked of it."""
        raise InvalidQueryError("a rehearsal has counted answers and gives none; ask the task that was rehearsed")

    def voices(self, public_size: int) -> int:
        """See :class:`.adapter.Adapter`: the questions."""
        return self.written.questions

    def outlook(self) -> Outlook:
        """See :class:`.adapter.Adapter`."""
        mechanism, sigma = self.mechanism, self.mechanism.sigma
        low, high = mechanism.expected(_TYPICAL).accuracy
        return Outlook(
            noise={"noise_multiplier": mechanism.noise_multiplier, "sigma": sigma},
            noise_words=f"σ {sigma:.0f} questions",
            head=f"Gaussian noise of {sigma:.0f} questions on the number of right answers",
            needed=float(special.ndtri(RELIABLE)) * sigma,
            slots_mean="questions answered rightly",
            outcome="noise does not hide them",
            chance=lambda right: float(special.ndtr(right / sigma)),
            remedies="more ε, more questions, a larger knowledge base",
            notes=f" If {100 * _TYPICAL:.0f} % are right, it will say: between {100 * low:.0f} and {100 * high:.0f} %, "
            "95 % sure.",
            instead="The rehearsal is expected to say hardly anything.",
        )
