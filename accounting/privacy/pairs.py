"""Lower bounds of ε: what an attacker can certainly learn, by explicit pairs of outputs.

Accountants bound what *every* mechanism of a claim costs (noise of a given multiplier, a bounded range, a test). This
module takes one such mechanism, writes down what it releases with and without a unit, and bounds its ε from below. No
valid accountant can promise less. It shares nothing with what the accountants compute from: no profile, no formula of
amplification, no dominating grid; only the convolution is the PLD accountant's, with its errors on the other side.

The pairs, sampled at rate q, in both directions:

- Gaussian noise: N(0, 1) and N(1/z, 1), cut into bins. (What leaves is the bin: post-processing.)
- Bounded range: two outcomes with the log-ratios t and t - ε (Dong, Durfee and Rogers, arXiv 1909.13830), the same t
  for every answer. An adaptive analyst can do a little better, see :mod:`accounting.privacy.adaptive`.
- An ensemble's tokens: as many such choices, all from the same sample; and all of that, too, where words guide them.
- Propose-test-release: such a choice of k, then the test's noise; or, every time, two gaps of at most 2, of which only
  the certain loss is counted.
- Counts above a threshold: the noise where other slots contribute the same; or, every time, what no other slot does, of
  which only the certain loss is counted.
- ``blocks``, noise on votes or in a ball: the block is drawn with one contribution or with another, of the largest
  norm, at a right angle or opposite. At a right angle the noise along each is independent, and the loss is the sum of
  what either coordinate gives away.
- ``blocks``, anything else: what Theorem 11 (``docs/privacy/sampling.md``) charges for is the mirrored pair, so that is
  bounded here: losses above 0 as with ``units``, and the same below 0.

Every loss is rounded to one of the two next grid points at random, with its mean kept. The sum of n such errors
exceeds ``step sqrt(n ln(1/eta) / 2)`` with probability eta at most (Hoeffding); losses are lowered by that, and eta is
added to δ.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from accounting.privacy.composing import Composition
from accounting.privacy.events import Event, merge
from accounting.privacy.grid import Pld
from accounting.privacy.guided_tokens import GuidedTokens
from accounting.privacy.profiles import (
    Array,
    BoundedRange,
    Gaussian,
    GaussianThreshold,
    ProposeTestRelease,
    PtrTest,
    SymmetricProfile,
    require_delta,
)
from accounting.privacy.token_ensemble import TokenEnsembleProfile

_SHARES = (*np.linspace(0.4, 0.95, 12), 0.98, 0.995, 0.999)  # of ε, for t
_COMPOSED = 3  # of them, those of the best moments
_BIN, _WIDE_BIN = 0.02, 0.2  # standard deviations of the noise
_RARE = 1e-100  # of the outcomes of two releases
_REACH, _FARTHEST = 9.0, 36.0  # of the bins beyond both means; beyond the latter masses underflow
_ROUNDED = 0.003  # of ε, lost by rounding losses to the grid
_FEW = 25  # different answers; of more, as each has transforms of its own, fewer are composed, on coarser grids
_OUTSIDE = 1e-3  # of δ, the probability that rounding errors add up to more
_MOST_POINTS = 1 << 20
_INEXACT = 1e-12  # of an answer's loss, from masses computed in floating point

Pair = tuple[Array, Array]


def lower_epsilon(events: Sequence[Event], delta: float) -> float:
    """An ε below which these events cannot all be promised to be private at ``delta``; see the module.

    Raises:
        ValueError: delta is not in (0, 1).
    """
    require_delta(delta)
    return _lower_epsilon(tuple(merge(events)), delta)


def certain_loss(events: Sequence[Event]) -> float:
    """The probability that something leaves in some answer that shows that the unit was drawn.

    Two gaps of at most 2 in every answer attain it, and so does what no other slot contributes. At a smaller δ no
    finite ε can be promised.
    """
    return -math.expm1(
        sum(event.count * math.log1p(-event.sampling.probability * _delta0(event.mechanism)) for event in events)
    )


@lru_cache(maxsize=64)
def _lower_epsilon(events: tuple[Event, ...], delta: float) -> float:
    if not events:
        return 0.0
    if certain_loss(events) > delta * (1 + 1e-9):
        return math.inf
    best = 0.0
    for backwards in (False, True) if any(_has_directions(event) for event in events) else (False,):
        parts = [[_losses(event, share, backwards) for event in events] for share in _shares(events)]
        counts = [event.count for event, losses in zip(events, parts[0], strict=True) for _ in losses]
        tried = [[pair for losses in part for pair in losses] for part in parts]
        ranked = sorted(((_promise(losses, counts, delta), i) for i, losses in enumerate(tried)), reverse=True)
        for promise, i in ranked[: _COMPOSED if len(events) <= _FEW else 1]:
            if promise > best:
                best = max(best, _compose(tried[i], counts, delta, promise))
    return best


def _has_directions(event: Event) -> bool:
    """Whether adding a unit differs from removing one: not where its block is drawn with it and without it alike."""
    return event.sampling.kind == "units" or event.sampling.probability == 1


def _shares(events: Sequence[Event]) -> Sequence[float]:
    """The values of t to be tried, if there is a t."""
    choosing = BoundedRange | ProposeTestRelease | TokenEnsembleProfile
    return _SHARES if any(isinstance(event.mechanism, choosing) for event in events) else _SHARES[:1]


def _delta0(mechanism: SymmetricProfile) -> float:
    mechanism = mechanism.words if isinstance(mechanism, GuidedTokens) else mechanism
    tested = PtrTest | ProposeTestRelease | GaussianThreshold
    return mechanism.delta0 if isinstance(mechanism, tested) else 0.0


def _losses(event: Event, share: float, backwards: bool) -> Sequence[Pair]:
    """Losses of one answer and their probabilities; removing a unit, or backwards adding one.

    Where there are several, an answer's loss is their sum, and they are independent.
    """
    q = event.sampling.probability
    if not _has_directions(event):
        match event.mechanism:
            case Gaussian(noise_multiplier, "votes"):
                drawn = _sampled(*_noise(math.sqrt(2) * noise_multiplier), q)
                return drawn.removed, drawn.added
            case Gaussian(noise_multiplier, "ball"):
                absent, one, other = _opposite(noise_multiplier)
                with_one, with_other = _sampled(absent, one, q), _sampled(absent, other, q)
                return ((with_one.ratio - with_other.ratio, with_one.mixed),)
        return (_mirrored(_sampled(*_outputs(event.mechanism, share), q)),)
    drawn = _sampled(*_outputs(event.mechanism, share), q)
    return (drawn.added if backwards else drawn.removed,)


class _Sampled(NamedTuple):
    """One answer, with the unit or without it.

    Attributes:
        absent: probabilities of the outputs if the unit is not in the sample.
        mixed: probabilities of the outputs if it is in the sample sometimes.
        ratio: logarithms of mixed over absent.
    """

    absent: Array
    mixed: Array
    ratio: Array

    @property
    def removed(self) -> Pair:
        return self.ratio, self.mixed

    @property
    def added(self) -> Pair:
        return -self.ratio, self.absent


def _sampled(absent: Array, present: Array, q: float) -> _Sampled:
    ratio = np.log1p(q * (present / absent - 1)) if q < 1 else np.log(present / absent)
    return _Sampled(absent, (1 - q) * absent + q * present, ratio)


def _mirrored(drawn: _Sampled) -> Pair:
    up = drawn.ratio > 0
    ratio, mixed = drawn.ratio[up], drawn.mixed[up]
    back = np.exp(-ratio) * mixed
    rest = 1 - mixed.sum() - back.sum()
    if rest < 0:  # no such pair
        return np.array([0.0]), np.array([1.0])
    return np.concatenate([ratio, -ratio, [0.0]]), np.concatenate([mixed, back, [rest]])


def _outputs(mechanism: SymmetricProfile, share: float) -> Pair:
    """Probabilities of an answer's outputs if the unit is not in the sample, and if it is."""
    match mechanism:
        case Gaussian(noise_multiplier) | PtrTest(noise_multiplier) | GaussianThreshold(Gaussian(noise_multiplier)):
            return _noise(noise_multiplier)
        case BoundedRange(epsilon):
            return _choice(epsilon, share * epsilon)
        case ProposeTestRelease(epsilon, noise_multiplier):
            return _both(_choice(epsilon, share * epsilon), _noise(noise_multiplier))
        case GuidedTokens(epsilon, tokens, ProposeTestRelease(choice, noise_multiplier)):
            words = _both(_choice(choice, share * choice), _noise(noise_multiplier, _WIDE_BIN))
            return _both(words, _choices(epsilon, share * epsilon, tokens))
        case TokenEnsembleProfile(epsilon, tokens):
            return _choices(epsilon, share * epsilon, tokens)
    raise TypeError(f"no pair of outputs is known of {mechanism}")


