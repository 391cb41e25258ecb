"""The noisy embedding mean, attacked where its sensitivity is attained.

Two candidates on either side of the plane's second axis: the answer is the sign of one coordinate of the noisy sum. The
attacked slot turns from one end of a diameter to the other. The other slots, the same for both neighbours, put the
threshold half-way between the two sums, where no attack does better at a loss of 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from accounting.privacy.profiles import Gaussian
from aggregation.embedding_mean import EmbeddingMean
from aggregation.noise import ONE
from tests.privacy.audit import Counts, caught, claim, judge, observe

TRIALS = 1_500
Z = 0.4
CLAIM = claim(Gaussian(Z))

RIGHT, LEFT = np.array([1.0, 0.0]), np.array([-1.0, 0.0])
ABOUT_ZERO = np.array([RIGHT, LEFT])
# Two similar sentences: their centre is (0.8, 0), and each is 0.6 away from it. So is the canary's, clipped to 0.5.
ABOUT_A_CENTRE = np.array([[0.8, 0.6], [0.8, -0.6]])
UP, DOWN = ABOUT_A_CENTRE

PLAIN = EmbeddingMean(Z)
CENTRED = EmbeddingMean(Z, radius=0.5, centred=True, slots=3)


def shifted(by: float) -> list[np.ndarray]:
    """Two unit vectors whose first coordinates sum to ``by``, and the second to zero."""
    rest = math.sqrt(1 - by * by / 4)
    return [np.array([by / 2, rest]), np.array([by / 2, -rest])]


def counts(
    mechanism: EmbeddingMean,
    candidates: np.ndarray,
    before: list[np.ndarray | None],
    after: list[np.ndarray | None],
) -> Counts:
    return observe(lambda: mechanism.release(before, candidates), lambda: mechanism.release(after, candidates), TRIALS)


WORST = (ABOUT_ZERO, [*shifted(0.0), RIGHT], [*shifted(0.0), LEFT])
WORST_CENTRED = (ABOUT_A_CENTRE, [UP, DOWN, UP], [UP, DOWN, DOWN])


@pytest.mark.parametrize(("mechanism", "setting"), [(PLAIN, WORST), (CENTRED, WORST_CENTRED)], ids=["plain", "centred"])
def test_the_claim_survives_the_worst_case(mechanism, setting) -> None:
    """A claim for 1.5 times the noise escapes with probability 4e-12."""
    found = counts(mechanism, *setting)
    assert not caught(found, CLAIM), judge(found, CLAIM)
    assert caught(found, claim(Gaussian(1.5 * Z))), found


@pytest.mark.parametrize("other", [None, np.array([np.nan, 0.0]), 3 * LEFT], ids=["removed", "NaN", "too long"])
def test_the_claim_survives_removals_and_additions(other: np.ndarray | None) -> None:
    """The attack tries both directions, so it tests adding with removing. A grossly wrong claim escapes with 4e-13."""
    for found in (
        counts(PLAIN, ABOUT_ZERO, [*shifted(-0.5), RIGHT], [*shifted(-0.5), other]),
        counts(CENTRED, ABOUT_A_CENTRE, [DOWN, UP, UP], [DOWN, UP, other]),
    ):
        assert not caught(found, CLAIM), judge(found, CLAIM)
        assert caught(found, claim(Gaussian(2.5))), found


class SensitivityOne(EmbeddingMean):
    """Noise for a sum that moves by the radius: DP-ICL's theorem 4."""

    @property
    def sensitivity(self) -> float:
        return self.radius


class NearestToTheNoiselessSum(EmbeddingMean):
    """The last line of DP-ICL's algorithm 3, taken at its word."""

    def release(self, contributions: Iterable[np.ndarray | None], candidates: np.ndarray) -> int:
        return self.select(self.sum(contributions, self.centre(candidates)) / ONE, candidates)


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        (SensitivityOne(Z), WORST),
        (SensitivityOne(Z, 0.5, True, 3), WORST_CENTRED),
        (NearestToTheNoiselessSum(Z), WORST),
    ],
    ids=["a sensitivity of one", "a sensitivity of one, centred", "a noiseless comparison"],
)
def test_a_broken_variant_is_caught(wrong: EmbeddingMean, setting) -> None:
    """Each is missed with a probability below 1e-100."""
    assert caught(counts(wrong, *setting), CLAIM)
