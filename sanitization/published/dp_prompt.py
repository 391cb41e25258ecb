"""DP-Prompt (Utpala, Hooker, Chen: "Locally Differentially Private Document Generation Using Zero Shot Prompting",
Findings of EMNLP 2023, arXiv 2310.16111), which PrivacyRestore calls paraphrase: a local model writes the text anew.

Each token is drawn with probability proportional to e^(u/T), u the model's logits clipped to [a, b]. This is an
exponential mechanism whose utilities have sensitivity b-a, so n tokens are (2n(b-a)/T)-differentially private, for any
two texts whatever. The claim holds, and is nearly exact while (b-a)/T is well below the logarithm of the number of
tokens (:func:`true_epsilon`). It needs *all* tokens to be possible: top-k or nucleus sampling after it makes ε
infinite. a and b must be public.

With a = 0, b = 1 and T = 1.41, as PrivacyRestore has it, no token is more than about twice as likely as another, so the
paraphrase consists of random tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sanitization.vocabulary import FloatArray, IntArray

_PROMPT = "Document: {text}\nParaphrase of the document:"


class ClippedModel(Protocol):
    """A local language model."""

    @property
    def tokens(self) -> int:
        """Number of tokens that it knows."""
        ...

    def draw_clipped(
        self, prompts: Sequence[str], *, most: int, low: float, high: float, temperature: float
    ) -> list[str]:
        """Continue each prompt by at most ``most`` tokens, each drawn from all tokens by :func:`clipped_law`."""
        ...


@dataclass(frozen=True)
class DpPrompt:
    """Paraphrases texts.

    Args:
        model: local model.
        low: least logit (a).
        high: largest logit (b).
        temperature: T.
        most: largest number of tokens of a paraphrase (n). It is public.
    """

    model: ClippedModel
    low: float
    high: float
    temperature: float
    most: int

    @property
    def claimed(self) -> float:
        """ε of a text, as the paper has it: 2n(b-a)/T."""
        return 2 * self.most * (self.high - self.low) / self.temperature

    @property
    def true_epsilon(self) -> float:
        """ε of a text: n times that of a token, whatever the text and the model."""
        return self.most * true_epsilon(self.model.tokens, self.low, self.high, self.temperature)

    def paraphrase(self, texts: Sequence[str]) -> list[str]:
        """Draw a paraphrase of each text."""
        prompts = [_PROMPT.format(text=text) for text in texts]
        return self.model.draw_clipped(
            prompts, most=self.most, low=self.low, high=self.high, temperature=self.temperature
        )


@dataclass(frozen=True)
class WorstContexts:
    """One token, drawn after the two contexts that differ most: the model expects the first token, or any but it.

    By enumeration over this channel an audit finds the true ε of a token. No logits within [a, b] give a larger one:
    the probability of a token grows with its own logit and falls with every other one.

    Args:
        tokens: number of tokens that the model knows.
        low: least logit.
        high: largest logit.
        temperature: T.
    """

    tokens: int
    low: float
    high: float
    temperature: float

    @property
    def inputs(self) -> Sequence[str]:
        """The contexts."""
        return ["a text that expects the token", "a text that expects any but it"]

    @property
    def outputs(self) -> Sequence[str]:
        """The token, and the others."""
        return ["the token", *(f"token {at}" for at in range(1, self.tokens))]

    def rows(self, x: IntArray) -> FloatArray:
        """The laws of the token after the contexts x, (len(x), tokens)."""
        logits = np.full((2, self.tokens), float(self.low))
        logits[0, 0], logits[1, 1:] = self.high, self.high
        return clipped_law(logits, self.low, self.high, self.temperature)[x]


def clipped_law(logits: FloatArray, low: float, high: float, temperature: float) -> FloatArray:
    """Probabilities of tokens, (…, tokens), from their logits."""
    weights = np.exp((np.clip(logits, low, high) - high) / temperature)
    law: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return law


def true_epsilon(tokens: int, low: float, high: float, temperature: float) -> float:
    """The largest ln(P(y|x)/P(y|x′)) of a token that any logits within [a, b] give.

    With s = (b-a)/T and V tokens it is s + ln((1 + (V-1)e^s) / (e^s + V-1)), below 2s.
    """
    step = (high - low) / temperature
    others = math.log(tokens - 1)
    return step + float(np.logaddexp(0, others + step) - np.logaddexp(step, others))


def temperature_for(budget: float, most: int, low: float, high: float) -> float:
    """The T at which ``most`` tokens cost the budget by the paper's formula.

    Table 6 of PrivacyRestore has budget/n instead for two of its three data sets: at its T = 2.08 and 0.78, and
    clipping to [0, 1], 72 and 193 tokens cost 69 and 495, not the 150 of the mechanisms that it is compared with.
    """
    return 2 * most * (high - low) / budget