def _both(first: Pair, second: Pair) -> Pair:
    """Two releases of one sample."""
    absent, present = (np.kron(one, other).astype(np.float64) for one, other in zip(first, second, strict=True))
    there = (absent > _RARE) & (present > _RARE)  # leaving others out lowers the bound
    return absent[there], present[there]


def _choices(epsilon: float, t: float, count: int) -> Pair:
    """``count`` choices from one sample: only the number with the likelier outcome matters."""
    from scipy import stats  # half a second, and few commands need it

    absent, present = _choice(epsilon, t)
    likelier = np.arange(count + 1)
    without, with_unit = (np.asarray(stats.binom.pmf(likelier, count, side[0])) for side in (absent, present))
    there = (without > 0) & (with_unit > 0)  # others are too rare for doubles; leaving them out lowers the bound
    return without[there], with_unit[there]


def _choice(epsilon: float, t: float) -> Pair:
    likelier = math.expm1(t - epsilon) / math.expm1(-epsilon)
    rarer = math.exp(-epsilon) * math.expm1(t) / -math.expm1(-epsilon)  # 1 - likelier, without cancellation
    present: Array = np.array([likelier, rarer], dtype=np.float64)
    absent: Array = np.array([likelier * math.exp(-t), -math.expm1(-t) / -math.expm1(-epsilon)], dtype=np.float64)
    return absent, present


