"""How often a task's answers would be right, from noisy counts: a rehearsal on the knowledge base's own units.

Each unit is, by a coin of its own, a *questioner* or an *answerer*. Questioners get random priorities; the first m of
them ask one of their exemplars each, under numbers 1 to m. Each answerer draws, by coins of its own, which of the m
numbers it takes part in (each with probability q, whether anybody asks under it or not), keeps at most k of these,
chosen at random, and goes to one slot of each. The task's own mechanism, with its plan's noise, then releases R answers
to each question from the same slots. All that leaves is three counts with Gaussian noise: of right answers, each
counting 1/R, of questions answered, and of questions that zero-shot answers rightly.

What one unit moves. Couple the runs with it and without it: the other units' coins are the same.

- Answerers draw alike for all m numbers, so who asks under which does not matter: let *a questioner* take a free
  number, or that of one it displaces. Only this question changes. Its counts are (0, 0, 0) or (c, 1, b) with c in
  [0, 1] and b in {0, 1}: no two such points differ by more than 1 in any of the three.
- *An answerer* changes one slot of at most k questions. The law of an answer thereby changes by at most τ in total
  variation, the profile h(0) of one answer of the mechanism. So each of at most kR answers, drawn independently, can be
  drawn in both runs together so that the two differ with probability at most τ. Then more than d differ with
  probability at most exp(-kR·KL((d+1)/kR ‖ τ)) (Chernoff), and d is chosen so that this is below 1e-16. If no more
  differ, right answers change by at most d/R; the other two counts do not change.

A unit is one or the other, never both. With Δ = max(√3, d/R) and w = √((Δ² - 1)/2), which is at least 1, the vector
(right, w·answered, w·zero-shot) therefore moves by at most Δ in the L2 norm: √(1 + 2w²) = Δ. Noise of standard
deviation Δz on each of its coordinates (so Δz/w on the counts themselves, which stay whole) makes it a Gaussian
mechanism of noise multiplier z, but for 1e-16: for any set S of outcomes, P(S) ≤ P(S, no more than d differ) + 1e-16,
and given both runs' counts Theorem 4 holds. The 1e-16 is not added to the δ that is promised, which is 1e-12 or more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggregation.noise import ONE, add_gaussian_noise, check_sigma, from_fixed_point

REPEATS = 64
"""R. A power of two, so that a count of right answers is a lattice point."""
ESCAPES = 1e-16
"""The probability of more, which the promised δ leaves out."""

_SURE = 1.959963984540054  # standard deviations: 95 % of a Gaussian
_ROUNDING = 2.0**-48  # more than a few operations err by, relatively
_SHARES = np.linspace(0, 1, 1001)


@dataclass(frozen=True)
class Rehearsal:
    """The mechanism with its parameters fixed, all of them public.

    Attributes:
        noise_multiplier: z, noise standard deviation over sensitivity.
        questions: m, how many are asked at most.
        probability: q, of an answerer to take part in a question.
        change: τ, how far one slot moves the law of an answer in total variation.

    Raises:
        ValueError: a parameter is out of its range.
    """

    noise_multiplier: float
    questions: int
    probability: float
    change: float

    def __post_init__(self) -> None:
        if self.questions < 1 or not 0 < self.probability <= 1 or not 0 < self.change <= 1:
            raise ValueError(f"not the parameters of a rehearsal: {self}")
        check_sigma(self.sigma_others, "the noise of noise_multiplier")

    @property
    def most(self) -> int:
        """k, the questions that an answerer takes part in at most: two standard deviations more than expected."""
        expected = self.questions * self.probability
        return min(self.questions, math.ceil(expected + 2 * math.sqrt(expected)))

    @property
    def sensitivity(self) -> float:
        """Δ, how far one unit moves the weighted counts in the L2 norm."""
        return max(math.sqrt(3), most_turned(self.most * REPEATS, self.change) / REPEATS)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on the number of right answers, in questions."""
        return self.sensitivity * self.noise_multiplier

    @property
    def sigma_others(self) -> float:
        """That on the other two, which no answerer moves: w times smaller."""
        return self.sigma / math.sqrt((self.sensitivity**2 - 1) / 2) * (1 + _ROUNDING)

    def release(self, counts: npt.NDArray[np.int64]) -> Counts:
        """Release the counts.

        Args:
            counts: of right answers, of which a question has :data:`REPEATS`; of questions answered; and of questions
                that zero-shot answers rightly. int64 (3,).
        """
        exact = counts * np.array([ONE // REPEATS, ONE, ONE])
        deviations = (self.sigma, self.sigma_others, self.sigma_others)
        noisy = [add_gaussian_noise(exact[i : i + 1], deviation) for i, deviation in enumerate(deviations)]
        return self.seen(from_fixed_point(np.concatenate(noisy)))

    def expected(self, accuracy: float) -> Counts:
        """The counts without noise, if all questions are asked and so large a share is answered rightly by either."""
        right = accuracy * self.questions
        return self.seen(np.array([right, self.questions, right]))

    def seen(self, noisy: Iterable[float]) -> Counts:
        """Noisy counts, in questions, to be read."""
        right, answered, zero_shot = map(float, noisy)
        return Counts(right, answered, zero_shot, self.sigma, self.sigma_others, self.questions)


@dataclass(frozen=True)
class Counts:
    """What left, and what it says. In questions.

    Attributes:
        right: answered rightly, with noise.
        answered: answered at all, with noise.
        zero_shot: answered rightly by zero-shot, with noise.
        sigma: standard deviation of the noise on ``right``.
        sigma_others: that of the noise on the other two.
        questions: how many were asked at most.
    """

    right: float
    answered: float
    zero_shot: float
    sigma: float
    sigma_others: float
    questions: int

    @property
    def accuracy(self) -> tuple[float, float]:
        """Between which shares of answers are right, 95 % sure.

        All shares a at which right - a·answered is not further from 0, its mean, than 95 of 100 times, by the noise and
        by the choice of questions (Fieller's method): sound however few questions were asked.
        """
        return self._between(self.right, self.sigma)

    @property
    def zero_shot_accuracy(self) -> tuple[float, float]:
        """The same of zero-shot alone."""
        return self._between(self.zero_shot, self.sigma_others)

    def _between(self, right: float, sigma: float) -> Range:
        noise = sigma**2 + (_SHARES * self.sigma_others) ** 2
        choice = self.questions * _SHARES * (1 - _SHARES)
        possible = _SHARES[np.abs(right - _SHARES * self.answered) <= _SURE * np.sqrt(noise + choice)]
        return (float(possible[0]), float(possible[-1])) if len(possible) else (0.0, 1.0)


Range = tuple[float, float]


def most_turned(answers: int, change: float) -> int:
    """The least d so that a binomial number exceeds it with probability at most 1e-16, by Chernoff's bound.

    Args:
        answers: how many trials.
        change: each one's probability.
    """

    def suffices(turned: int) -> bool:
        share = (turned + 1) / answers
        if share <= change:
            return False
        rest = (1 - share) * math.log((1 - share) / (1 - change)) if share < 1 else 0.0
        return math.exp(-answers * (share * math.log(share / change) + rest)) <= ESCAPES

    return bisect_left(range(answers), True, key=suffices)  # more than all cannot differ
