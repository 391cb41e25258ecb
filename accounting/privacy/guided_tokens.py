"""The cost of an answer whose tokens are drawn after, and given, words that were released from the *same* sample.

Proof. Fix neighbours. Let A be the answer if the differing unit is not in the sample and B if it is. The words' law
under A and B has at most the profile h₁ of :class:`.profiles.ProposeTestRelease`, in either order. Whatever words were
released, they are public from then on, so the tokens' law given them has at most the profile h₂ of
:class:`.token_ensemble.TokenEnsemble`, in either order. With r = B/A of the words, the divergence of the answer at
``a = e^x`` is hence at most ``E_A[r h₂(ln(a/r))]``. ``r h₂(ln(a/r))`` is convex in r, so it only grows if the words'
pair is replaced by one that dominates it: that of h₁ on a grid, of losses u with masses p(u) and a certain loss c. So
``h(x) = Σ p(u) h₂(x - u) + c`` is an upper bound, which both orders share, since h₁ and h₂ are symmetric. Between grid
points h, which is convex in e^x, lies below its chord.

With the unit in the knowledge base the answer is (1 - q) A + q B, without it A: the pair that
:func:`accounting.privacy.subsampling.amplify` takes, once for the answer.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from typing_extensions import override

from accounting.privacy.adaptive import Chords
from accounting.privacy.events import Sampling
from accounting.privacy.grid import discretise, second_moment
from accounting.privacy.profiles import Array, ProposeTestRelease, SymmetricProfile
from accounting.privacy.subsampling import amplify
from accounting.privacy.token_ensemble import TokenEnsembleProfile

_STEP = 0.01  # of an answer's deviation
_CUT, _CUT_SHARE = 1e-20, 1e-12  # finite loss of the words that counts as infinite; and as a share of what is
_SLACK = 1e-12  # relative, of sums of positive terms


@dataclass(frozen=True)
class GuidedTokens(TokenEnsembleProfile):
    """Words by propose-test-release, then ``tokens`` tokens, from one sample.

    Args:
        words: first of the two releases.
    """

    words: ProposeTestRelease

    @property
    @override
    def certain_loss(self) -> float:
        return _together(self).last

    @override
    def unsampled(self, count: int) -> tuple[SymmetricProfile, int]:
        return self, count

    @override
    def upper_delta(self, epsilon: Array) -> Array:
        return _together(self)(epsilon)


@lru_cache(maxsize=128)  # a plan has up to 100 tasks
def _together(answer: GuidedTokens) -> Chords:
    """The profile, on a grid that reaches to the largest loss."""
    (pair,) = amplify(answer.words, Sampling("units", 1.0))
    step = _STEP * math.sqrt(second_moment(pair) + answer.mu**2)
    words = discretise(pair, step, max(_CUT, _CUT_SHARE * pair.certain_loss))
    highest = words.low + words.probs.size - 1
    points = highest + math.ceil(answer.epsilon * answer.tokens / step) + 1
    tokens = TokenEnsembleProfile(answer.epsilon, answer.tokens).delta(
        step * np.arange(-highest, points - words.low + 1)
    )
    values = np.convolve(tokens, words.probs, "valid") * (1 + _SLACK) + words.infinity
    return Chords(step * np.arange(points + 1, dtype=np.float64), values)