def _noise(noise_multiplier: float, width: float = _BIN) -> Pair:
    shift = min(1 / noise_multiplier, 2 * _FARTHEST - 2)  # with more noise added, where masses would underflow
    low = min(max(-_REACH, shift - _FARTHEST), shift / 2)
    high = max(min(shift + _REACH, _FARTHEST), shift / 2)
    edges = np.linspace(low, high, max(1, min(4000, math.ceil((high - low) / width))) + 1)
    return _bins(edges), _bins(edges - shift)


def _opposite(noise_multiplier: float) -> tuple[Array, Array, Array]:
    """Noise around 0, around half of ``1/noise_multiplier``, and around minus that."""
    shift = min(1 / (2 * noise_multiplier), _FARTHEST - 6)  # with more noise added, where masses would underflow
    reach = min(shift + _REACH, _FARTHEST - shift)
    edges = np.linspace(-reach, reach, 2 * math.ceil(reach / _BIN) + 1)
    return _bins(edges), _bins(edges - shift), _bins(edges + shift)


def _bins(edges: Array) -> Array:
    """Masses of a standard normal between the edges and beyond both ends, with small relative errors."""
    below, above = special.ndtr(edges), special.ndtr(-edges)
    between = np.where(edges[1:] <= 0, np.diff(below), -np.diff(above))
    return np.concatenate([below[:1], between, above[-1:]])


def _promise(losses: Sequence[Pair], counts: Sequence[int], delta: float) -> float:
    """About the ε of the composition: the best moment's."""
    deviation = math.sqrt(sum(n * float(p @ x**2) for (x, p), n in zip(losses, counts, strict=True)))
    if deviation == 0:
        return 0.0
    tilts = np.geomspace(1e-2, 1e3, 60) / deviation
    moments = sum(
        n * special.logsumexp(np.outer(tilts, x), b=p, axis=1) for (x, p), n in zip(losses, counts, strict=True)
    )
    return float(np.min((moments - math.log(delta)) / tilts))


def _compose(losses: Sequence[Pair], counts: Sequence[int], delta: float, promised: float) -> float:
    answers = sum(counts)
    spread = math.sqrt(answers * math.log(1 / (_OUTSIDE * delta)) / 2)
    widest = max(float(np.ptp(x)) for x, _ in losses)
    rounded = _ROUNDED * max(1.0, len(losses) / _FEW)
    step = max(rounded * promised / spread, max(widest, 2 * promised) / _MOST_POINTS)
    plds = [_rounded(x, p, step) for x, p in losses]
    found = Composition(plds, counts).epsilon_at_least(delta * (1 + _OUTSIDE))
    return max(0.0, found - step * spread - _INEXACT * answers)


def _rounded(losses: Array, probs: Array, step: float) -> Pld:
    """The losses on multiples of ``step``, each shared by its two neighbours such that its mean is kept."""
    below = np.floor(losses / step).astype(np.int64)
    share = losses / step - below
    low = int(below.min())
    size = int(below.max()) - low + 2
    masses = np.bincount(below - low, probs * (1 - share), size) + np.bincount(below - low + 1, probs * share, size)
    return Pld(step, low, np.asarray(masses * (1 - _INEXACT), dtype=np.float64), 0.0)
