"""``rnm_gaussian``: the label that noisy votes and zero-shot make likeliest, or that of the largest noisy vote."""

from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from accounting.plans.mechanisms import RnmGaussianMechanism
from accounting.plans.tasks import ClassifyTask
from accounting.privacy.profiles import Gaussian
from aggregation.posterior import LabelPosterior, PosteriorParameters
from aggregation.rnm_gaussian import RnmGaussian, probability_correct, required_margin
from service.answering.mechanisms.adapter import Aggregator, Answer, AnswerAdapter, Outputs, Public, scored
from service.answering.mechanisms.outlook import RELIABLE, Outlook
from service.engines.private_threads import privately

_DIGITS = 1
"""Decimals of a vote that are shown. Noise of less than a vote is rare."""
_FAINT = 0.25
"""Reliability below which zero-shot weighs more than the votes."""
_HEARD = 0.6
"""How much of a prior that was released once the votes contain, beside zero-shot: they know the same exemplars. With 0
scores are up to 14 points too high on AG News and TREC, with 1 good prototypes lose up to 12 points to votes."""
_QUOTED = 0.5
"""How much of zero-shot the votes of quotes contain: these do not know it, but are right about the same questions."""
_LIKELIER = 4.0
"""An example of how firmly zero-shot is taken to contradict the slots."""


@dataclass(frozen=True)
class LabelVote(Aggregator):
    """The label of the largest noisy vote; or with a posterior the likeliest, given the noisy votes and zero-shot."""

    mechanism: RnmGaussian
    task: ClassifyTask
    prior: np.ndarray
    posterior: LabelPosterior | None = None

    @override
    async def release(self, outputs: Outputs) -> Answer:
        contributions = [output if isinstance(output, np.ndarray) else None for output in outputs]
        noisy_votes = await privately(lambda: self.mechanism.noisy_votes(contributions))
        if self.posterior is None:
            answer: Answer = {"label": self.task.labels[self.mechanism.select(noisy_votes, self.prior)]}
        else:
            answer = scored(self.task, self.posterior.probabilities(noisy_votes, self.prior))
        # All noisy votes are paid for, not only the largest.
        shown = [round(float(vote), _DIGITS) for vote in noisy_votes]
        return {**answer, "votes": dict(zip(self.task.labels, shown, strict=True))}


def posterior_model(written: RnmGaussianMechanism, task: ClassifyTask) -> PosteriorParameters:
    """The posterior's parameters, those that are not written by default.

    Args:
        written: mechanism with ``decide: posterior``.
        task: task that it answers.
    """
    signed, labels = written.calibration, task.labels
    if signed is None:
        raise ValueError("decide: argmax has no posterior")
    echo = _QUOTED if task.slots == "quote" and task.prior_from is None else 1.0
    echo = echo if signed.echo is None else signed.echo
    weights = tuple(signed.label_weights.get(label, 1.0) for label in labels) if signed.label_weights else ()
    return PosteriorParameters(signed.prior, written.decisiveness(len(labels)), signed.lead, echo, weights)


class RnmGaussianAdapter(AnswerAdapter[RnmGaussianMechanism, Gaussian]):
    """The adapter of ``rnm_gaussian``."""

    task: ClassifyTask
    schema = RnmGaussianMechanism
    profile = Gaussian
    example = RnmGaussianMechanism(type="rnm_gaussian", vote="soft")
    about = "A vote with noise, weighed against zero-shot. soft: by probabilities; hard: one a slot."
    plainly = (
        "Each slot votes for a label. Random noise is added to the votes, and one label leaves: no count of votes does."
    )

    @property
    def mechanism(self) -> RnmGaussian:
        """The signed one."""
        z, labels, m = self.noise.noise_multiplier, len(self.task.labels), self.written
        return RnmGaussian(z, labels, m.vote, prior_weight=m.prior_weight or 0.0)

    @property
    def posterior(self) -> LabelPosterior | None:
        """The signed one, if there is one."""
        if self.written.calibration is None:
            return None
        return LabelPosterior(self.mechanism.sigma, self.task.ensemble, posterior_model(self.written, self.task))

    @override
    async def prepare(self, public: Public) -> LabelVote:
        prior = np.asarray(public.zero_shot.probabilities, dtype=np.float64)
        shaped = prior.shape == (len(self.task.labels),) and np.isfinite(prior).all()
        if not shaped or (prior < 0).any() or not prior.any():
            raise ValueError("the engine's zero-shot output is not a distribution over the labels")
        posterior = self.posterior
        if posterior is not None and public.prior is not None:
            model, prior = posterior.calibration, public.prior
            posterior = replace(posterior, calibration=replace(model, echo=_HEARD * model.echo))
        return LabelVote(self.mechanism, self.task, prior, posterior)

    def outlook(self) -> Outlook:
        """See :class:`.adapter.Adapter`; ``noise_votes`` is the standard deviation on each label's votes."""
        sigma, labels = self.mechanism.sigma, len(self.task.labels)
        votes = Outlook(
            noise={"noise_multiplier": self.noise.noise_multiplier, "noise_votes": sigma},
            noise_words=f"σ {sigma:.1f} votes",
            head=f"Gaussian noise of {sigma:.1f} votes on each of {labels} labels",
            needed=required_margin(sigma, labels, RELIABLE),
            slots_mean="slots of lead for one label over every other",
            outcome="this label is released",
            chance=lambda lead: probability_correct(lead, sigma, labels),
            rule="a label wins if {needed} more of {all} slots vote for it than for any other",
        )
        return votes if self.posterior is None else _weighed(votes, self.posterior, labels)


def _weighed(votes: Outlook, posterior: LabelPosterior, labels: int) -> Outlook:
    """The same where the posterior decides: with zero-shot undecided it releases the label of the most noisy votes."""
    slots = posterior.slots
    reliability = posterior.reliability(slots)
    against = posterior.lead_against(_LIKELIER, slots, labels)
    more = "exceed all slots" if against is None else f"be about {against} slots larger"
    return replace(
        votes,
        slots_mean="slots of lead for one label over every other, and zero-shot undecided",
        notes=f" If zero-shot finds the others {_LIKELIER:g} times as likely, the lead must {more}. "
        f"The noisy votes keep {100 * reliability:.0f} % of their weight against zero-shot.",
        drowned=reliability < _FAINT,
        instead="Zero-shot mostly decides: most answers are expected to be the engine's own without exemplars, which "
        "are free.",
    )
