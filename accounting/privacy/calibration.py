"""The least noise that keeps a plan within its budget.

Every family of mechanisms has one free noise parameter. An answer's cost in the central limit is the variance of its
likelihood ratio: ``q² (e^L - 1)`` with sampling probability q, where ``L`` is the logarithm of the second moment of the
unsampled ratio: ``1/z²`` for a Gaussian, ``ln cosh²(ε/2)`` for a bounded range (the largest of its pairs), and the sum
of both for propose-test-release. Where blocks are drawn it is ``2 q² (e^(L/2) - 1)`` for noise on votes, and
``4 q² sinh(L/4)`` for noise in a ball: that of the worst pairs (:mod:`accounting.privacy.blocks`). Costs add up over
answers. So with ``M²`` for the whole plan and a grant's share of it, ``M² share = answers q² (e^L - 1)``, or its like,
gives each grant's ``L`` and its noise, and one search over M by the composed accountant finds the plan that just fits.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Generic, TypeVar

from accounting.privacy.accountants import get_accountant, get_shared_accountant
from accounting.privacy.bounds import Accountant
from accounting.privacy.events import Event, Sampling
from accounting.privacy.guided_tokens import GuidedTokens
from accounting.privacy.profiles import (
    BoundedRange,
    Gaussian,
    GaussianThreshold,
    ProposeTestRelease,
    SymmetricProfile,
    require_delta,
    require_delta0,
    require_positive,
)
from accounting.privacy.token_ensemble import LARGEST_MU, TokenEnsembleProfile

# The result's epsilon lies between this share of the target and the target.
_CLOSE_ENOUGH = 0.998
_AIM = 0.9992
_LARGEST_BUDGET, _SMALLEST_BUDGET = 1e40, 1e-7
# Steps of the logarithm of a cost: ε rises by less from one to the next than what is close enough.
_RUNG = 1.9e-3
_SIMILAR = math.exp(5 * _RUNG)  # a factor of budgets


class CalibrationError(ValueError):
    """No amount of noise meets the target; the message states what to change."""


_Mechanism = TypeVar("_Mechanism", bound=SymmetricProfile, covariant=True)


@dataclass(frozen=True)
class Family(Generic[_Mechanism]):
    """Mechanisms that differ in their noise alone.

    Attributes:
        mechanism: the one whose likelihood ratio has a second moment of ``exp(cost)``.
        delta0: the probability per sampled answer of a loss that no noise removes.
        most: the largest cost that a mechanism of this family can have; infinite where more always helps.
        by_blocks: the cost of an answer by blocks, from the variance of its likelihood ratio over q².
    """

    mechanism: Callable[[float], _Mechanism]
    delta0: float = 0.0
    most: float = math.inf
    by_blocks: Callable[[float], float] = math.log1p


AnyFamily = Family[SymmetricProfile]

GAUSSIAN = Family(lambda cost: Gaussian(1 / math.sqrt(cost)))
"""Gaussian noise; the noise multiplier is free."""
VOTES = Family(
    lambda cost: Gaussian(1 / math.sqrt(cost), "votes"), by_blocks=lambda variance: 2 * math.log1p(variance / 2)
)
"""Gaussian noise on votes."""
BALL = Family(
    lambda cost: Gaussian(1 / math.sqrt(cost), "ball"), by_blocks=lambda variance: 4 * math.asinh(variance / 4)
)
"""Gaussian noise on vectors of a ball."""
BOUNDED_RANGE = Family(lambda cost: BoundedRange(_range_of(cost)))
"""The exponential mechanism; its range ε is free."""


def propose_test_release(delta0: float, choice_share: float = 0.5) -> Family[ProposeTestRelease]:
    """Propose-test-release with a fixed split between its two steps.

    Args:
        delta0: probability that the test passes wrongly, per answer; out of the plan's δ for every answer.
        choice_share: share of an answer's cost that goes to choosing k; the test's noise gets the rest.

    Raises:
        ValueError: a parameter is out of its range.
    """
    require_delta0(delta0)
    if not 0 < choice_share < 1:
        raise ValueError(f"choice_share must be in (0, 1), not {choice_share}")

    def mechanism(cost: float) -> ProposeTestRelease:
        return ProposeTestRelease(_range_of(choice_share * cost), 1 / math.sqrt((1 - choice_share) * cost), delta0)

    return Family(mechanism, delta0)


def gaussian_threshold(delta0: float) -> Family[GaussianThreshold]:
    """Counts above a threshold; the noise multiplier is free.

    Args:
        delta0: probability per answer that something leaves which one slot alone contributes.

    Raises:
        ValueError: it is out of its range.
    """
    require_delta0(delta0)
    return Family(lambda cost: GaussianThreshold(Gaussian(1 / math.sqrt(cost)), delta0), delta0)


def token_ensemble(tokens: int, largest: float, *, sampled: bool = True) -> Family[TokenEnsembleProfile]:
    """Tokens drawn from the slots' opinions; the range ε of each is free, up to a largest one.

    Args:
        tokens: number of tokens that an answer pays for.
        largest: largest range of a token; above it, the slots' opinions would count for more than the plan allows.
        sampled: whether units are drawn, so that a μ above 1 would be a waste (:data:`LARGEST_MU`).
    """
    largest = min(largest, 2 * LARGEST_MU / math.sqrt(tokens) if sampled else math.inf)
    most = tokens * 2 * math.log(math.cosh(largest / 2))
    return Family(lambda cost: TokenEnsembleProfile(_range_of(cost / tokens), tokens), most=most)


def guided_tokens(
    words: Family[ProposeTestRelease], tokens: Family[TokenEnsembleProfile], share: float
) -> Family[GuidedTokens]:
    """Tokens after words of the same sample, with a fixed split between the two releases.

    Args:
        words: family of the words, whose noise is free.
        tokens: family of the tokens, whose range is free up to a largest one.
        share: share of an answer's cost that goes to the words.
    """

    def mechanism(cost: float) -> GuidedTokens:
        paid = tokens.mechanism(min((1 - share) * cost, tokens.most))
        return GuidedTokens(paid.epsilon, paid.tokens, words.mechanism(share * cost))

    return Family(mechanism, words.delta0)


def _range_of(cost: float) -> float:
    """The ε with ``ln cosh²(ε/2) = cost``."""
    return 2 * math.asinh(math.sqrt(math.expm1(cost)))


@dataclass(frozen=True)
class Grant:
    """A number of answers whose noise is to be found.

    Args:
        family: family of mechanisms to choose from.
        sampling: sampling of each answer's exemplars.
        answers: number of answers.
        share: this grant's part of the plan's cost, relative to the other grants' shares.

    Raises:
        ValueError: ``answers`` is not a whole number of at least 1, or the share is not positive.
    """

    family: AnyFamily
    sampling: Sampling
    answers: int
    share: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.answers, bool) or not isinstance(self.answers, int) or self.answers < 1:
            raise ValueError(f"answers must be a whole number of at least 1, not {self.answers!r}")
        require_positive("share", self.share)

    def event(self, squared_cost: float) -> Event:
        """This grant with the noise that a central-limit cost of ``squared_cost`` in all buys."""
        variance = squared_cost / (self.answers * self.sampling.probability**2)
        by_blocks = self.sampling.kind == "blocks" and self.sampling.probability < 1
        cost = self.family.by_blocks(variance) if by_blocks else math.log1p(variance)
        return Event(self.family.mechanism(min(cost, self.family.most)), self.sampling, self.answers)


def calibrate(grants: Sequence[Grant], epsilon: float, delta: float, accountant: str = "pld") -> list[Event]:
    """Find the least noise at which all grants together are (epsilon, delta)-DP.

    Args:
        grants: answers that the plan allows, at least one grant; their shares fix how the cost is divided.
        epsilon: the plan's ε, in nats.
        delta: the plan's δ. The δ₀ of a test or a threshold is part of it, once for every answer.
        accountant: name of the accountant whose upper bound has to meet the target.

    Returns:
        One event for each grant, in order. Their composed upper bound is at most ``epsilon`` and above 99.5 % of it.

    Raises:
        CalibrationError: no noise meets the target.
        UnsupportedEventsError: the accountant cannot bound such mechanisms, or such a delta.
        ValueError: an argument is out of its range.
    """
    require_positive("epsilon", epsilon)
    require_delta(delta)
    _require_meaningful_delta(grants, delta)
    judge, guess = get_accountant(accountant), _first_guess(epsilon, delta)
    return _fit(grants, epsilon, delta, judge, partial(_bought, grants), guess)


class Variants:
    """Plans that differ in few grants from one that is calibrated, at its ε and δ.

    Args:
        grants: grants of that plan.
        events: result of :func:`calibrate` for them.
        epsilon: the plan's ε, in nats.
        delta: the plan's δ.
        accountant: name of the accountant whose upper bound has to meet the target.
    """

    def __init__(
        self, grants: Sequence[Grant], events: Sequence[Event], epsilon: float, delta: float, accountant: str = "pld"
    ) -> None:
        self._grants, self._epsilon, self._delta = grants, epsilon, delta
        self._budget = math.sqrt(max(map(_cost_of_share, grants, events)) * _shares(grants))
        self._judge = get_shared_accountant(accountant, events, epsilon, delta)

    def roughly(self, grants: Sequence[Grant]) -> list[Event]:
        """A variant's events with the noise that the calibrated plan's cost buys, which is only about right.

        Raises:
            CalibrationError: no noise can meet the target.
        """
        _require_meaningful_delta(grants, self._delta)
        return _bought(grants, self._budget)

    def calibrate(self, grants: Sequence[Grant]) -> list[Event]:
        """As :func:`calibrate`, sooner: it begins at the cost of the calibrated plan, with the slope there.

        The costs of a share that are tried are powers of one number, so that variants try the same.
        """
        _require_meaningful_delta(grants, self._delta)
        return _fit(
            grants, self._epsilon, self._delta, self._judge, partial(_on_rungs, grants), self._budget, self._slope
        )

    @cached_property
    def _slope(self) -> float:
        """Rise of the logarithm of ε over that of the budget, of the calibrated plan."""
        low, high = (
            self._judge.upper(_on_rungs(self._grants, self._budget * factor), self._delta) for factor in (1, _SIMILAR)
        )
        return math.log(high / low) / math.log(_SIMILAR)


def _shares(grants: Sequence[Grant]) -> float:
    return sum(grant.share for grant in grants)


def _bought(grants: Sequence[Grant], budget: float) -> list[Event]:
    """The grants with the noise that a budget buys."""
    shares = _shares(grants)
    return [grant.event(budget**2 * grant.share / shares) for grant in grants]


def _on_rungs(grants: Sequence[Grant], budget: float) -> list[Event]:
    """The same, with the cost of a share rounded to the next rung."""
    each = math.exp(_RUNG * round(math.log(budget**2 / _shares(grants)) / _RUNG))
    return [grant.event(each * grant.share) for grant in grants]


def _fit(
    grants: Sequence[Grant],
    epsilon: float,
    delta: float,
    judge: Accountant,
    plan: Callable[[float], list[Event]],
    guess: float,
    slope: float = 1.0,
) -> list[Event]:
    """As :func:`calibrate`, among the plans that budgets buy, beginning with the guess of a budget."""
    if all(math.isfinite(grant.family.most) for grant in grants):
        largest = judge.upper(plan(_LARGEST_BUDGET), delta)
        if largest < _CLOSE_ENOUGH * epsilon:
            raise CalibrationError(
                f"these answers cost an epsilon of {largest:.3g} at most, whatever they are granted: lower epsilon to "
                "that, or ask for more answers, more shots, or a larger weight"
            )
    return plan(_search(lambda budget: judge.upper(plan(budget), delta) / epsilon, guess, epsilon, slope))


def _cost_of_share(grant: Grant, event: Event) -> float:
    """The least M² of a whole plan, over its shares, with which it grants such an event."""
    wanted = _cost_of(event.mechanism) * (1 - 1e-12)
    low, high = math.log(_SMALLEST_BUDGET**2), math.log(_LARGEST_BUDGET**2)
    while low + 1e-13 * abs(low) < (middle := (low + high) / 2) < high:
        if _cost_of(grant.event(math.exp(middle) * grant.share).mechanism) >= wanted:
            high = middle
        else:
            low = middle
    return math.exp(high)


def _cost_of(mechanism: SymmetricProfile) -> float:
    """The cost with which a family makes a mechanism, see the module."""
    match mechanism:
        case Gaussian(noise_multiplier):
            return noise_multiplier**-2
        case GaussianThreshold(gaussian):
            return _cost_of(gaussian)
        case BoundedRange(epsilon):
            return 2 * math.log1p(2 * math.sinh(epsilon / 4) ** 2)  # ln cosh²(ε/2), without cancellation
        case ProposeTestRelease(epsilon, noise_multiplier):
            return _cost_of(BoundedRange(epsilon)) + noise_multiplier**-2
        case GuidedTokens(epsilon, tokens, words):
            return tokens * _cost_of(BoundedRange(epsilon)) + _cost_of(words)
        case TokenEnsembleProfile(epsilon, tokens):
            return tokens * _cost_of(BoundedRange(epsilon))
    raise TypeError(f"no family makes {mechanism}")


def _require_meaningful_delta(grants: Sequence[Grant], delta: float) -> None:
    if not grants:
        raise ValueError("a plan needs at least one grant of answers")
    seen = -math.expm1(sum(g.answers * math.log1p(-min(g.sampling.probability, 1 - 1e-16)) for g in grants))
    if seen <= delta:
        raise CalibrationError(
            f"all these answers together draw a given unit with a probability of only {seen:.3g}, below a delta "
            f"of {delta:.3g}: at that delta no noise at all would do, so it promises nothing; lower delta"
        )
    lost = -math.expm1(sum(g.answers * math.log1p(-g.family.delta0 * g.sampling.probability) for g in grants))
    if lost >= delta:
        raise CalibrationError(
            f"delta0 counts once per answer: these answers alone cost a delta of {lost:.3g}, and the plan has "
            f"{delta:.3g}; lower delta0 or the number of answers, or raise delta"
        )


def _first_guess(epsilon: float, delta: float) -> float:
    """M such that a Gaussian of that cost is about (epsilon, delta)-DP: ε = M²/2 + M sqrt(2 ln 1/δ)."""
    spread = math.sqrt(2 * math.log(1 / delta))
    return math.sqrt(spread**2 + 2 * epsilon) - spread


def _search(cost: Callable[[float], float], guess: float, epsilon: float, slope: float) -> float:
    """The largest budget whose relative cost is in (0.998, 1]; costs grow with the budget, at about this slope.

    Secant steps on logarithms inside a bracket, bisection where they leave it.
    """
    low, high = _SMALLEST_BUDGET, _LARGEST_BUDGET
    previous: tuple[float, float] | None = None
    budget = guess
    for _ in range(80):
        now = cost(budget)
        if _CLOSE_ENOUGH <= now <= 1:
            return budget
        if now > 1:
            high = budget
        else:
            low = budget
        if low > 0.999 * _LARGEST_BUDGET or high < 2 * _SMALLEST_BUDGET or high < low * (1 + 1e-12):
            break
        trial = _secant(previous, (budget, now), slope)
        previous = (budget, now)
        budget = trial if low * 1.0001 < trial < high / 1.0001 else math.sqrt(low * high)
    raise CalibrationError(
        f"no noise gives an epsilon near {epsilon:g} at this delta by this accountant; "
        "ask for another epsilon, a larger delta, or use pld"
    )


def _secant(previous: tuple[float, float] | None, latest: tuple[float, float], slope: float) -> float:
    """Point where the straight line of log cost over log budget meets the aim, at most a factor e^4 away; else NaN.

    The slope is that between both points, or else as given.
    """
    budget, now = latest
    if not (math.isfinite(now) and now > 0):
        return math.nan
    if previous is not None and math.isfinite(previous[1]) and previous[1] > 0:
        slope = math.log(now / previous[1]) / math.log(budget / previous[0])
    step = math.log(_AIM / now) / min(max(slope, 0.1), 10.0)
    return budget * math.exp(min(max(step, -4.0), 4.0))
