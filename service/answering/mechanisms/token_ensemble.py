"""``token_ensemble``: the language model writes the answer, token by token, from the noisy consensus of the slots."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special
from typing_extensions import override

from accounting.plans.mechanisms import TokenEnsembleMechanism
from accounting.privacy import token_ensemble as profiles
from accounting.privacy.guided_tokens import GuidedTokens
from aggregation.keyword_ptr import KeywordPtr
from aggregation.token_ensemble import TokenEnsemble
from service.answering.mechanisms.adapter import Aggregator, Answer, Public, TextAdapter
from service.answering.mechanisms.keyword_ptr import TestedKeywords, keyword_ptr
from service.answering.mechanisms.outlook import DEMANDING, RELIABLE, Outlook
from service.engines.task import Sentence, Writing
from spelling.lookalikes import LABEL

_HEARD = 2.0  # nats: a token that is unlikely without exemplars becomes as likely as not


@dataclass(frozen=True)
class Written:
    """An answer that the slots write. Where they write nothing, the zero-shot answer if no rule may forbid it."""

    writing: Writing
    fallback: str
    before: Aggregator | None = None
    words: int = 0

    def answer(self, text: str, keywords: Sequence[str]) -> Answer:
        """What leaves: the text that was written, else the fallback, or an empty text if a rule may forbid it."""
        named = {} if self.before is None else {"keywords": keywords}
        if text:
            method = "written token by token, each drawn under the slots' influence"
            return {"text": text, **named, "method": method, "fallback": False}
        rules = self.writing
        forbidden = rules.regex or rules.json_schema or rules.forbids(self.fallback)
        method = "nothing was written" if forbidden else "the zero-shot answer: nothing was written"
        return {"text": "" if forbidden else self.fallback, **named, "method": method, "fallback": True}


async def _unsaid(words: Sequence[str], ordered: bool) -> Sentence:
    return Sentence("", "")


class TokenEnsembleAdapter(TextAdapter[TokenEnsembleMechanism, profiles.TokenEnsembleProfile]):
    """The adapter of ``token_ensemble`` where each answer is released by itself."""

    schema = TokenEnsembleMechanism
    profile = profiles.TokenEnsembleProfile
    example = TokenEnsembleMechanism(type="token_ensemble")
    about = "A text that the language model writes, each token drawn under the slots' influence."
    plainly = (
        "The model writes the answer piece by piece. Each piece is drawn at random from what it would write "
        "without rows, which the slots together may change by a limited amount."
    )
    public_calls = 2  # zero-shot, and the model beside the slots

    @property
    def pull(self) -> float:
        """The most that one slot moves a token's log-odds, in nats of the distribution that is drawn from."""
        return self.written.pull(self.noise.epsilon, self.task.ensemble)

    @property
    @override
    def writing(self) -> Writing:
        m = self.written
        ensemble = TokenEnsemble(self.pull, m.reach(self.pull, self.task.ensemble), m.temperature)
        banned = tuple(map(LABEL.fold, m.banned))
        schema = "" if m.json_schema is None else json.dumps(m.json_schema)
        return Writing(ensemble, m.tokens, m.longest, m.top_k, m.gate, banned, m.regex or "", schema)

    @property
    def rounds(self) -> int:
        """See :class:`.adapter.AnswerAdapter`: once more for the words that an answer is written with."""
        return 1 if self.written.after is None else 2

    @override
    async def prepare(self, public: Public) -> Written:
        words = self.words
        before = None if words is None else TestedKeywords(words, "", _unsaid)
        most = 0 if words is None else words.k_max
        return Written(self.writing, next(iter(public.zero_shot.texts), ""), before, most)

    @property
    def words(self) -> KeywordPtr | None:
        """The mechanism that releases words first, as signed."""
        if self.written.after is None or not isinstance(self.noise, GuidedTokens):
            return None
        return keyword_ptr(self.written.after, self.noise.words)

    @override
    def outlook(self) -> Outlook:
        m, n = self.written, self.task.ensemble
        clip = m.reach(self.pull, n)
        weight = self.pull * n * m.temperature / clip
        most, needed, words = 2 * self.pull * n, _HEARD / (2 * self.pull), ""
        if self.words is not None:
            lead = math.ceil(self.words.required_gap(RELIABLE))
            words = f" The words before it leave in 95 of 100 cases if they lead by {lead} slots."
        return Outlook(
            noise={
                "epsilon": self.noise.epsilon,
                "mu": self.noise.mu,
                "clip": clip,
                "weight": weight,
                "log_odds": most,
            },
            noise_words=f"ε {self.noise.epsilon:.3f} a token, log-odds ± {most:.1f}",
            head=f"up to {m.tokens} tokens each, which all slots together move by a weight of {weight:.2f}: the "
            f"log-odds of two tokens by {most:.1f} at most (μ = {self.noise.mu:.2f} an answer)",
            needed=needed,
            slots_mean="slots that prefer another word as clearly as they may",
            outcome="that word has the odds of e² = 7 times what it has without exemplars",
            rule="a word becomes 7 times as likely if {needed} of {all} slots prefer it",
            chance=lambda slots: float(
                special.expit(2 * self.pull * slots - _HEARD + math.log(RELIABLE / (1 - RELIABLE)))
            ),
            remedies=self._remedies(needed / (DEMANDING * n)),
            notes=f"{words} What only one person's exemplars say is not repeated, and must not be.",
            instead="Answers are expected to be the engine's own without exemplars, which are free.",
        )

    def _remedies(self, missing: float) -> str:
        """Advice with the tokens or slots at which the same budget buys ``missing`` times as much weight.

        A token's ε falls with the root of the tokens; slots that show as many exemplars in all cost the same. The clip
        is as large as it need be (:meth:`~accounting.plans.mechanisms.TokenEnsembleMechanism.reach`).
        """
        m, n = self.written, self.task.ensemble
        if self.pull < self.noise.epsilon / 4:
            return "a larger weight"
        tokens, slots = int(m.tokens / missing**2), math.ceil(n * missing)
        shots = n * self.task.shots // slots
        few = f"fewer tokens (about {tokens})" if tokens else "fewer tokens"
        more = f"more slots that show less (about {slots} of {shots} shots)" if shots else "fewer shots"
        return f"more ε, fewer answers, {few}, {more}"
