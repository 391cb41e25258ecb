"""``rnm_gaussian``: the label of the largest noisy vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.mechanisms import RnmGaussianMechanism
from accounting.privacy.profiles import Gaussian
from aggregation.rnm_gaussian import RnmGaussian, probability_correct, required_margin
from service.pipeline.mechanisms.adapter import Answer, LabelAdapter, Outputs, Public
from service.pipeline.mechanisms.outlook import RELIABLE, Outlook
from service.pipeline.private_threads import privately


@dataclass(frozen=True)
class LabelVote:
    """The label of the largest noisy vote."""

    mechanism: RnmGaussian
    labels: Sequence[str]
    prior: np.ndarray

    async def release(self, outputs: Outputs) -> Answer:
        """See :class:`.adapter.Aggregator`."""
        votes = [output if isinstance(output, np.ndarray) else None for output in outputs]
        return {"label": self.labels[await privately(lambda: self.mechanism.release(votes, self.prior))]}


class RnmGaussianAdapter(LabelAdapter[RnmGaussianMechanism, Gaussian]):
    """See :class:`.adapter.Adapter`."""

    schema = RnmGaussianMechanism
    profile = Gaussian
    noiseless = "service.trials.consensus:most_voted"
    example = RnmGaussianMechanism(type="rnm_gaussian", vote="soft")
    about = "A vote with noise. soft: by probabilities; hard: one a slot."

    @property
    def mechanism(self) -> RnmGaussian:
        """The signed one."""
        z, labels, m = self.noise.noise_multiplier, len(self.task.labels), self.written
        return RnmGaussian(z, labels, m.vote, prior_weight=m.prior_weight)

    async def prepare(self, public: Public) -> LabelVote:
        """See :class:`.adapter.Adapter`."""
        prior = np.asarray(public.zero_shot.probabilities, dtype=np.float64)
        if prior.shape != (len(self.task.labels),) or not np.isfinite(prior).all():
            raise ValueError("the engine's zero-shot output is no distribution over the labels")
        return LabelVote(self.mechanism, self.task.labels, prior)

    def outlook(self) -> Outlook:
        """See :class:`.adapter.Adapter`; ``noise_votes`` is the standard deviation on each label's votes."""
        sigma, labels = self.mechanism.sigma, len(self.task.labels)
        return Outlook(
            noise={"noise_multiplier": self.noise.noise_multiplier, "noise_votes": sigma},
            noise_words=f"σ {sigma:.1f} votes",
            head=f"Gaussian noise of {sigma:.1f} votes on each of {labels} labels",
            needed=required_margin(sigma, labels, RELIABLE),
            slots_mean="slots of lead for one label over every other",
            outcome="this label is released",
            chance=lambda lead: probability_correct(lead, sigma, labels),
        )
