"""``keyword_joint_em``: an ordered sequence of words of a public domain, and a sentence made of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import special
from typing_extensions import override

from accounting.plans.mechanisms import KeywordJointEmMechanism
from accounting.privacy.profiles import BoundedRange
from aggregation.keyword_joint_em import JointExponentialMechanism, required_votes
from aggregation.keywords import keywords
from service.answering.mechanisms.adapter import (
    Aggregator,
    Answer,
    Outputs,
    Public,
    Reconstruct,
    TextAdapter,
    sentence,
    words_of,
)
from service.answering.mechanisms.outlook import RELIABLE, REMEDIES, Outlook
from service.answering.queries import InvalidQueryError
from service.engines.private_threads import privately


@dataclass(frozen=True)
class RankedKeywords(Aggregator):
    """An ordered sequence of words of a public domain, and a sentence made of them."""

    mechanism: JointExponentialMechanism
    domain: Sequence[str]
    reconstruct: Reconstruct

    @override
    async def release(self, outputs: Outputs) -> Answer:
        words = await privately(lambda: self.mechanism.release(map(words_of, outputs), self.domain))
        return await sentence(words, True, self.reconstruct)


class KeywordJointEmAdapter(TextAdapter[KeywordJointEmMechanism, BoundedRange]):
    """The adapter of ``keyword_joint_em``."""

    schema = KeywordJointEmMechanism
    profile = BoundedRange
    example = KeywordJointEmMechanism(type="keyword_joint_em", k=5)
    about = "A fixed number of words of the question and of public answers, ranked and made a sentence."
    plainly = (
        "Each slot answers in words. A few words are drawn at random from public ones, those preferred that "
        "many slots use, and a model makes a sentence of them: no answer of a slot leaves."
    )
    reconstructs = True

    @property
    def mechanism(self) -> JointExponentialMechanism:
        """The signed mechanism."""
        return JointExponentialMechanism(self.noise.epsilon, self.written.k)

    @override
    async def prepare(self, public: Public) -> RankedKeywords:
        domain = public_domain(public.query, [*self.candidates(public.zero_shot), *self.task.public_answers])
        if len(domain) < self.written.k:
            raise InvalidQueryError(
                f"the query and its zero-shot answers have {len(domain)} different keywords, and this task "
                f"releases {self.written.k}: ask with more words"
            )
        return RankedKeywords(self.mechanism, domain, self.sentences(public))

    def outlook(self) -> Outlook:
        """See :class:`.adapter.Adapter`; ``epsilon`` is of one answer."""
        epsilon, k, words = self.noise.epsilon, self.written.k, self.written.typical_domain
        # Of the C(words, k) sets, all but one lose that number of slots: see `required_votes`, the inverse of this.
        rate = self.mechanism.rate
        others = math.comb(words, k) - 1
        odds_against = math.log(others) if others else -math.inf
        return Outlook(
            noise={"epsilon": epsilon},
            noise_words=f"ε {epsilon:.2f}",
            head=f"{k} ranked words each, drawn with ε = {epsilon:.2f} from about {words} public ones",
            needed=required_votes(epsilon, k, words, RELIABLE),
            slots_mean=f"slots naming each of {k} words and none of the others",
            outcome="these words and no others are released",
            chance=lambda slots: float(special.expit(rate * slots - odds_against)),
            rule=f"{k} words are released if {{needed}} of {{all}} slots name each of them",
            remedies=f"{REMEDIES}, a smaller k",
        )


def public_domain(query: Mapping[str, str], answers: Sequence[str]) -> list[str]:
    """The words that a release may choose from: those of the query and of public answers, sorted."""
    return sorted(frozenset[str]().union(*map(keywords, [*query.values(), *answers])))
